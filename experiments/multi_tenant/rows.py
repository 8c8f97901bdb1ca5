"""What the page of the multi-tenant study states of its cells: comparisons, kept as a CSV file."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

BY_RULE, TUNED, SMALL, BEST = "by rule", "tuned", "best small plan", "vtrain-aware"
"""The baselines, and the scheduler that is compared with them."""
COUNTS = "GPU counts of 3 x 2^k nodes as well"
PAPER = "the rules of vTrain's artifact, 800 Gb/s"
GRIDS_OF = {COUNTS: "vtrain_counts", PAPER: "vtrain_paper"}
"""The grids of definitions that have one of their own."""
"""The definition that has a grid of its own."""


@dataclass(frozen=True)
class Row:
    """A paired comparison, over seeds, of the cells at `axes` with those that differ by `against`.

    `relative` = value / base - 1, within its 95 % interval; `difference` = value - base likewise, in the unit
    of the metric. `seed_low`, `seed_high`: smallest and largest value / base of a single seed. None where
    undefined.
    """

    grid: str
    axes: Mapping[str, str]
    against: str
    metric: str
    pairs: int
    base: float | None
    value: float | None
    relative: float | None
    relative_low: float | None
    relative_high: float | None
    difference: float | None
    low: float | None
    high: float | None
    p: float | None
    seed_low: float | None
    seed_high: float | None


class Rows:
    """Rows by what they compare."""

    def __init__(self, rows: Iterable[Row]):
        self.all = list(rows)
        self._index = {(r.grid, r.metric, r.against, frozenset(r.axes.items())): r for r in self.all}

    def find(self, grid: str, metric: str, against: str, axes: Mapping[str, str]) -> Row | None:
        return self._index.get((grid, metric, against, frozenset(axes.items())))

    def of(self, definition: str, workload: str, metric: str, against: str = BY_RULE) -> Row | None:
        """vtrain-aware under a definition, against a baseline."""
        axes = {"definition": definition, "workload": workload, "scheduler": BEST}
        if definition in GRIDS_OF:
            del axes["definition"]
            return self.find(GRIDS_OF[definition], metric, against, axes)
        return self.find("vtrain_definitions", metric, against, axes)

    def load(
        self, jobs: str, load: str, metric: str, admission: str = "with", against: str = BY_RULE
    ) -> Row | None:
        """vtrain-aware at a load, against a baseline."""
        axes = {"trace.jobs": jobs, "trace.load": load, "admission": admission, "scheduler": BEST}
        return self.find("vtrain_loads", metric, against, axes)

    def values(self, grid: str, axis: str) -> list[str]:
        """The values of an axis, in the order of the grid."""
        return list(dict.fromkeys(r.axes[axis] for r in self.all if r.grid == grid and axis in r.axes))


# CSV files


def as_csv(kind: type, rows: Iterable[Any]) -> str:
    """Rows as CSV: six digits, axes as `a=1; b=2`, nothing for None."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = [f.name for f in fields(kind)]
    writer.writerow(names)
    writer.writerows([cell(getattr(row, name)) for name in names] for row in rows)
    return text.getvalue()


def cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Mapping):
        return "; ".join(f"{k}={v}" for k, v in value.items())
    return str(value)


def read_rows(path: Path) -> list[Row]:
    """The rows of comparisons.csv."""
    kinds: Mapping[str, Callable[[str], Any]] = {
        "str": str,
        "int": int,
        "Mapping[str, str]": lambda text: dict(part.split("=", 1) for part in text.split("; ")),
        "float | None": lambda text: float(text) if text else None,
    }
    with path.open(newline="", encoding="utf-8") as file:
        read = list(csv.DictReader(file))
    return [Row(**{f.name: kinds[str(f.type)](row[f.name]) for f in fields(Row)}) for row in read]


Speeds = Mapping[tuple[str, str, int], float]
"""Iterations per second by planner, model and GPUs."""
