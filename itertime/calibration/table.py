"""Iteration tables: measured seconds per iteration, one row a run, each with its own model, plan and system.

The columns are those of `../shared/data/README.md`. A file that is not such a table raises TableError with
its line.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from itertime.errors import TableError
from itertime.spec import RECOMPUTE

__all__ = ["Cells", "read_table"]

Cells = dict[str, Any]


@dataclass(frozen=True)
class _Column:
    parse: Callable[[str], Any]
    needed: bool = True


def _text(value: str) -> str:
    return value


def _count(value: str) -> int:
    number = _number(value)
    if number != int(number) or not 1 <= number <= 10**12:
        raise ValueError("must be a whole number of at least 1")
    return int(number)


def _stage(value: str) -> int:
    if value not in ("0", "1", "2", "3"):
        raise ValueError("must be 0, 1, 2 or 3")
    return int(value)


def _positive(value: str) -> float:
    number = _number(value)
    if number <= 0:
        raise ValueError("must be above 0")
    if not 1e-12 <= number <= 1e12:
        raise ValueError("is beyond what any machine has; check its unit")
    return number


def _number(value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        raise ValueError("must be a number") from None
    if not math.isfinite(number):
        raise ValueError("must be a finite number")
    return number


def _switch(value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise ValueError("must be True or False")
    return value.lower() == "true"


def _one_of(*choices: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        if value not in choices:
            raise ValueError(f"must be {', '.join(choices[:-1])} or {choices[-1]}")
        return value

    return parse


_COLUMNS = {
    "id": _Column(_text),
    "site": _Column(_text, needed=False),
    "gpu": _Column(_text),
    "gpus": _Column(_count),
    "gpus_per_node": _Column(_count),
    "node_nic_gbps": _Column(_positive),
    "layers": _Column(_count),
    "hidden": _Column(_count),
    "heads": _Column(_count),
    "kv_heads": _Column(_count, needed=False),
    "ffn_hidden": _Column(_count, needed=False),
    "gated_mlp": _Column(_switch, needed=False),
    "vocab": _Column(_count),
    "seq_len": _Column(_count),
    "attention": _Column(_one_of("core", "flash")),
    "tp": _Column(_count),
    "pp": _Column(_count),
    "dp": _Column(_count),
    "interleave": _Column(_count, needed=False),
    "micro_batch": _Column(_count, needed=False),
    "global_batch": _Column(_count),
    "zero_stage": _Column(_stage, needed=False),
    "zero_group": _Column(_count, needed=False),
    "recompute": _Column(_one_of(*reversed(RECOMPUTE))),
    "sequence_parallel": _Column(_switch, needed=False),
    "grad_overlap": _Column(_switch, needed=False),
    "iteration_s": _Column(_positive),
    "memory_gb": _Column(_positive, needed=False),
    "source": _Column(_text, needed=False),
    "note": _Column(_text, needed=False),
}
_LONGEST_CELL = 10_000


def read_table(path: str | Path) -> list[Cells]:
    """The rows of an iteration table, in order: column -> value, None for an empty cell; "line" -> the line
    of the file.

    Unknown columns are ignored. Raises TableError for a file that is not such a table: missing, other text,
    missing or repeated columns, ragged rows, cells of the wrong kind, repeated ids.
    """
    path = Path(path)
    rows: list[Cells] = []
    seen: dict[str, int] = {}
    for line, header, cells in _lines(path):
        row = _row(path, line, header, cells)
        if row["id"] is None:
            raise TableError(f"{path}:{line}: id=: is empty; give every row its own name")
        if row["id"] in seen:
            raise TableError(f"{path}:{line}: id={row['id']}: is also on line {seen[row['id']]}; rename one")
        seen[row["id"]] = line
        rows.append(row)
    if not rows:
        raise TableError(f"{path}:1: the table has no rows; add at least one below the header")
    return rows


def _lines(path: Path) -> Iterator[tuple[int, list[str], list[str]]]:
    """(line number, header, cells) of every row that is not blank."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            header = next(reader, [])
            _check_header(path, header)
            for cells in reader:
                if cells:
                    yield reader.line_num, header, cells
    except OSError as error:
        raise TableError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise TableError(f"{path}: is not UTF-8 text; save the table as CSV") from error
    except csv.Error as error:
        raise TableError(
            f"{path}:{reader.line_num}: is not CSV ({error}); quote cells with commas or quotes"
        ) from error


def _check_header(path: Path, header: list[str]) -> None:
    if not header:
        raise TableError(f"{path}:1: the file is empty; the first line must name the columns")
    for name in header:
        if name in _COLUMNS and header.count(name) > 1:
            raise TableError(f"{path}:1: column {name} appears {header.count(name)} times; keep one")
    missing = [name for name, column in _COLUMNS.items() if column.needed and name not in header]
    if missing:
        raise TableError(
            f"{path}:1: column {missing[0]} is missing; an iteration table needs {', '.join(missing)} too"
        )


def _row(path: Path, line: int, header: list[str], cells: list[str]) -> Cells:
    if len(cells) != len(header):
        raise TableError(
            f"{path}:{line}: has {len(cells)} cells where the header has {len(header)}; complete the row"
        )
    row: Cells = dict.fromkeys(_COLUMNS)
    row["line"] = line
    for name, text in zip(header, cells, strict=True):
        value = text.strip()
        if name not in _COLUMNS or not value:
            continue
        if len(value) > _LONGEST_CELL:
            raise TableError(
                f"{path}:{line}: {name}: has {len(value)} characters; the limit is {_LONGEST_CELL}"
            )
        try:
            row[name] = _COLUMNS[name].parse(value)
        except ValueError as error:
            raise TableError(f"{path}:{line}: {name}={value}: {error}") from None
    return row
