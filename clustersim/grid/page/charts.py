"""The charts of the page of a grid: lines over axes of numbers, and the differences with intervals."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from clustersim.analysis import PairedDifference
from clustersim.grid.expand import text_of
from clustersim.report.frame import Axis, Chart, Panel, Series

from .document import GridDocument, Scale, axis_number

__all__ = ["charts_of", "offset_of"]

_MOST_LINES, _MOST_EFFECTS = 24, 40
_ROW_PX, _MARGIN_PX = 26, 70
_MOST_TICKS = 8


def charts_of(document: GridDocument) -> tuple[dict[str, Chart], list[str], list[str], int]:
    """All charts by id, the ids of the lines and of the effects, and how many lines are left out."""
    lines, left_out = _lines(document)
    effects = _effects(document)
    return (
        {chart.id: chart for chart in (*lines, *effects)},
        [chart.id for chart in lines],
        [chart.id for chart in effects],
        left_out,
    )


def _lines(document: GridDocument) -> tuple[list[Chart], int]:
    """A chart of each metric over each axis of numbers, for each combination of the axes without colour."""
    charts: list[Chart] = []
    left_out = 0
    coloured = () if document.colours is None else (document.colours,)
    for axis in document.varied:
        if axis in coloured or not document.numeric(axis):
            continue
        for metric, scale in document.varying.items():
            for _, fixed in document.others(axis, *coloured):
                if len(charts) >= _MOST_LINES:
                    left_out += 1
                    continue
                charts.append(_line_chart(document, metric, scale, axis, fixed, f"chart-line-{len(charts)}"))
    return charts, left_out


def _line_chart(
    document: GridDocument, metric: str, scale: Scale, axis: str, fixed: dict[str, Any], name: str
) -> Chart:
    series = []
    policies = document.levels[document.colours] if document.colours else (None,)
    levels = sorted({axis_number(value) or 0.0 for value in document.levels[axis]})
    for place, policy in enumerate(policies):
        fixed_axes = {**fixed, **({document.colours: policy} if document.colours else {})}
        points = [
            (axis_number(value), mean)
            for value in document.levels[axis]
            if (mean := document.mean(document.cell({**fixed_axes, axis: value}), metric))
        ]
        points.sort(key=lambda point: point[0] or 0.0)
        means = [mean.mean / scale.factor for _, mean in points]
        halves = [None if mean.half is None else mean.half / scale.factor for _, mean in points]
        series.append(
            Series(
                text_of(policy) if document.colours else scale.title,
                [(x or 0.0) + offset_of(levels, place, len(policies)) for x, _ in points],
                means,
                "line",
                document.looks[policy] if document.colours else 0,
                text=[f"{x:g}" for x, _ in points],
                hover=f"{{y:{scale.digits}}} {scale.unit} at {{text}}",
                low=[None if half is None else m - half for m, half in zip(means, halves, strict=True)],
                high=[None if half is None else m + half for m, half in zip(means, halves, strict=True)],
            )
        )
    where = document.label(fixed)
    caption = "Means over seeds; bars are 95 % intervals by Student's t, where there are several seeds."
    if len(policies) > 1:
        caption += " Points of one value stand side by side."
    title = f"{scale.head} over {axis}{f', {where}' if where else ''}"
    panel = Panel(Axis(scale.head, zero=True), series)
    return Chart(name, title, caption, 320, Axis(axis, ticks=_ticks(levels)), [panel])


def offset_of(levels: list[float], place: int, count: int) -> float:
    """How far the points of one of several curves stand from their value, so that bars do not hide others."""
    nearest = min((b - a for a, b in pairwise(levels)), default=1.0)
    return nearest * min(0.3, 0.05 * (count - 1)) * (place / max(1, count - 1) - 0.5)


def _ticks(levels: list[float]) -> list[tuple[float, str]] | None:
    """A tick at each value, unless there are many."""
    return [(level, f"{level:g}") for level in levels] if len(levels) <= _MOST_TICKS else None


def _effects(document: GridDocument) -> list[Chart]:
    """A chart of each metric: the relative differences from the baseline with their intervals."""
    charts = []
    for metric, scale in document.varying.items():
        rows = [c for c in document.comparisons if c.metric == metric and c.difference.relative is not None]
        if not rows or len(rows) > _MOST_EFFECTS:
            continue
        labels = [document.label(row.axes) for row in rows]
        series = [
            _effect(row.difference, label, document.series(document.cell(row.axes)))
            for row, label in zip(rows, labels, strict=True)
        ]
        caption = (
            "Paired by seed; bars are 95 % bootstrap-t intervals of the relative difference, where known. "
            "What is beyond chance goes by the difference itself, in the tables below."
        )
        height = _MARGIN_PX + _ROW_PX * len(rows)
        panel = Panel(Axis(kind="names", names=labels), series)
        axis = Axis("difference from the baseline, %", line=0)
        charts.append(Chart(f"chart-effect-{metric}", scale.title, caption, height, axis, [panel]))
    return charts


def _effect(difference: PairedDifference, label: str, look: int) -> Series:
    """A relative difference in percent with its interval, in the row of its label."""
    middle, low, high = (
        None if value is None else 100 * value
        for value in (difference.relative, difference.relative_low, difference.relative_high)
    )
    return Series("", [middle], [label], "intervals", look, hover="{x:+1} %", low=[low], high=[high])
