"""The charts of the page of a grid: lines over axes of numbers, and the differences with intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from clustersim.analysis import PairedDifference
from clustersim.grid.expand import text_of
from clustersim.report.frame import Axis, Chart, Panel, Series
from clustersim.report.numbers import MOST_PERCENT

from .document import GridDocument, Scale, axis_number

__all__ = ["GridCharts", "charts_of", "offset_of"]

_MOST_LINES, _MOST_EFFECTS = 24, 40
_ROW_PX, _MARGIN_PX = 26, 70
_MOST_TICKS = 8
_MEANS = "Means over seeds; bars are 95 % intervals by Student's t, where there are several seeds."


@dataclass(frozen=True)
class GridCharts:
    """The charts of a grid by id, and which are shown where. `lead`: the chart above all others, empty if
    there is none. `lines`: over axes of numbers; `values`: where no axis holds numbers; `effects`:
    differences from the baseline. `left_out`: how many lines are not drawn.
    """

    by_id: Mapping[str, Chart]
    lead: str
    lines: Sequence[str]
    values: Sequence[str]
    effects: Sequence[str]
    left_out: int


def charts_of(document: GridDocument) -> GridCharts:
    """All charts of the page. The first one of the values, else of the differences, leads."""
    lines, left_out = _lines(document)
    values = [] if lines else _values(document)
    effects = _effects(document)
    by_id = {chart.id: chart for chart in (*lines, *values, *effects)}
    lead = next(iter(by_id), "")

    def below(charts: Sequence[Chart]) -> list[str]:
        return [chart.id for chart in charts if chart.id != lead]

    return GridCharts(by_id, lead, below(lines), below(values), below(effects), left_out)


def _values(document: GridDocument) -> list[Chart]:
    """A chart of each metric: the means of the cells with their intervals, a row for each cell."""
    cells = list(document.cells)
    if len(cells) > _MOST_EFFECTS:
        return []
    charts = []
    for metric, scale in document.varying.items():
        means = [(values, document.mean(values, metric)) for values in cells]
        rows = [(values, mean) for values, mean in means if mean is not None]
        labels = [
            document.label(dict(zip(document.axes, values, strict=True))) or document.name
            for values, _ in rows
        ]
        series = [
            _interval(
                label, document.series(values),
                [scale.number(value) for value in (mean.mean, mean.low, mean.high)],
                f"{{x:{scale.digits}}} {scale.unit}",
            )
            for (values, mean), label in zip(rows, labels, strict=True)
        ]  # fmt: skip
        least = min(mean.mean for _, mean in rows)
        axis = Axis(scale.head, low=0 if least >= 0 else None)
        panel = Panel(Axis(kind="names", names=labels), series)
        height = _MARGIN_PX + _ROW_PX * len(rows)
        charts.append(Chart(f"chart-value-{metric}", scale.title, _MEANS, height, axis, [panel]))
    return charts


def _interval(label: str, look: int, numbers: Sequence[float | None], hover: str) -> Series:
    """A middle with its least and its greatest value, in the row of its label."""
    middle, low, high = numbers
    return Series("", [middle], [label], "intervals", look, hover=hover, low=[low], high=[high])


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
        series.append(
            Series(
                text_of(policy) if document.colours else scale.title,
                [(x or 0.0) + offset_of(levels, place, len(policies)) for x, _ in points],
                means,
                "line",
                document.looks[policy] if document.colours else 0,
                text=[f"{x:g}" for x, _ in points],
                hover=f"{{y:{scale.digits}}} {scale.unit} at {{text}}",
                low=[scale.number(mean.low) for _, mean in points],
                high=[scale.number(mean.high) for _, mean in points],
            )
        )
    where = document.label(fixed)
    caption = _MEANS
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
    """A chart of each metric: the differences from the baseline with their intervals, relative to it. Where
    the baseline is so close to zero that this says nothing, in the unit of the metric.
    """
    charts = []
    for metric, scale in document.varying.items():
        rows = [c for c in document.comparisons if c.metric == metric and c.difference.difference is not None]
        if not rows or len(rows) > _MOST_EFFECTS:
            continue
        is_relative = all(
            c.difference.relative is not None and 100 * c.difference.relative <= MOST_PERCENT for c in rows
        )
        labels = [document.label(row.axes) for row in rows]
        series = [
            _interval(
                label, document.series(document.cell(row.axes)),
                _effect_numbers(row.difference, is_relative, scale),
                "{x:+1} %" if is_relative else f"{{x:+{scale.digits}}} {scale.unit}",
            )
            for row, label in zip(rows, labels, strict=True)
        ]  # fmt: skip
        caption = (
            "Paired by seed; bars are 95 % bootstrap-t intervals of the relative difference, where known. "
            "What is beyond chance goes by the difference itself, in the tables below."
            if is_relative
            else "Paired by seed; bars are 95 % bootstrap-t intervals, where known."
        )
        height = _MARGIN_PX + _ROW_PX * len(rows)
        panel = Panel(Axis(kind="names", names=labels), series)
        unit = "%" if is_relative else scale.unit
        axis = Axis(f"difference from the baseline{f', {unit}' if unit else ''}", line=0)
        charts.append(Chart(f"chart-effect-{metric}", scale.title, caption, height, axis, [panel]))
    return charts


def _effect_numbers(difference: PairedDifference, is_relative: bool, scale: Scale) -> list[float | None]:
    """A difference with the ends of its interval: in percent, or in the unit of the metric."""
    numbers = (
        (difference.relative, difference.relative_low, difference.relative_high)
        if is_relative
        else (difference.difference, difference.low, difference.high)
    )
    factor = 0.01 if is_relative else scale.factor
    return [None if number is None else number / factor for number in numbers]
