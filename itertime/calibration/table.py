"""Tables of measured runs: seconds per iteration, one row a run.

Three kinds, which the names of their columns tell apart. An *iteration table* states a model, a plan and a
system by column, or names model and system (`named_rows.py`). A *BERT table* holds steps of MLPerf's BERT
under data parallelism alone, and says how samples become micro-batches; `bert_run.py` says what its columns
mean. A *table of chips* holds benchmarks of accelerators, whose rows `chip_rows.py` reads. `columns.yaml`
lists the columns of all. A file that is none of them raises TableError with its line.
"""

from __future__ import annotations

import csv
import logging
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from itertime.errors import TableError, UserError, printable
from itertime.io import GPU_W, check_repeated, open_input, read_mapping, shown, text_lines
from itertime.spec import CHOICES, RECOMPUTE

from .chip_rows import chip_cells
from .named_rows import Cells, complete

BERT = "bert"
"""The kind, in the cell "kind", of the rows of a BERT table."""


# Parsers of cells. Each takes the text of a cell that is not empty, without white space around it, and raises
# ValueError with the rule that the text breaks; `_row` adds file, line, column and value.

_SMALLEST, _LARGEST = 1e-12, 1e12  # of a measured quantity in the units of these columns
_LARGEST_COUNT = 10**12
_NODE_GPUS, _NODE_GBPS = 10_000, 1e6  # the most that one node has


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError("must be a number") from None
    if not math.isfinite(value):
        raise ValueError("must be a finite number")
    return value


def _count(text: str) -> int:
    value = _number(text)
    if value != int(value) or not 1 <= value <= _LARGEST_COUNT:
        raise ValueError("must be a whole number of at least 1")
    return int(value)


def _share(text: str) -> float:
    value = _number(text)
    if not 0 <= value <= 1:
        raise ValueError("must be a number from 0 to 1")
    return value


def _positive(text: str) -> float:
    value = _number(text)
    if value <= 0:
        raise ValueError("must be above 0")
    if not _SMALLEST <= value <= _LARGEST:
        raise ValueError("is beyond what any machine has; check its unit")
    return value


def _node(text: str) -> int:
    gpus = _count(text)
    if gpus > _NODE_GPUS:
        raise ValueError(f"must be at most {_NODE_GPUS:,}, the GPUs of one node")
    return gpus


def _nic_gbps(text: str) -> float:
    gbps = _positive(text)
    if gbps > _NODE_GBPS:
        raise ValueError("is beyond what any node has; check its unit, Gb/s")
    return gbps


def _power(text: str) -> float:
    watts, (lowest, highest) = _number(text), GPU_W
    if not lowest <= watts <= highest:
        raise ValueError(
            f"must be the limit of one GPU, {lowest} to {highest:,} W; leave it empty for the usual one"
        )
    return watts


def _choice(*choices: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError(f"must be {', '.join(choices[:-1])} or {choices[-1]}")
        return text

    return parse


def _switch(on: str, off: str) -> Callable[[str], bool]:
    def parse(text: str) -> bool:
        if text.lower() not in (on.lower(), off.lower()):
            raise ValueError(f"must be {on} or {off}")
        return text.lower() == on.lower()

    return parse


_PARSERS: dict[str, Callable[[str], Any]] = {
    "text": str,
    "number": _number,
    "count": _count,
    "whole": lambda text: 0 if text == "0" else _count(text),
    "share": _share,
    "positive": _positive,
    "stage": lambda text: int(_choice("0", "1", "2", "3")(text)),
    "node": _node,
    "nic_gbps": _nic_gbps,
    "power": _power,
    "recompute": _choice(*reversed(RECOMPUTE)),
    "schedule": _choice(*CHOICES["schedule"]),
    "true_false": _switch("True", "False"),
    "yes_no": _switch("yes", "no"),
    "kernel_precision": _choice("bf16", "fp8"),
    "lora_targets": _choice("attention", "linear"),
}
"""The rules of `columns.yaml`, by name. A list there holds the texts that a cell may have."""


# Kinds of tables


@dataclass(frozen=True)
class _Kind:
    """A kind of table: its name with an article, the parsers of its columns, the columns that it needs, and
    those that are not read.
    """

    name: str
    parsers: Mapping[str, Callable[[str], Any]]
    required: tuple[str, ...]
    not_read: tuple[str, ...]


def _kind(name: str, key: str) -> _Kind:
    """A kind of table as `columns.yaml` states it."""
    columns = _COLUMNS[key]
    rules = {column: rule.rstrip("?") if isinstance(rule, str) else rule for column, rule in columns.items()}
    return _Kind(
        name,
        parsers={
            column: _PARSERS[rule] if isinstance(rule, str) else _choice(*rule)
            for column, rule in rules.items()
        },
        required=tuple(column for column, rule in columns.items() if rule == rules[column]),
        not_read=tuple(_COLUMNS["not_read"].get(key, ())),
    )


_COLUMNS = read_mapping(Path(__file__).with_name("columns.yaml"))
_IN_PLACE_OF: dict[str, list[str]] = _COLUMNS["in_place_of"]
_ITERATIONS, _BERT = _kind("an iteration table", "iterations"), _kind("a BERT table", "bert")
_CHIPS = _kind("a table of chips", "chips")
_OF_CHIPS = frozenset({"chip", "chips"})
_OF_ITERATIONS = frozenset(_ITERATIONS.required) - frozenset(_BERT.parsers)
_OF_BERT = frozenset(_BERT.required) - frozenset(_ITERATIONS.parsers)
"""Columns that tell the kinds apart: needed in one, unknown in the other."""
_log = logging.getLogger("itertime")
_LONGEST_CELL = 10_000
_MOST_NAMED = 10  # unknown columns in a warning


def read_table(path: str | Path) -> list[Cells]:
    """The rows of a table of measured runs, in order: column -> value, None for an empty cell; "line" -> the
    line of the file.

    A row of a BERT table has the "kind" `BERT`, and its step as "iteration_s". Columns that are not known are
    ignored, and one warning names them. Raises TableError for a file that is not such a table: missing,
    other text, missing or repeated columns, columns of both kinds, ragged rows, cells of the wrong kind,
    repeated ids.
    """
    path = Path(path)
    rows: list[Cells] = []
    seen: dict[str, int] = {}
    kind = _ITERATIONS
    for line, header, cells in _lines(path):
        if not rows:
            kind = _kind_of(path, header)
        row = _row(path, line, kind, header, cells)
        if row["id"] is None:
            raise TableError(f"{path}:{line}: id=: is empty; give every row its own name")
        if row["id"] in seen:
            problem = f"id={shown(row['id'])}: is also on line {seen[row['id']]}; rename one"
            raise TableError(f"{path}:{line}: {problem}")
        seen[row["id"]] = line
        rows.append(row)
    if not rows:
        raise TableError(f"{path}:1: the table has no rows; add at least one below the header")
    return rows


def _lines(path: Path) -> Iterator[tuple[int, list[str], list[str]]]:
    """(line number, header, cells) of every row that is not blank."""
    try:
        with open_input(path) as file:
            reader = csv.reader(text_lines(path, file), strict=True)
            header = next(reader, [])
            _check_header(path, header)
            for cells in reader:
                if cells:
                    yield reader.line_num, header, cells
    except TableError:
        raise
    except UserError as error:  # it cannot be opened
        raise TableError(str(error)) from error
    except csv.Error as error:
        raise TableError(
            f"{path}:{reader.line_num}: is not CSV ({error}); quote cells with commas or quotes"
        ) from error


def _kind_of(path: Path, header: list[str]) -> _Kind:
    """The kind of table that has these columns: a BERT table if any of them is one's alone, a table of chips
    if it names chips and how many there are.
    """
    if set(header) >= _OF_CHIPS:
        return _CHIPS
    of_bert = [name for name in header if name in _OF_BERT]
    of_iterations = [name for name in header if name in _OF_ITERATIONS]
    if of_bert and of_iterations:
        raise TableError(
            f"{path}:1: has columns of a BERT table ({', '.join(of_bert[:3])}) beside those of an iteration "
            f"table ({', '.join(of_iterations[:3])}); keep the columns of one kind"
        )
    return _BERT if of_bert else _ITERATIONS


def _check_header(path: Path, header: list[str]) -> None:
    if not header:
        raise TableError(f"{path}:1: the file is empty; the first line must name the columns")
    kind = _kind_of(path, header)
    columns = {*kind.parsers, *kind.not_read}
    foreign = [shown(name) for name in header if name not in columns]
    if foreign:
        excess = f" and {len(foreign) - _MOST_NAMED} more" if len(foreign) > _MOST_NAMED else ""
        listing = ", ".join(foreign[:_MOST_NAMED]) + excess
        problem = f"ignored, as no column of these names is known: {listing}"
        _log.warning("warning: %s:1: %s; do they change the work of a run?", printable(str(path)), problem)
    check_repeated(header, f"{path}:1", kind.parsers)
    substitutes = _IN_PLACE_OF if kind is _ITERATIONS else {}
    replaced_columns = {name for column in header for name in substitutes.get(column, ())}
    missing = [name for name in kind.required if name not in header and name not in replaced_columns]
    if missing:
        remedies = [column for column, names in substitutes.items() if missing[0] in names]
        remedy = f"; {' or '.join(remedies)} may stand for {missing[0]}" if remedies else ""
        raise TableError(
            f"{path}:1: column {missing[0]} is missing; {kind.name} needs {', '.join(missing)} too{remedy}"
        )


def _row(path: Path, line: int, kind: _Kind, header: list[str], cells: list[str]) -> Cells:
    if len(cells) != len(header):
        raise TableError(
            f"{path}:{line}: has {len(cells)} cells where the header has {len(header)}; complete the row"
        )
    row: Cells = dict.fromkeys(kind.parsers)
    row["line"] = line
    for name, cell in zip(header, cells, strict=True):
        value = cell.strip()
        if name not in kind.parsers or not value:
            continue
        if len(value) > _LONGEST_CELL:
            raise TableError(
                f"{path}:{line}: {name}: has {len(value)} characters; the limit is {_LONGEST_CELL}"
            )
        try:
            row[name] = kind.parsers[name](value)
        except ValueError as error:
            raise TableError(f"{path}:{line}: {name}={shown(value)}: {error}") from None
    if kind is _BERT:
        row |= {"kind": BERT, "iteration_s": row["step_s"], "memory_gb": None, "site": None}
    elif kind is _CHIPS:
        row = chip_cells(row, dict.fromkeys(_ITERATIONS.parsers))
    else:
        complete(row, path)
    return row
