"""What a grid says before all else: one line, and the few figures of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from clustersim.grid.expand import Scalar, text_of
from clustersim.report.numbers import range_of
from clustersim.report.runs import NEARLY_ALL
from clustersim.report.sentences import Tile

from .document import GridDocument, Values, better

__all__ = ["answer_of", "load_range", "tiles_of"]

_EQUAL = 5e-5  # relative differences that are less read as none
_NO_RESULTS = "The grid has no results yet."


@dataclass(frozen=True)
class _Outcome:
    """Which value of the compared axis has the best mean of a metric in most cells of the other axes.

    Policies that finish far fewer jobs than another one are no candidates in a cell: they choose the jobs
    that they are judged by. `axis`: the policy, else the first axis that varies; one whose values are all
    equal is passed over. `metric`: the first one that differs between cells and is better lower or higher.
    """

    document: GridDocument
    metric: str
    axis: str

    @classmethod
    def of(cls, document: GridDocument) -> _Outcome | None:
        """None for a grid in which nothing that is better or worse differs."""
        axes = sorted(document.varied, key=lambda axis: axis != document.colours)
        metrics = [name for name in document.varying if better(name)]
        outcomes = [cls(document, metric, axis) for axis in axes for metric in metrics]
        outcomes = [outcome for outcome in outcomes if outcome.winners]
        return next((o for o in outcomes if o.is_decided), outcomes[0] if outcomes else None)

    @cached_property
    def winners(self) -> list[tuple[dict[str, Scalar], list[Scalar]]]:
        """For each combination of the other axes its values, and the best values of the axis."""
        winners = []
        for _, fixed in self.document.others(self.axis):
            means = {
                value: mean.mean
                for value in self._able_values(fixed)
                if (mean := self.document.mean(self._cell(fixed, value), self.metric))
            }
            if means:
                best = (min if better(self.metric) == "lower" else max)(means.values())
                winners.append((fixed, [value for value, mean in means.items() if mean == best]))
        return winners

    @property
    def is_decided(self) -> bool:
        """Whether the values of the axis are not equal in all cells of the other axes."""
        return any(len(values) < len(self._finished(fixed)) for fixed, values in self.winners)

    def _finished(self, fixed: Mapping[str, Scalar]) -> dict[Scalar, float]:
        """How many jobs finish with each value of the axis that has results."""
        return {
            value: mean.mean
            for value in self.document.levels[self.axis]
            if (mean := self.document.mean(self._cell(fixed, value), "finished"))
        }

    def _able_values(self, fixed: Mapping[str, Scalar]) -> list[Scalar]:
        """The values of the axis with which nearly as many jobs finish as with any."""
        finished = self._finished(fixed)
        least = NEARLY_ALL * max(finished.values(), default=0.0)
        return [value for value, count in finished.items() if count >= least]

    def _cell(self, fixed: Mapping[str, Scalar], value: Scalar) -> Values:
        return self.document.cell({**fixed, self.axis: value})

    @property
    def leaves_out(self) -> bool:
        """Whether a value is no candidate in some cell, because fewer jobs finish."""
        return any(len(self._able_values(fixed)) < len(self._finished(fixed)) for fixed, _ in self.winners)

    @cached_property
    def leader(self) -> Scalar:
        """The value that is best in most cells; the first of several."""
        wins = dict.fromkeys(self.document.levels[self.axis], 0)
        for _, values in self.winners:
            for value in values:
                wins[value] += 1
        return max(wins, key=lambda value: wins[value])

    @property
    def name(self) -> str:
        """The leader in words."""
        text = text_of(self.leader)
        return text if self.axis == "policy" else f"{self.document.short_names[self.axis]} {text}"

    @cached_property
    def won_cells(self) -> list[Values]:
        """The cells of the leader in which it is best."""
        return [self._cell(fixed, self.leader) for fixed, values in self.winners if self.leader in values]

    @property
    def where(self) -> str:
        """In how many cells the leader is best; of how many values, if there is one cell."""
        if len(self.winners) > 1:
            return f"in {len(self.won_cells)} of {len(self.winners)} cells"
        count = len(self._finished(self.winners[0][0]))
        return f"of {count} {'policies' if self.axis == 'policy' else 'values'}"

    def means(self, metric: str, cells: Iterable[Values]) -> list[float]:
        """The means of a metric in cells that have one."""
        means = (self.document.mean(values, metric) for values in cells)
        return [mean.mean for mean in means if mean is not None]

    def changes(self) -> list[float]:
        """The relative differences of the metric from the baseline in the cells that the leader wins."""
        won_cells = set(self.won_cells)
        differences = [
            comparison.difference
            for comparison in self.document.comparisons
            if comparison.metric == self.metric and self.document.cell(comparison.axes) in won_cells
        ]
        return [d.relative for d in differences if d.relative is not None]

    def against(self) -> str:
        """How far the leader is from the baseline where it wins; empty where nothing says it."""
        changes = self.changes()
        if not changes or self.document.baseline is None:
            return ""
        low, high = (100 * bound(map(abs, changes)) for bound in (min, max))
        is_one_way = all(change < -_EQUAL for change in changes) or all(change > _EQUAL for change in changes)
        if not is_one_way:
            return ""
        digits = 0 if low >= 10 else 1
        span = f"{low:.{digits}f} to {high:.{digits}f}"
        if f"{low:.{digits}f}" == f"{high:.{digits}f}":
            span = f"{low:.{digits}f}"
        return f"{span} % {'below' if changes[0] < 0 else 'above'} {self.baseline_text}"

    @property
    def baseline_text(self) -> str:
        """The baseline in words: of a policy its name."""
        return ", ".join(
            text_of(value) if name == "policy" else f"{self.document.short_names[name]} {text_of(value)}"
            for name, value in (self.document.baseline or {}).items()
        )

    def baseline_cells(self) -> list[Values]:
        """The cells with which those that the leader wins are compared, but for those themselves."""
        positions = {name: i for i, name in enumerate(self.document.axes)}
        baseline = self.document.baseline or {}
        cells = []
        for values in self.won_cells:
            by_axis = {name: values[i] for name, i in positions.items()}
            cells.append(self.document.cell({**by_axis, **baseline}))
        return [cell for cell, values in zip(cells, self.won_cells, strict=True) if cell != values]


def answer_of(document: GridDocument) -> str:
    """What the grid says, in a line: what is best in how many cells, and how far from the baseline."""
    if not any(document.cells.values()):
        return _NO_RESULTS
    outcome = _Outcome.of(document)
    if outcome is None:
        return "No metric that is shown differs between cells."
    title = document.varying[outcome.metric].title
    sentence = ", ".join(filter(None, [f"{outcome.name}: best {title} {outcome.where}", outcome.against()]))
    return sentence + (" (of those that finish nearly as many jobs as any)" if outcome.leaves_out else "")


def tiles_of(document: GridDocument) -> list[Tile]:
    """The figures of the answer: the leader, its metric, deadlines met or else the next metric that differs,
    and the distance from the bound or else the load. Values are means over seeds in the cells that it wins.
    """
    outcome = _Outcome.of(document)
    if outcome is None:
        return []
    scale = document.varying[outcome.metric]
    word = "policy" if outcome.axis == "policy" else document.short_names[outcome.axis]
    tiles = [
        Tile(f"Best {word}", text_of(outcome.leader).rpartition("/")[2], f"{scale.title} {outcome.where}"),
        _range_tile(outcome, outcome.metric, outcome.against()),
    ]
    judged = [name for name in document.varying if better(name) and name != outcome.metric]
    second = "deadline_met_ratio" if "deadline_met_ratio" in judged else next(iter(judged), None)
    if second is not None:
        baseline_means = outcome.means(second, outcome.baseline_cells())
        beside = (
            f"{outcome.baseline_text} {_span(document, second, baseline_means)}" if baseline_means else ""
        )
        tiles.append(_range_tile(outcome, second, beside))
    factors = outcome.means("jct_over_bound", outcome.won_cells)
    if factors:
        tiles.append(
            Tile("JCT over the best possible", f"× {range_of(factors)}", "1 is what no policy beats")
        )
    elif load := load_range(document):
        tiles.append(Tile("Offered load", load, "of the cluster's GPU time"))
    return tiles


def load_range(document: GridDocument) -> str:
    """The loads that the cells offer, as text; empty where none is defined."""
    loads = [result.offered_load for result in document.results if result.offered_load is not None]
    return range_of(loads) if loads else ""


def _range_tile(outcome: _Outcome, metric: str, beside: str) -> Tile:
    document = outcome.document
    text = _span(document, metric, outcome.means(metric, outcome.won_cells))
    return Tile(document.scales[metric].title, text, beside)


def _span(document: GridDocument, metric: str, means: Sequence[float]) -> str:
    """The least and the largest mean in the unit of the metric."""
    scale = document.scales[metric]
    texts = dict.fromkeys(scale.text(mean) for mean in (min(means), max(means))) if means else ["–"]
    return f"{' to '.join(texts)} {scale.unit}".strip()
