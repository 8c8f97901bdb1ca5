"""What the ranks of an iteration have to do when samples differ in length, and what its slowest rank takes.

The work of a rank is linear * tokens + quadratic * squares: products take a time in proportion to the tokens
that pass them, attention scores one in proportion to the sum of the squared lengths. Both sums are drawn for
every rank of an iteration. Only ranks on the upper convex hull of the points (tokens, squares) can be the
slowest for any such work, so the hull is all that is kept of a draw.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from itertime.errors import UserError
from itertime.spec import Lengths

from .packing import packs_of
from .sampling import Indices, deal, draw
from .strata import bin_edges, stratified_counts

__all__ = ["BALANCES", "BATCHINGS", "DrawnWork", "SlowestRank", "check_balance", "drawn_work", "rows_of"]

BATCHINGS = ("padded", "longest", "unpadded", "packed")
BALANCES = ("drawn", "sorted", "exchanged", "stratified", "stratified-exchanged")

MOST_DRAWS, FEWEST_DRAWS = 512, 4
DRAWN_SAMPLES = 6_000_000  # over all draws: bounds the seconds that one `drawn_work` takes
CHUNK_SAMPLES = 1_000_000  # drawn at once: bounds the memory

Points = NDArray[np.float64]  # ..., 2: tokens and squares


class Dealing(Protocol):
    """How samples become micro-batches and are dealt to ranks: these fields of a plan's options."""

    @property
    def batching(self) -> str: ...
    @property
    def balance(self) -> str: ...


class SlowestRank(NamedTuple):
    """The slowest rank of an iteration, in the unit of the work.

    `mean`: on average over iterations; `low`, `high`: its 5th and 95th percentile; `error`: the standard
    error of `mean`, 0 where it is exact; `average`: the mean rank.
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


@dataclass(frozen=True, eq=False)
class DrawnWork:
    """Drawn iterations: what may be the slowest rank of each, and the mean rank.

    `tokens`, `squares`: expected sums of a rank's tokens, and of their squares, over one iteration.
    `hulls`: draws x points x 2, the corners of the hull of (tokens, squares), the last one repeated.
    `means`: draws x 2, the mean rank of each draw. `exact`: `tokens` and `squares` are expected values, not
    means over the draws.
    """

    tokens: float
    squares: float
    hulls: Points
    means: Points
    exact: bool

    def slowest(self, linear: float, quadratic: float) -> SlowestRank:
        """The slowest rank for work linear * tokens + quadratic * squares, both at least 0.

        The draws tell how far the slowest rank is above the mean rank of its draw. Where the expected work of
        a rank is known exactly, the variation of the mean rank from draw to draw adds no error.
        """
        assert linear >= 0
        assert quadratic >= 0
        weights = np.array((linear, quadratic))
        slowest = (self.hulls @ weights).max(axis=1)
        average = linear * self.tokens + quadratic * self.squares
        means = self.means @ weights
        count = len(slowest)
        above = np.maximum(slowest - means, 0.0)
        mean = average + float(above.mean())
        measured = above if self.exact else slowest
        error = float(measured.std(ddof=1)) / math.sqrt(count) if count > 1 else 0.0
        slowest.sort()
        shift = mean - float(slowest.mean())
        low, high = _quantile(slowest, 0.05) + shift, _quantile(slowest, 0.95) + shift
        return SlowestRank(mean, min(low, mean), max(high, mean), error, average)


def _quantile(ordered: Points, q: float) -> float:
    """Linear between the order statistics, as NumPy's, which is slow for few values."""
    place = q * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return float(ordered[below] + (place - below) * (ordered[above] - ordered[below]))


def rows_of(lengths: Lengths, batching: str, samples: int, seq_len: int) -> int:
    """Rows that `samples` samples take: as many, or that number over the samples of a pack, rounded."""
    if batching != "packed":
        return samples
    return max(1, round(samples / packs_of(lengths, seq_len).samples))


def check_balance(lengths: Lengths, options: Dealing, samples: int, seq_len: int) -> None:
    """UserError if samples of these lengths cannot be dealt so: see `drawn_work`."""
    lengths.check(seq_len)
    if options.balance not in BALANCES or options.batching not in BATCHINGS:
        raise ValueError(f"unknown balance {options.balance!r} or batching {options.batching!r}")
    if options.balance.startswith("stratified"):
        if options.batching == "packed":
            raise UserError(
                f"balance={options.balance}: bins of lengths have no meaning for batching=packed, whose rows "
                f"hold samples of several lengths; choose another balance"
            )
        stratified_counts(lengths, samples, seq_len)


def drawn_work(
    lengths: Lengths,
    options: Dealing,
    ranks: int,
    samples: int,
    node_ranks: int,
    micro_batch: int,
    seq_len: int,
    seed: int = 0,
) -> DrawnWork:
    """Seeded draws of the work of `ranks` data-parallel ranks with `samples` samples each an iteration.

    `node_ranks`: ranks of a node, among which samples are exchanged. `micro_batch`: samples of a micro-batch,
    whose number divides `samples`. The same arguments give the same draws; strategies share what they draw.
    Raises UserError for a sample longer than `seq_len`, a bin without samples, fewer samples than bins, and
    for strata of packed rows.
    """
    check_balance(lengths, options, samples, seq_len)
    if min(ranks, samples, node_ranks, micro_batch) < 1 or samples % micro_batch:
        raise ValueError(f"{ranks=}, {samples=}, {node_ranks=}, {micro_batch=}: wrong sizes")
    if options.batching == "padded":
        point = np.array((samples * seq_len, samples * seq_len**2), dtype=float)
        return DrawnWork(point[0], point[1], point.reshape(1, 1, 2), point.reshape(1, 2), True)
    node_ranks = min(node_ranks, ranks) if "exchanged" in options.balance else 1
    micro_batch = micro_batch if options.batching == "longest" else 1
    key = _Key(
        lengths, options.batching, options.balance, ranks, samples, node_ranks, micro_batch, seq_len, seed
    )
    return _drawn(key)


class _Key(NamedTuple):
    lengths: Lengths
    batching: str
    balance: str
    ranks: int
    samples: int
    node_ranks: int
    micro_batch: int
    seq_len: int
    seed: int


@dataclass(frozen=True)
class _Units:
    """What is dealt: `points[i]` are tokens and squares of units that have the share `shares[i]`, in rising
    order of work; `counts` of a rank from each of the bins that begin at the indices `starts`.
    """

    points: Points
    shares: NDArray[np.float64]
    starts: list[int]
    counts: list[int]

    def expected(self) -> Points:
        """Tokens and squares of a rank."""
        total = np.zeros(2)
        for part, count in zip(self.bins(), self.counts, strict=True):
            total += count * (self.shares[part] / self.shares[part].sum()) @ self.points[part]
        return total

    def bins(self) -> list[slice]:
        return [slice(*ends) for ends in zip(self.starts, [*self.starts[1:], len(self.shares)], strict=True)]


def _units(key: _Key) -> _Units:
    if key.batching == "packed":
        packs = packs_of(key.lengths, key.seq_len)
        points = np.array([(key.seq_len, squares) for squares in packs.squares], dtype=float)
        order = np.lexsort((np.arange(len(points)), points[:, 1]))
        rows = rows_of(key.lengths, key.batching, key.samples, key.seq_len)
        return _Units(points[order], np.array(packs.shares)[order], [0], [rows])
    tokens = np.array(key.lengths.tokens, dtype=float)
    points, shares = np.stack([tokens, tokens**2], axis=1), np.array(key.lengths.shares)
    if not key.balance.startswith("stratified"):
        return _Units(points, shares, [0], [key.samples])
    edges = [0, *bin_edges(key.seq_len)[:-1]]
    starts = [int(np.searchsorted(tokens, edge, side="right")) for edge in edges]
    return _Units(points, shares, starts, stratified_counts(key.lengths, key.samples, key.seq_len))


@lru_cache(maxsize=4096)
def _drawn(key: _Key) -> DrawnWork:
    units = _units(key)
    rng = np.random.default_rng(key.seed)
    size = key.ranks * key.samples
    draws = max(FEWEST_DRAWS, min(MOST_DRAWS, DRAWN_SAMPLES // size))
    at_once = max(1, CHUNK_SAMPLES // size)
    hulls: list[Points] = []
    means: list[Points] = []
    while draws:
        now = min(draws, at_once)
        draws -= now
        work = _work_of_ranks(key, units, _dealt(key, units, rng, now))
        means.extend(work.mean(axis=1))
        hulls.extend(upper_hull(points) for points in work)
    mean = np.mean(means, axis=0)
    exact = key.micro_batch == 1
    tokens, squares = units.expected() if exact else mean
    return DrawnWork(float(tokens), float(squares), _padded(hulls), np.array(means), exact)


def _dealt(key: _Key, units: _Units, rng: np.random.Generator, draws: int) -> Indices:
    """draws x ranks x units of a rank."""
    parts = [
        draw(rng, units.shares[part], (draws * key.ranks, count)) + np.int32(part.start)
        for part, count in zip(units.bins(), units.counts, strict=True)
    ]
    drawn = np.concatenate(parts, axis=1).reshape(draws, key.ranks, -1)
    if key.balance == "sorted":
        return deal(drawn.reshape(draws, -1), key.ranks)
    if "exchanged" not in key.balance:
        return np.sort(drawn, axis=2)[:, :, ::-1] if key.balance == "stratified" else drawn
    whole = key.ranks // key.node_ranks * key.node_ranks
    dealt = [
        deal(nodes.reshape(-1, here * drawn.shape[2]), here).reshape(draws, -1, drawn.shape[2])
        for nodes, here in ((drawn[:, :whole], key.node_ranks), (drawn[:, whole:], key.ranks - whole))
        if here
    ]
    return np.concatenate(dealt, axis=1)


def _work_of_ranks(key: _Key, units: _Units, dealt: Indices) -> Points:
    """draws x ranks x (tokens, squares)."""
    if key.micro_batch == 1:
        return np.stack([column[dealt].sum(axis=2) for column in units.points.T], axis=2)
    batches = dealt.reshape(*dealt.shape[:2], -1, key.micro_batch).max(axis=3)
    return key.micro_batch * np.stack([column[batches].sum(axis=2) for column in units.points.T], axis=2)


def upper_hull(points: Points) -> Points:
    """Corners of the upper right hull of points x 2: one of them maximises every a x + b y, a and b >= 0.

    >>> upper_hull(np.array([(0.0, 3.0), (1.0, 1.0), (2.0, 2.0), (3.0, 0.0), (1.0, 2.4)])).tolist()
    [[3.0, 0.0], [2.0, 2.0], [0.0, 3.0]]
    """
    order = np.lexsort((-points[:, 1], -points[:, 0]))
    ordered = points[order]
    best = np.maximum.accumulate(ordered[:, 1])
    front = ordered[np.concatenate(([True], best[1:] > best[:-1]))]
    kept: list[tuple[float, float]] = []
    for x, y in front.tolist():  # x falls, y rises
        while len(kept) > 1 and not _turns(kept[-2], kept[-1], (x, y)):
            kept.pop()
        kept.append((x, y))
    return np.array(kept)


def _turns(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> bool:
    """Whether `b` lies beyond the line from `a` to `c`, which goes to the upper left."""
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0]) > 0


def _padded(hulls: Iterable[Points]) -> Points:
    rows = list(hulls)
    most = max(map(len, rows))
    return np.stack([np.concatenate([row, np.repeat(row[-1:], most - len(row), axis=0)]) for row in rows])
