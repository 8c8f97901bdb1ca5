"""Throughput tables: measured speeds of jobs.

The columns are `model,global_batch,gpus,iterations_per_s`, and `gpu_type` for clusters of several GPU types.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from itertime.errors import TableError
from itertime.io import Table, check_repeated, open_table, shown
from traces.native import number, whole

__all__ = ["Throughputs", "read_throughput_table", "throughputs_by_type"]

TABLE_COLUMNS = ("model", "global_batch", "gpus", "iterations_per_s")
_TYPE = "gpu_type"
_LEAST_RATE = 1e-12  # one iteration in 30,000 years

Value = TypeVar("Value", int, float, str)
Throughputs = Mapping[tuple[str, int], Mapping[int, float]]
"""{(model, global batch): {GPUs: iterations/s}}"""


def read_throughput_table(path: str | Path) -> dict[tuple[str, int], dict[int, float]]:
    """Read a table: {(model, global batch): {GPUs: iterations/s}}. If several GPU types state a rate for the
    same GPU count, that of the first type in the file counts.

    An empty rate, or one of 0, means "does not run there". Other columns are ignored. UserError for a file
    that cannot be read, TableError with file, line and column for values that cannot be used.
    """
    merged: dict[tuple[str, int], dict[int, float]] = {}
    for rates in _read(path).values():
        for key, speeds in rates.items():
            merged_speeds = merged.setdefault(key, {})
            merged_speeds.update({gpus: rate for gpus, rate in speeds.items() if gpus not in merged_speeds})
    return merged


def throughputs_by_type(path: str | Path, gpu_types: tuple[str, ...]) -> dict[str, Throughputs]:
    """The table's rates on each of `gpu_types`; rows of other types are ignored.

    Raises as `read_throughput_table`, and TableError if the table has no column for the GPU type although
    there are several types.
    """
    by_type = _read(path)
    if "" in by_type:
        if len(gpu_types) > 1:
            types = ", ".join(gpu_types)
            raise TableError(
                f"{path}:1: missing column {_TYPE}; the cluster has {types}: state the type of each rate"
            )
        return {gpu_types[0]: by_type[""]}
    return {name: by_type.get(name, {}) for name in gpu_types}


def _read(path: str | Path) -> dict[str, dict[tuple[str, int], dict[int, float]]]:
    """The rates by GPU type; the type is "" in a table without that column."""
    by_type: dict[str, dict[tuple[str, int], dict[int, float]]] = {}
    with open_table(path) as table:
        _check_columns(table)
        for line, cells in table.rows:
            place = f"{path}:{line}"
            if len(cells) != len(table.columns):
                fault = f"has {len(cells)} cells where the header has {len(table.columns)}"
                raise TableError(f"{place}: {fault}; look for a stray comma")
            row = dict(zip(table.columns, cells, strict=True))
            gpu_type = _cell(row, _TYPE, _name, place) if _TYPE in row else ""
            model = _cell(row, "model", _name, place)
            batch, gpus = (_cell(row, column, _count, place) for column in ("global_batch", "gpus"))
            speeds = by_type.setdefault(gpu_type, {}).setdefault((model, batch), {})
            if gpus in speeds:
                fault = f"stated twice for {shown(model)} with global batch {batch}"
                raise TableError(f"{place}: gpus={gpus}: {fault}; keep one")
            speeds[gpus] = _cell(row, "iterations_per_s", _rate, place)
    if not by_type:
        raise TableError(f"{path}: holds no rows")
    return by_type


def _check_columns(table: Table) -> None:
    missing = [column for column in TABLE_COLUMNS if column not in table.columns]
    if missing:
        fault = f"missing column {', '.join(missing)}"
        raise TableError(f"{table.path}:1: {fault}; a throughput table has {','.join(TABLE_COLUMNS)}")
    check_repeated(table.columns, f"{table.path}:1", (*TABLE_COLUMNS, _TYPE))


def _cell(row: Mapping[str, str], column: str, parse: Callable[[str], Value], place: str) -> Value:
    try:
        return parse(row[column].strip())
    except ValueError as error:
        raise TableError(f"{place}: {column}={shown(row[column])}: {error}") from None


def _name(text: str) -> str:
    if not text:
        raise ValueError("is empty; give a name")
    return text


def _count(text: str) -> int:
    value = whole(text)
    if value < 1:
        raise ValueError("must be a whole number of at least 1")
    return value


def _rate(text: str) -> float:
    rate = number(text or "0")
    if rate < 0 or 0 < rate < _LEAST_RATE:
        raise ValueError("must be a finite number, 0 where the job cannot run")
    return rate
