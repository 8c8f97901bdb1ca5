"""The slowest rank of an iteration: exact for independent ranks and for few outcomes, otherwise from draws.

The work of a rank is linear * tokens + quadratic * squares: products take a time in proportion to the tokens
that pass them, attention one in proportion to the sum of the squared lengths. The two factors depend on model
and plan, the distribution of (tokens, squares) does not, so it is made once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np

from .hulls import Points, highest
from .order_statistics import Array, Maximum, Part, sum_distribution

NODES = 64  # intervals of the share of the squares in a rank's work, between which the maximum is linear


class SlowestRank(NamedTuple):
    """The slowest rank of an iteration, in the unit of the work.

    `mean`: on average over iterations; `low`, `high`: its 5th and 95th percentile; `error`: the standard
    error of `mean`, 0 where it is not sampled; `average`: the mean rank.
    """

    mean: float
    low: float
    high: float
    error: float
    average: float

    @property
    def imbalance(self) -> float:
        """Slowest over mean rank."""
        return self.mean / self.average if self.average > 0 else 1.0


class DrawnWork(Protocol):
    """Work that is drawn for the ranks of an iteration.

    `tokens`, `squares`: expected sums of a rank's tokens and of their squares, over one iteration. `slowest`:
    the slowest rank for work linear * tokens + quadratic * squares, both factors at least 0; takes
    microseconds.
    """

    @property
    def tokens(self) -> float: ...
    @property
    def squares(self) -> float: ...
    def slowest(self, linear: float, quadratic: float) -> SlowestRank: ...


class UnitPart(NamedTuple):
    """`number` independent draws from units of `points` (units x 2), with the probabilities `shares`."""

    points: Points
    shares: Array
    number: int


@dataclass(frozen=True, eq=False)
class IndependentRanks:
    """`ranks` ranks, whose work is an independent sum of the same `parts` each: exact order statistics.

    They are computed for 64 ratios of the two factors when first asked for, and interpolated linearly. The
    interpolation and the grid of works overestimate the mean slightly: for lengths of 1 to 512 tokens by less
    than 0.0003 of the mean rank's work.
    """

    parts: Sequence[UnitPart]
    ranks: int
    tokens: float
    squares: float
    _known: dict[int, Maximum] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of(cls, parts: Sequence[UnitPart], ranks: int) -> IndependentRanks:
        """Ranks that draw from these parts."""
        tokens, squares = sum(part.number * (part.shares / part.shares.sum()) @ part.points for part in parts)
        return cls(parts, ranks, float(tokens), float(squares))

    def slowest(self, linear: float, quadratic: float) -> SlowestRank:
        """See `DrawnWork`."""
        assert linear >= 0
        assert quadratic >= 0
        average = linear * self.tokens + quadratic * self.squares
        if not average > 0:
            return SlowestRank(average, average, average, 0.0, average)
        place = quadratic * self.squares / average * NODES
        node = min(int(place), NODES - 1)
        low_node, high_node, part = self._maximum(node), self._maximum(node + 1), place - node
        mean, low, high = (average * (a + part * (b - a)) for a, b in zip(low_node, high_node, strict=True))
        return SlowestRank(mean, low, high, 0.0, average)

    def _maximum(self, node: int) -> Maximum:
        """Of the work over its mean, `node` / 64 of which are squares."""
        if node not in self._known:
            weights = np.array(((1 - node / NODES) / self.tokens, node / NODES / self.squares))
            parts = [Part(part.points @ weights, part.shares, part.number) for part in self.parts]
            mean, low, high = sum_distribution(parts).maximum(self.ranks)
            mean = max(mean, 1.0)
            self._known[node] = Maximum(mean, min(low, mean), max(high, mean))
        return self._known[node]


@dataclass(frozen=True, eq=False)
class IndependentNodes:
    """`nodes` nodes, each of which has the outcome i with the probability `chances[i]`: exact.

    `hulls`: outcomes x corners x 2, as those of `SampledRanks`. `tokens`, `squares`: expected, of a rank.
    """

    hulls: Points
    chances: Array
    nodes: int
    tokens: float
    squares: float

    def slowest(self, linear: float, quadratic: float) -> SlowestRank:
        """See `DrawnWork`."""
        assert linear >= 0
        assert quadratic >= 0
        slowest = highest(self.hulls, linear, quadratic)
        order = np.argsort(slowest)
        below = np.minimum(np.cumsum(self.chances[order]), 1.0) ** self.nodes
        below[-1] = 1.0
        average = linear * self.tokens + quadratic * self.squares
        mean = max(float(slowest[order] @ np.diff(below, prepend=0.0)), average)
        low, high = slowest[order[np.searchsorted(below, (0.05 - 1e-12, 0.95 - 1e-12))]].tolist()
        return SlowestRank(mean, min(low, mean), max(high, mean), 0.0, average)


@dataclass(frozen=True, eq=False)
class SampledRanks:
    """Drawn iterations: the ranks of each that can be the slowest, and the mean rank.

    Whatever the two factors are, the slowest rank is a corner of the upper convex hull of the points (tokens,
    squares), so only the hull of a draw is kept.

    `hulls`: draws x corners x 2. `means`: draws x 2, the mean rank of each draw. `exact`: `tokens` and
    `squares` are expected values, not means over the draws.
    """

    hulls: Points
    means: Points
    tokens: float
    squares: float
    exact: bool

    def slowest(self, linear: float, quadratic: float) -> SlowestRank:
        """See `DrawnWork`.

        The draws tell how far the slowest rank is above the mean rank of its draw. Where the expected work of
        a rank is known exactly, the variation of the mean rank from draw to draw adds no error.
        """
        assert linear >= 0
        assert quadratic >= 0
        slowest, draws = highest(self.hulls, linear, quadratic), len(self.hulls)
        average = linear * self.tokens + quadratic * self.squares
        above = np.maximum(slowest - self.means @ (linear, quadratic), 0.0)
        mean = average + float(above.sum()) / draws
        shift = mean - float(slowest.sum()) / draws
        apart = above - (mean - average) if self.exact else slowest - (mean - shift)
        error = math.sqrt(float(apart @ apart) / (draws - 1) / draws)
        slowest.sort()
        low, high = (_quantile(slowest, q) + shift for q in (0.05, 0.95))
        return SlowestRank(mean, min(low, mean), max(high, mean), error, average)


def _quantile(ordered: Array, q: float) -> float:
    """Linear between the order statistics, as NumPy's, which is slow for few values."""
    place = q * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return float(ordered[below] + (place - below) * (ordered[above] - ordered[below]))
