"""ElasticFlow's throughput tables (Gu et al., ASPLOS 2023): measured speeds of DNN jobs by GPU count."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from itertime.errors import TableError, UserError
from itertime.io import open_table, replacing, sha256, shown
from traces.native import COLUMNS

from .cells import rate

__all__ = ["TableRow", "read_throughputs", "write_throughputs"]

T = TypeVar("T")


class TableRow(NamedTuple):
    """A measured speed, as a row of the throughput table that `clustersim` reads."""

    model: str
    global_batch: int
    gpus: int
    iterations_per_s: float


def read_throughputs(folder: str | Path) -> tuple[list[TableRow], dict[str, Any]]:
    """Read a folder of `MODEL.csv` files: `global_batch_size,1,2,4,...` with iterations/s in the cells.

    Returns the rows and a report. An empty, NaN or zero cell means that the job does not run on that many
    GPUs; the report counts these cells, which give no row. Raises UserError for a folder without such files,
    TableError for a bad cell.
    """
    folder = Path(folder)
    files = sorted(folder.glob("*.csv")) if folder.is_dir() else []
    if not files:
        raise UserError(f"{folder}: not a folder with MODEL.csv files; name the folder of throughput tables")
    rows: list[TableRow] = []
    cells = 0
    for path in files:
        speeds, seen = _throughputs_of(path)
        rows += speeds
        cells += seen
    if not rows:
        raise TableError(f"{folder}: no file in it states a speed above 0")
    report: dict[str, Any] = {
        "format": "elasticflow-throughputs",
        "files": [{"file": path.name, "sha256": sha256(path)} for path in files],
        "counts": {"cells": cells, "rows": len(rows), "cells_without_speed": cells - len(rows)},
        "assumptions": [
            "cells are iterations/s of the global batch on that many GPUs",
            "an empty, NaN or zero cell means that the job does not run there; it gives no row",
        ],
    }
    return rows, report


def _throughputs_of(path: Path) -> tuple[list[TableRow], int]:
    rows: list[TableRow] = []
    seen: dict[int, int] = {}
    cells = 0
    with open_table(path) as table:
        if table.columns[:1] != ["global_batch_size"]:
            raise TableError(f"{path}:1: the first column must be global_batch_size, the others GPU counts")
        counts = [_cell(path, 1, "header", name, COLUMNS["gpus"]) for name in table.columns[1:]]
        for line, row in table.rows:
            if len(row) != len(table.columns):
                lengths = f"has {len(row)} cells where the header has {len(table.columns)}"
                raise TableError(f"{path}:{line}: {lengths}; complete the row")
            batch = _cell(path, line, "global_batch_size", row[0], COLUMNS["global_batch"])
            if batch in seen:
                again = f"is already on line {seen[batch]}; keep one"
                raise TableError(f"{path}:{line}: global_batch_size={batch}: {again}")
            seen[batch] = line
            for n, cell in zip(counts, row[1:], strict=True):
                speed = _cell(path, line, str(n), cell or "0", rate)
                if speed > 0:
                    rows.append(TableRow(model=path.stem, global_batch=batch, gpus=n, iterations_per_s=speed))
            cells += len(counts)
    return rows, cells


def _cell(path: Path, line: int, name: str, text: str, parse: Callable[[str], T]) -> T:
    try:
        return parse(text)
    except ValueError as error:
        raise TableError(f"{path}:{line}: {name}={shown(text)}: {error}") from None


def write_throughputs(rows: Iterable[TableRow], path: str | Path) -> None:
    """Write a throughput table: CSV with the columns model, global_batch, gpus, iterations_per_s."""
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(TableRow._fields)
        writer.writerows((*row[:3], repr(row.iterations_per_s)) for row in rows)
