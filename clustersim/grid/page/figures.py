"""Figures of a grid for papers, with the means, intervals, units and looks of its page.

Bars stand over the values of an axis, lines over an axis of numbers, a heat map over two axes. Bars and lines
of one policy have its colour, as on every page.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite, radians, sin
from typing import TYPE_CHECKING, Any

from clustersim.export import line_style, marker_of
from clustersim.grid.comparisons import Result
from clustersim.grid.expand import Scalar, text_of
from clustersim.grid.gridfile import NUMERIC_METRICS
from clustersim.report.frame import looks_of
from itertime.errors import UnknownName, UserError
from itertime.io.figures import figure_size

from .charts import offset_of
from .document import GridDocument, Mean, Scale, axis_number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["GRID_KINDS", "FigureSpec", "absent_cells", "grid_figure", "runs_of_figure"]

GRID_KINDS = ("bars", "lines", "heat-map")
_LOADS = ("load", "trace.load")
_MOST_SERIES = 24
_HATCHES = ("", "///", "...", "xxx", "\\\\\\", "++", "oo", "--")
_NAME_INCHES = 0.075
"""About the width of a letter of a label."""
_MOST_LETTERS = 32
_LINE_INCHES = 0.12
"""About the height of a line of labels."""

Values = tuple[Scalar, ...]
Draw = Callable[[Any], "Figure"]


@dataclass(frozen=True)
class FigureSpec:
    """What a figure of a grid shows.

    `x`: the horizontal axis; by default the load where it varies, else the policy, else the first axis that
    varies. `y`: the vertical axis of a heat map. `kind`: one of `GRID_KINDS`; by default a heat map with a
    `y`, lines over numbers, bars over names. `where`: values of axes to which the figure is confined.
    `interval`: draw 95 % intervals. `width`: inches, or a name of `itertime.io.figures.WIDTHS`; by default
    that of a column. `metric` may also name a figure of recorded runs, of `export.KINDS`.
    """

    metric: str = "jct_mean_s"
    x: str | None = None
    y: str | None = None
    kind: str | None = None
    where: Mapping[str, Scalar] = field(default_factory=dict)
    interval: bool = True
    width: str | float | None = None


def grid_figure(document: GridDocument, spec: FigureSpec) -> Draw:
    """The function that draws the figure, after everything has been checked. UnknownName, UserError."""
    if spec.metric not in NUMERIC_METRICS:
        raise UnknownName("metric", spec.metric, NUMERIC_METRICS)
    document = replace(_confined(document, spec.where), metrics=(spec.metric,))
    if spec.metric not in document.scales:
        raise UserError(f"{document.folder}: no cell has a value of {spec.metric}")
    x, kind = _axis_and_kind(document, spec)
    if kind == "heat-map":
        return _heat_map(document, spec, x)
    series = [fixed for _, fixed in document.others(x)]
    if len(series) > _MOST_SERIES:
        raise UserError(
            f"{len(series)} {kind} over {x} are too many to tell apart; name values of the other axes with "
            f"where ({', '.join(name for name in document.varied if name != x)})"
        )
    return (_lines if kind == "lines" else _bars)(document, spec, x, series)


def runs_of_figure(document: GridDocument, spec: FigureSpec) -> Sequence[Result]:
    """The cells of which a figure of recorded runs is drawn: done, and differing in policy and seed alone.

    UserError where another axis varies, and where no cell has records.
    """
    document = _confined(document, spec.where)
    open_axes = [name for name in document.varied if name != "policy"]
    if open_axes:
        raise UserError(f"{spec.metric}: name a value of {', '.join(open_axes)} with where")
    results = [result for result in document.results if result.has_records]
    if not results:
        raise UserError(f"{document.folder}: holds no records of such runs; run the grid with keep: runs")
    return results


def absent_cells(document: GridDocument, spec: FigureSpec) -> int:
    """How many cells of the figure have no value of its metric."""
    confined = _confined(document, spec.where)
    return sum(confined.mean(values, spec.metric) is None for values in confined.cells)


def _confined(document: GridDocument, where: Mapping[str, Scalar]) -> GridDocument:
    for name, value in where.items():
        if name not in document.axes:
            raise UnknownName("axis", name, document.axes)
        if not any(_is_value(level, value) for level in document.levels[name]):
            raise UnknownName(f"value of {name}", text_of(value), list(map(text_of, document.levels[name])))
    results = tuple(
        result
        for result in document.results
        if all(_is_value(result.axes[name], value) for name, value in where.items())
    )
    return replace(document, results=results, comparisons=())


def _is_value(level: Scalar, value: Scalar) -> bool:
    """Whether a value that a user names is this one: 1 and 1.0 are equal."""
    number = axis_number(value)
    return text_of(level) == text_of(value) or (number is not None and axis_number(level) == number)


def _axis_and_kind(document: GridDocument, spec: FigureSpec) -> tuple[str, str]:
    kind = spec.kind or ("heat-map" if spec.y is not None else None)
    if kind is not None and kind not in GRID_KINDS:
        raise UnknownName("kind of plot", kind, GRID_KINDS)
    x = spec.x or _default_axis(document, kind, spec.y)
    for axis in (x, spec.y):
        if axis is not None and axis not in document.axes:
            raise UnknownName("axis", axis, document.axes)
    if x == spec.y:
        raise UserError(f"x and y are both {x}; a heat map needs two axes")
    kind = kind or ("lines" if document.numeric(x) and x in document.varied else "bars")
    if kind == "lines" and not document.numeric(x):
        level = next(level for level in document.levels[x] if axis_number(level) is None)
        raise UserError(f"{x}={text_of(level)}: is not a number, and lines need numbers; draw bars instead")
    return x, kind


def _default_axis(document: GridDocument, kind: str | None, y: str | None) -> str:
    numbers = [name for name in document.varied if document.numeric(name)]
    loads = [name for name in numbers if name in _LOADS]
    preferred = ["policy"] if kind == "bars" else [*loads, *numbers, "policy"]
    candidates = [name for name in preferred if name in document.varied]
    candidates += [*document.varied, *document.axes]
    axis = next((name for name in candidates if name != y), None)
    if axis is None:
        raise UserError(f"{document.folder}: the grid has no axis to draw over")
    return axis


def _lines(document: GridDocument, spec: FigureSpec, x: str, series: Sequence[Mapping[str, Scalar]]) -> Draw:
    scale = document.scales[spec.metric]
    looks = _looks(document, series)
    levels = sorted(document.levels[x], key=lambda level: axis_number(level) or 0.0)
    numbers = [axis_number(level) or 0.0 for level in levels]

    def draw(plt: Any) -> Figure:
        figure, axes = plt.subplots(figsize=figure_size(spec.width or "column", 0.7))
        for i, (fixed, look) in enumerate(zip(series, looks, strict=True)):
            offset = offset_of(numbers, i, len(series)) if spec.interval else 0.0
            means = [_mean(document, spec, {**fixed, x: level}) for level in levels]
            points = [(n + offset, mean) for n, mean in zip(numbers, means, strict=True) if mean is not None]
            axes.errorbar(
                [place for place, _ in points], [mean.mean / scale.factor for _, mean in points],
                yerr=_halves([mean for _, mean in points], scale, spec.interval),
                label=_shortened(document.label(fixed)) or scale.title, marker=marker_of(look),
                markersize=3.5, capsize=2.5, elinewidth=0.9, **line_style(look),
            )  # fmt: skip
        axes.set(xlabel=document.short_names[x], ylabel=scale.head)
        _from_zero(axes, _means_of(document, spec))
        if len(series) > 1:
            axes.legend()
        return figure

    return draw


def _bars(document: GridDocument, spec: FigureSpec, x: str, series: Sequence[Mapping[str, Scalar]]) -> Draw:
    """Bars side by side over each value of `x`. Over policies, a bar has the colour of its policy, and
    hatches tell the series apart.
    """
    scale = document.scales[spec.metric]
    levels = document.levels[x]
    names = [_shortened(text_of(level)) for level in levels]
    is_by_policy = x == document.colours
    hatches = [_HATCHES[i % len(_HATCHES)] if is_by_policy else "" for i in range(len(series))]
    looks = [document.looks[level] for level in levels] if is_by_policy else _looks(document, series)
    colours = [line_style(look)["color"] for look in looks]
    bar_width = 0.8 / len(series)

    def draw(plt: Any) -> Figure:
        figure, axes = plt.subplots(figsize=figure_size(spec.width or "column", 0.65))
        for place, fixed in enumerate(series):
            offset = (place - (len(series) - 1) / 2) * bar_width
            bars: list[tuple[float, Mean, str]] = []
            for i, level in enumerate(levels):
                mean = _mean(document, spec, {**fixed, x: level})
                if mean is None:
                    axes.annotate("–", (i + offset, 0), ha="center", va="bottom")
                else:
                    bars.append((i + offset, mean, colours[i if is_by_policy else place]))
            axes.bar(
                [seat for seat, _, _ in bars], [mean.mean / scale.factor for _, mean, _ in bars],
                width=bar_width, color=[colour for _, _, colour in bars], edgecolor="white", linewidth=0.5,
                yerr=_halves([mean for _, mean, _ in bars], scale, spec.interval), capsize=2,
                error_kw={"elinewidth": 0.9}, hatch=hatches[place],
            )  # fmt: skip
        inches_of_level = (figure.get_size_inches()[0] - 0.7) / len(levels)
        is_crowded = max(map(len, names)) * _NAME_INCHES > inches_of_level
        degrees = 30 if inches_of_level > _LINE_INCHES / sin(radians(30)) else 90
        turned = {"rotation": degrees, "ha": "right", "rotation_mode": "anchor"} if is_crowded else {}
        if degrees == 90 and is_crowded:
            turned["va"] = "center"
        axes.set_xticks(range(len(levels)), names, **turned)
        axes.set_xlim(-0.6, len(levels) - 0.4)
        axes.set(xlabel="" if is_by_policy else document.short_names[x], ylabel=scale.head)
        axes.grid(visible=False, axis="x")
        _from_zero(axes, _means_of(document, spec))
        if len(series) > 1:
            fills = ["#6b6f76"] * len(series) if is_by_policy else colours
            _legend(plt, figure, [_shortened(document.label(fixed)) for fixed in series], fills, hatches)
        return figure

    return draw


def _legend(
    plt: Any, figure: Any, labels: Sequence[str], fills: Sequence[str], hatches: Sequence[str]
) -> None:
    """The series above the bars, which fill the axes."""
    patches = [
        plt.Rectangle((0, 0), 1, 1, edgecolor="white", facecolor=fill, hatch=hatch)
        for fill, hatch in zip(fills, hatches, strict=True)
    ]
    inches_of_label = 0.5 + max(map(len, labels)) * _NAME_INCHES
    columns = max(1, int(figure.get_size_inches()[0] / inches_of_label))
    figure.legend(patches, labels, loc="outside upper center", ncols=min(len(labels), columns))


def _heat_map(document: GridDocument, spec: FigureSpec, x: str) -> Draw:
    scale = document.scales[spec.metric]
    y = spec.y or next((name for name in document.varied if name != x), None)
    if y is None:
        raise UserError("a heat map needs two axes that vary; name the second with y")
    open_axes = [name for name in document.varied if name not in (x, y)]
    if open_axes:
        raise UserError(f"a heat map has two axes; name a value of {', '.join(open_axes)} with where")
    fixed = next(others for _, others in document.others(x, y))
    across, down = document.levels[x], document.levels[y]
    means = [[_mean(document, spec, {**fixed, x: column, y: row}) for column in across] for row in down]

    def draw(plt: Any) -> Figure:
        values = [
            [float("nan") if mean is None else mean.mean / scale.factor for mean in row] for row in means
        ]
        figure, axes = plt.subplots(
            figsize=figure_size(spec.width or "column", min(1.2, 0.3 + 0.1 * len(down)))
        )
        image = axes.imshow(values, cmap="cividis_r", aspect="auto")
        for i, row in enumerate(means):
            for k, mean in enumerate(row):
                text = scale.text(None if mean is None else mean.mean)
                is_dark = mean is not None and image.norm(values[i][k]) > 0.55
                axes.text(k, i, text, ha="center", va="center", color="white" if is_dark else "black")
        axes.set_xticks(range(len(across)), [_shortened(text_of(level)) for level in across])
        axes.set_yticks(range(len(down)), [_shortened(text_of(level)) for level in down])
        axes.set(xlabel=document.short_names[x], ylabel="" if y == "policy" else document.short_names[y])
        axes.grid(visible=False)
        figure.colorbar(image, label=scale.head)
        return figure

    return draw


def _shortened(label: str) -> str:
    """A label whose middle is left out where it is too long for a column."""
    return (
        label
        if len(label) <= _MOST_LETTERS
        else f"{label[: _MOST_LETTERS // 2]}…{label[-_MOST_LETTERS // 2 :]}"
    )


def _looks(document: GridDocument, series: Sequence[Mapping[str, Scalar]]) -> list[int]:
    """The look of each series: that of its policy, which a second series of the policy cannot have, too."""
    if document.colours is None:
        return list(range(len(series)))
    policies = [text_of(fixed[document.colours]) for fixed in series]
    return looks_of([(name, document.label(fixed)) for name, fixed in zip(policies, series, strict=True)])


def _mean(document: GridDocument, spec: FigureSpec, by_axis: Mapping[str, Scalar]) -> Mean | None:
    return document.mean(document.cell(by_axis), spec.metric)


def _means_of(document: GridDocument, spec: FigureSpec) -> list[Mean]:
    means = (document.mean(values, spec.metric) for values in document.cells)
    return [mean for mean in means if mean is not None]


def _halves(means: Sequence[Mean], scale: Scale, interval: bool) -> list[float] | None:
    """Half the widths of the intervals; 0 for a single seed."""
    if not interval or all(mean.half is None for mean in means):
        return None
    return [(mean.half or 0.0) / scale.factor for mean in means]


def _from_zero(axes: Any, means: Sequence[Mean]) -> None:
    """Begin at 0 unless a mean is negative: heights are compared, and the part of an interval below what the
    metric can be says nothing.
    """
    if all(mean.mean >= 0 for mean in means):
        highest = axes.dataLim.y1
        axes.set_ylim(0, 1.05 * highest if isfinite(highest) and highest > 0 else 1)
