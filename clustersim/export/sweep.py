"""The load sweep of a grid as a figure: a metric against the load, a curve per policy, means over seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum, isfinite, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clustersim.analysis import METRICS
from clustersim.report.frame import looks_of
from itertime.errors import TableError, UnknownName, UserError
from itertime.io import open_table, shown, without_guard

from .run_figures import line_style, marker_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Point", "Sweep", "draw_sweep", "read_sweep"]

_FILE = "results.csv"
_LOADS = ("load", "trace.load")


@dataclass(frozen=True)
class Point:
    """The mean over the seeds of one cell of the grid. `half`: half the width of its 95 % interval, by
    Student's t over independent seeds; None for a single seed.
    """

    x: float
    mean: float
    half: float | None
    seeds: int


@dataclass(frozen=True)
class Sweep:
    """Curves by label (the values of all other axes), with points in order of x. `absent`: cells without a
    value of the metric. `looks`: of each curve, those of the policies if they are an axis.
    """

    x: str
    metric: str
    curves: Mapping[str, tuple[Point, ...]]
    absent: int
    looks: tuple[int, ...]


def read_sweep(folder: str | Path, metric: str, x: str | None = None) -> Sweep:
    """The curves in the results.csv of a grid, whose columns are axes, seed, status, metrics.

    `x`: the horizontal axis; by default the axis of the load. UserError for an axis or metric that the table
    does not have, TableError (file, line, column) for a cell that is not a number.
    """
    path = Path(folder) / _FILE
    if not path.is_file():
        raise UserError(f"{path}: does not exist; give the folder that `clustersim grid --out` wrote")
    with open_table(path) as table:
        axes = [name for name in table.columns[: _first(table.columns, path)] if name]
        x = x or next((name for name in axes if name in _LOADS), None)
        if x is None:
            raise UserError(
                f"{path}: no axis is called load; name one of {', '.join(axes) or 'its axes'} with --x"
            )
        for name, names in ((x, axes), (metric, [m for m in METRICS if m in table.columns])):
            if name not in names:
                raise UnknownName("axis" if names is axes else "metric", name, names)
        values: dict[str, dict[float, list[float]]] = {}
        policies: dict[str, str] = {}
        absent = 0
        other_axes = [name for name in axes if name != x]
        for line, cells in table.rows:
            if len(cells) != len(table.columns):
                raise TableError(
                    f"{path}:{line}: has {len(cells)} cells where the header has {len(table.columns)}"
                )
            row = dict(zip(table.columns, cells, strict=True))
            place = f"{path}:{line}"
            if not row[metric]:
                absent += 1
                continue
            label = ", ".join(without_guard(row[name]) for name in other_axes if row[name]) or metric
            curve = values.setdefault(label, {})
            policies.setdefault(label, without_guard(row["policy"]) if "policy" in other_axes else "")
            curve.setdefault(_number(row[x], x, place), []).append(_number(row[metric], metric, place))
    if not values:
        raise UserError(f"{path}: no cell has a value of {metric}")
    curves = {
        label: tuple(_point(place, seen) for place, seen in sorted(c.items())) for label, c in values.items()
    }
    looks = (
        looks_of([(policy, label) for label, policy in policies.items()])
        if any(policies.values())
        else range(len(curves))
    )
    return Sweep(x, metric, curves, absent, tuple(looks))


def _first(columns: Sequence[str], path: Path) -> int:
    if "seed" not in columns:
        raise UserError(f"{path}: has no column seed; it is not the table of a grid")
    return list(columns).index("seed")


def _number(cell: str, column: str, place: str) -> float:
    try:
        value = float(cell)
    except ValueError:
        value = float("nan")
    if not isfinite(value):
        raise TableError(
            f"{place}: {column}={shown(cell)}: must be a number to be drawn; choose another axis with --x"
        )
    return value


def _point(x: float, values: Sequence[float]) -> Point:
    mean, n = fsum(values) / len(values), len(values)
    if n < 2:
        return Point(x, mean, None, n)
    from scipy.special import stdtrit

    spread = sqrt(fsum((value - mean) ** 2 for value in values) / (n - 1))
    return Point(x, mean, float(stdtrit(n - 1, 0.975)) * spread / sqrt(n), n)


def draw_sweep(plt: Any, sweep: Sweep) -> Figure:
    """The curves, with their intervals as bars."""
    figure, axes = plt.subplots(figsize=(4.6, 3.2))
    scale, unit = _unit(sweep)
    for look, (label, points) in zip(sweep.looks, sweep.curves.items(), strict=True):
        style = {**line_style(look), "marker": marker_of(look)}
        half = [scale * (point.half or 0.0) for point in points]
        axes.errorbar(
            [point.x for point in points], [scale * point.mean for point in points], yerr=half,
            label=label, markersize=3.5, capsize=2.5, elinewidth=0.9, **style,
        )  # fmt: skip
    axes.set(xlabel=sweep.x.removeprefix("trace."), ylabel=unit)
    if min(point.mean for points in sweep.curves.values() for point in points) >= 0:
        axes.set_ylim(bottom=0)
    axes.legend()
    return figure


def _unit(sweep: Sweep) -> tuple[float, str]:
    """(factor, words of the axis) for a metric, from the suffix of its name."""
    name, kind, unit = sweep.metric.rpartition("_")
    words = name.replace("_", " ").replace("jct", "JCT").replace("gpu", "GPU")
    if kind and unit == "s":
        largest = max(point.mean for points in sweep.curves.values() for point in points)
        factor, unit = (3600.0, "hours") if largest >= 3600 else (1.0, "seconds")
        return 1 / factor, f"{words}, {unit}"
    if kind and unit == "ratio":
        return 100.0, f"{words}, %"
    return 1.0, sweep.metric.replace("_", " ")
