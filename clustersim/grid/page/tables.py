"""The tables of the page of a grid, as plain cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from clustersim.grid.comparisons import Comparison
from clustersim.grid.expand import Scalar, text_of
from clustersim.report.numbers import MOST_PERCENT, difference

from .document import GridDocument, Values, better, page_of_run

__all__ = ["HeatMap", "best_rows", "cell_rows", "difference_rows", "effect_rows", "heat_maps"]

Cell = Mapping[str, Scalar]

_MOST_MAPS = 24
_DARKEST = 42  # percent of the colour at the extreme value; ink on it keeps a contrast of 4.5


@dataclass(frozen=True)
class Effect:
    """A row of differences. `trend`: better, worse, or empty where the interval holds 0 or is not `known`."""

    labels: tuple[str, ...]
    series: int
    cells: tuple[str, ...]
    trend: str
    known: bool


@dataclass(frozen=True)
class HeatMap:
    """A metric over two axes. `rows`: the label of a row, and by column text, percent of the colour, best."""

    title: str
    caption: str
    across: str
    down: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, tuple[tuple[str, int, bool], ...]], ...]


def difference_rows(document: GridDocument) -> tuple[list[str], list[list[str]]]:
    """Heads and rows of the differences from the baseline, one for each variant and metric."""
    heads = [
        *document.varied, "metric", "baseline", "mean", "difference", "95 % interval", "relative", "p (Holm)"
    ]  # fmt: skip
    rows = [
        [*effect.labels, *effect.cells]
        for metric in document.scales
        for effect in effect_rows(document, metric)
    ]
    return heads, rows


def effect_rows(document: GridDocument, metric: str) -> list[Effect]:
    """The differences of one metric, in the order of the grid."""
    return [
        _effect(document, comparison)
        for comparison in document.comparisons
        if comparison.metric == metric and comparison.difference.pairs
    ]


def _effect(document: GridDocument, comparison: Comparison) -> Effect:
    scale, d = document.scales[comparison.metric], comparison.difference
    cells = (
        scale.head, scale.text(d.baseline), scale.text(d.variant), scale.text(d.difference, signed=True),
        "–" if d.low is None else f"{scale.text(d.low, signed=True)} to {scale.text(d.high, signed=True)}",
        _percent(d.relative),
        "–" if comparison.p_holm is None else f"{comparison.p_holm:.3g}",
    )  # fmt: skip
    labels = tuple(text_of(comparison.axes[name]) for name in document.varied)
    return Effect(
        labels, document.series(document.cell(comparison.axes)), cells, _trend(comparison), d.low is not None
    )


def _percent(relative: float | None) -> str:
    """A relative difference as text; a dash for none, and where the baseline is next to zero."""
    if relative is None or 100 * relative > MOST_PERCENT:
        return "–"
    return difference("ratio", 1 + relative, 1.0)


def _trend(comparison: Comparison) -> str:
    """Only a difference whose interval leaves out 0 is marked."""
    low, high, direction = comparison.difference.low, comparison.difference.high, better(comparison.metric)
    if low is None or high is None or not direction or low <= 0 <= high:
        return ""
    return "better" if (high < 0) == (direction == "lower") else "worse"


def heat_maps(document: GridDocument) -> tuple[list[HeatMap], int]:
    """A map of each metric over each pair of axes with several values, and how many more are left out. There
    is one for each combination of the other axes.
    """
    maps: list[HeatMap] = []
    left_out = 0
    for down, across in combinations(document.varied, 2):
        for metric in document.varying:
            for _, fixed in document.others(down, across):
                if len(maps) >= _MOST_MAPS:
                    left_out += 1
                    continue
                maps.append(_heat_map(document, metric, down, across, fixed))
    return maps, left_out


def _heat_map(document: GridDocument, metric: str, down: str, across: str, fixed: Cell) -> HeatMap:
    scale, direction = document.scales[metric], better(metric)
    values = {
        (row, column): mean.mean
        for row in document.levels[down]
        for column in document.levels[across]
        if (mean := document.mean(document.cell({**fixed, down: row, across: column}), metric))
    }
    low, high = min(values.values(), default=0.0), max(values.values(), default=0.0)
    best = {"lower": low, "higher": high}.get(direction)

    def cell(row: Scalar, column: Scalar) -> tuple[str, int, bool]:
        value = values.get((row, column))
        if value is None:
            return "–", 0, False
        share = (value - low) / (high - low) if high > low else 0.0
        return scale.text(value), round(_DARKEST * share), best is not None and value == best and high > low

    where = document.label(fixed)
    legend = f"; {direction} is better, the best is bold" if direction else ""
    return HeatMap(
        f"{scale.head}{f' ({where})' if where else ''}",
        f"Means over seeds. Darker is larger{legend}.",
        across,
        down,
        tuple(text_of(column) for column in document.levels[across]),
        tuple(
            (text_of(row), tuple(cell(row, column) for column in document.levels[across]))
            for row in document.levels[down]
        ),
    )


@dataclass(frozen=True)
class Best:
    """The best value of an axis in one cell of the others, and how far the next one is. `series`: None where
    several values are equally good.
    """

    labels: tuple[str, ...]
    metric: str
    series: int | None
    winner: str
    value: str
    second: str
    margin: str


def best_rows(document: GridDocument) -> tuple[str, list[str], list[Best]]:
    """The axis that is compared (the policy, else the first), the other axes, and the best of each cell by
    each metric that is better lower or higher. Means that are equal share the place.
    """
    axis = document.colours or (document.varied[0] if document.varied else "")
    if not axis:
        return "", [], []
    other_axes = [name for name in document.varied if name != axis]
    rows = []
    for _, fixed in document.others(axis):
        for metric, scale in document.varying.items():
            ranked_values = _ranked(document, metric, axis, fixed)
            if len(ranked_values) < 2 or not better(metric):
                continue
            best = [value for value, mean in ranked_values if mean == ranked_values[0][1]]
            worse_values = [(value, mean) for value, mean in ranked_values if mean != ranked_values[0][1]]
            second = (
                f"{text_of(worse_values[0][0])}: {scale.text(worse_values[0][1])}" if worse_values else "–"
            )
            margin = (
                scale.text(worse_values[0][1] - ranked_values[0][1], signed=True) if worse_values else "–"
            )
            labels = tuple(text_of(fixed[name]) for name in other_axes)
            series = document.looks[best[0]] if document.colours and len(best) == 1 else None
            winner = ", ".join(map(text_of, best))
            rows.append(
                Best(labels, scale.head, series, winner, scale.text(ranked_values[0][1]), second, margin)
            )
    return axis, other_axes, rows


def _ranked(document: GridDocument, metric: str, axis: str, fixed: Cell) -> list[tuple[Scalar, float]]:
    """The values of an axis with their means, the best first."""
    means = [
        (value, mean.mean)
        for value in document.levels[axis]
        if (mean := document.mean(document.cell({**fixed, axis: value}), metric))
    ]
    return sorted(means, key=lambda entry: entry[1], reverse=better(metric) == "higher")


@dataclass(frozen=True)
class CellRow:
    """A run of the grid. `link`: the address of its page; empty if there is none. `load`: the one offered."""

    labels: tuple[str, ...]
    series: int
    seed: int
    status: str
    planner: str
    load: str
    cells: tuple[str, ...]
    link: str
    key: str
    reason: str


def cell_rows(document: GridDocument, row_limit: int) -> Sequence[CellRow]:
    """The runs in the order of the grid, at most so many."""
    rows = []
    for result in document.results[:row_limit]:
        values: Values = tuple(result.axes[name] for name in document.axes)
        page = page_of_run(result.cell)
        has_page = (document.folder / page).is_file()
        rows.append(
            CellRow(
                tuple(text_of(result.axes[name]) for name in document.axes), document.series(values),
                result.seed, result.status, result.facts.planner,
                "–" if result.offered_load is None else f"{result.offered_load:.2f}",
                tuple(scale.text(result.metrics.get(m)) for m, scale in document.scales.items()),
                page if has_page else "", result.cell, result.reason,
            )
        )  # fmt: skip
    return rows
