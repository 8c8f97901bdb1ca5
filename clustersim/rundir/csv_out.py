"""Records as rows of text: the tables of a run folder (format: see `clustersim.rundir`).

Blocks of records are turned into text column by column, so that a value that many rows share is formatted
once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any, get_type_hints

from clustersim.cluster import Placement, SharedPlacement
from clustersim.records import (
    EventRecord,
    Exact,
    Fields,
    Gpus,
    JobRecord,
    PlanRecord,
    Snapshot,
    all_equal,
    by_field,
)
from itertime.io import with_guard

__all__ = [
    "EVENTS",
    "JOBS",
    "PLANS",
    "USAGE",
    "Column",
    "columns_stated",
    "csv_text",
    "guarded_text",
    "header_of",
    "lines_of",
    "placement_text",
    "required",
    "table_of",
]

_BLOCK = 2000  # records that are turned into text at once
_OPTIONAL = (
    "gpu_fraction", "service", "phases", "cpus_per_gpu", "host_gb_per_gpu", "plan_options", "spread_low_s",
    "spread_high_s", "imbalance_s", "eligible_s", "held_s", "requeues",
)  # fmt: skip
_BLANKS: dict[Any, str | float] = {str: "", float: 0.0}
_NEEDS_QUOTES = re.compile(r'[,"\r\n]')


@dataclass(frozen=True)
class Column:
    """One field of a record: its name, its type, and the CSV cells of a block of its values.

    An `optional` column is left out of a table in which every value is `blank`.
    """

    name: str
    kind: Any
    to_cells: Callable[[Sequence[Any]], Sequence[str]]
    optional: bool = False

    @property
    def blank(self) -> str | float | None:
        """The value that an absent column stands for."""
        return _BLANKS.get(self.kind)


def csv_text(columns: Sequence[Column], records: Iterable[Any]) -> str:
    """A header and one line per record, each with a line feed at its end."""
    records = list(records)
    columns = [c for c in columns if not c.optional or any(getattr(r, c.name) != c.blank for r in records)]
    lines, remaining_records = [header_of(columns)], iter(records)
    names = [column.name for column in columns]
    while block := list(islice(remaining_records, _BLOCK)):
        lines += lines_of(columns, by_field(block, names))
    return "\n".join(lines) + "\n"


def header_of(columns: Sequence[Column]) -> str:
    return ",".join(column.name for column in columns)


def lines_of(columns: Sequence[Column], fields: Fields) -> list[str]:
    """One line per record, without line feeds."""
    return list(map(",".join, zip(*[_cells(column, fields[column.name]) for column in columns], strict=True)))


def _cells(column: Column, values: Sequence[Any]) -> Sequence[str]:
    if all_equal(values):
        return [*column.to_cells(values[:1])] * len(values)
    return column.to_cells(values)


def guarded_text(value: str) -> str:
    """Text as a CSV cell: quoted if necessary, and never a formula to a spreadsheet.

    >>> guarded_text("=1+1"), guarded_text("a,b")
    ("'=1+1", '"a,b"')
    """
    guarded = with_guard(value)
    if _NEEDS_QUOTES.search(guarded):
        return '"' + guarded.replace('"', '""') + '"'
    return guarded


_MARKS = (",", '"', "\r", "\n", *(f"\0{first}" for first in "=+-@\t'"))
"""Texts joined by \\0 in which none of these occurs need neither quotes nor a guard."""


def _texts(values: Sequence[str]) -> list[str]:
    together = "\0".join(("", *values))
    if any(mark in together for mark in _MARKS):
        return [guarded_text(value) for value in values]
    return list(values)


def _numbers(values: Sequence[float | None]) -> list[str]:
    return ["" if value is None else f"{value:z.6f}".rstrip("0").rstrip(".") for value in values]


def _each(write: Callable[[Any], str]) -> Callable[[Sequence[Any]], list[str]]:
    """Formats each distinct value once."""

    def cells(values: Sequence[Any]) -> list[str]:
        cell_of_value = {value: write(value) for value in dict.fromkeys(values)}
        return [cell_of_value[value] for value in values]

    return cells


def _exact(value: float) -> str:
    return repr(value + 0.0).removesuffix(".0")  # 0.0 and -0.0 are equal, and so is their text


def _integer(value: int | None) -> str:
    return "" if value is None else str(value)


def _truth(value: bool | None) -> str:
    return "" if value is None else "true" if value else "false"


@lru_cache(maxsize=4096)
def placement_text(placement: Placement) -> str:
    """`0-3x8;7x4`: 8 GPUs on each of the nodes 0 to 3, 4 on node 7. `7x1#2:0.25`: a quarter of a GPU on node
    7, number 2 of those that jobs share there.
    """
    runs: list[list[int]] = []
    for node, count in placement:
        if runs and runs[-1][1] + 1 == node and runs[-1][2] == count:
            runs[-1][1] = node
        else:
            runs.append([node, node, count])
    spots = ";".join(f"{a}x{count}" if a == b else f"{a}-{b}x{count}" for a, b, count in runs)
    if isinstance(placement, SharedPlacement):
        return f"{spots}#{placement.number}:{_numbers([placement.share])[0]}"
    return spots


_WRITERS: dict[Any, Callable[[Sequence[Any]], list[str]]] = {
    str: _texts,
    int: _each(_integer),
    int | None: _each(_integer),
    float: _numbers,
    float | None: _numbers,
    Exact: _each(_exact),
    Gpus: _each(lambda value: _numbers([value])[0]),
    bool | None: _each(_truth),
    Placement: _each(placement_text),
}


def table_of(record: type, first_columns: Sequence[str] = ()) -> tuple[Column, ...]:
    """The columns of a class of records: its fields, those of `first_columns` in front."""
    kinds = get_type_hints(record)
    order = [*first_columns, *(name for name in kinds if name not in first_columns)]
    return tuple(Column(name, kinds[name], _WRITERS[kinds[name]], name in _OPTIONAL) for name in order)


def required(columns: Sequence[Column]) -> tuple[Column, ...]:
    """The columns that every table has."""
    return tuple(column for column in columns if not column.optional)


JOBS = table_of(
    JobRecord,
    first_columns=(
        "job_id", "tenant", "model", "state", "submit_s", "start_s", "finish_s", "jct_s", "queue_s",
        "gpu_seconds", "deadline_s", "deadline_met", "preemptions", "resizes", "restarts", "lost_s",
    ),
)  # fmt: skip
"""The columns of job records; the optional ones come last."""


def columns_stated(jobs: Fields) -> int:
    """How many of `JOBS` a table of these records needs: up to the last one that some record states."""
    return max(
        place
        for place, column in enumerate(JOBS, 1)
        if not column.optional or jobs[column.name].count(column.blank) < len(jobs[column.name])
    )


EVENTS = table_of(EventRecord)
USAGE = table_of(Snapshot)
PLANS = table_of(PlanRecord)
