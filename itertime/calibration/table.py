"""Iteration tables: measured seconds per iteration, one row a run, each with its own model, plan and system.

The columns are those of `../shared/data/README.md` and `../shared/data/modern_gpus/README.md`. A file that is
not such a table raises TableError with its line.
"""

from __future__ import annotations

import csv
import logging
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from itertime.errors import TableError, printable
from itertime.io import GPU_W, check_repeated, shown
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


def _whole(value: str) -> int:
    return 0 if value == "0" else _count(value)


def _share(value: str) -> float:
    number = _number(value)
    if not 0 <= number <= 1:
        raise ValueError("must be a number from 0 to 1")
    return number


def _stage(value: str) -> int:
    if value not in ("0", "1", "2", "3"):
        raise ValueError("must be 0, 1, 2 or 3")
    return int(value)


_SMALLEST, _LARGEST = 1e-12, 1e12  # of a measured quantity in the units of these columns


def _positive(value: str) -> float:
    number = _number(value)
    if number <= 0:
        raise ValueError("must be above 0")
    if not _SMALLEST <= number <= _LARGEST:
        raise ValueError("is beyond what any machine has; check its unit")
    return number


def _power(value: str) -> float:
    number, (least, most) = _number(value), GPU_W
    if not least <= number <= most:
        raise ValueError(
            f"must be the limit of one GPU, {least} to {most:,} W; leave it empty for the usual one"
        )
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
    "model": _Column(_text, needed=False),
    "framework": _Column(_text, needed=False),
    "missing": _Column(_text, needed=False),
    "precision": _Column(_text, needed=False),
    "cp": _Column(_count, needed=False),
    "ep": _Column(_count, needed=False),
    "etp": _Column(_count, needed=False),
    "experts": _Column(_count, needed=False),
    "experts_per_token": _Column(_count, needed=False),
    "moe_ffn_hidden": _Column(_count, needed=False),
    "shared_ffn_hidden": _Column(_count, needed=False),
    "head_dim": _Column(_count, needed=False),
    "head_dim_v": _Column(_count, needed=False),
    "lora_rank": _Column(_whole, needed=False),
    "power_w": _Column(_power, needed=False),
    "tp_comm_overlap": _Column(_switch, needed=False),
    "cuda_graphs": _Column(_text, needed=False),
    "cpu_offload_layers": _Column(_whole, needed=False),
    "recompute_modules": _Column(_text, needed=False),
    "recompute_fraction": _Column(_share, needed=False),
    "moe_dispatcher": _Column(_text, needed=False),
    "moe_a2a_overlap": _Column(_switch, needed=False),
    "grad_dtype": _Column(_text, needed=False),
}
"""Columns that say what ran, and how."""
_INFORMATION = frozenset(
    (
        *("release", "recipe", "measured_as"),
        *("tokens_per_s_gpu", "tflops_per_gpu", "model_tflops_gpu", "mfu_bf16"),
        *("license", "repo", "path", "commit"),
    )
)
"""Columns about the source of a row, and figures that follow from its time."""
_log = logging.getLogger("itertime")
_LONGEST_CELL = 10_000
_MOST_NAMED = 10  # unknown columns in a warning


def read_table(path: str | Path) -> list[Cells]:
    """The rows of an iteration table, in order: column -> value, None for an empty cell; "line" -> the line
    of the file.

    Columns that are not known are ignored, and one warning names them. Raises TableError for a file that is
    not such a table: missing, other text, missing or repeated columns, ragged rows, cells of the wrong kind,
    repeated ids.
    """
    path = Path(path)
    rows: list[Cells] = []
    seen: dict[str, int] = {}
    for line, header, cells in _lines(path):
        row = _row(path, line, header, cells)
        if row["id"] is None:
            raise TableError(f"{path}:{line}: id=: is empty; give every row its own name")
        if row["id"] in seen:
            what = f"id={shown(row['id'])}: is also on line {seen[row['id']]}; rename one"
            raise TableError(f"{path}:{line}: {what}")
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
    foreign = [shown(name) for name in header if name not in _COLUMNS and name not in _INFORMATION]
    if foreign:
        more = f" and {len(foreign) - _MOST_NAMED} more" if len(foreign) > _MOST_NAMED else ""
        named = ", ".join(foreign[:_MOST_NAMED]) + more
        what = f"ignored, as no column of these names is known: {named}"
        _log.warning("warning: %s:1: %s; do they change the work of a run?", printable(str(path)), what)
    check_repeated(header, f"{path}:1", _COLUMNS)
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
            raise TableError(f"{path}:{line}: {name}={shown(value)}: {error}") from None
    return row
