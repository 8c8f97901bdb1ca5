"""What the ranks of an iteration have to do when samples differ in length, by how they are dealt to ranks.

Where ranks draw on their own, as drawn or by strata, their slowest is an order statistic, which is computed.
Where ranks exchange samples it is sampled. Samples of a rank that is dealt sorted samples, or has strata, run
in the order of their lengths, so those of a micro-batch are alike; else in the order drawn.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple, Protocol

import numpy as np

from itertime.errors import UserError
from itertime.spec import Lengths

from .hulls import Points, stacked, upper_hull
from .order_statistics import Array
from .packing import packs_of
from .sampling import Indices, deal, draw
from .slowest import DrawnWork, IndependentRanks, SampledRanks, UnitPart
from .strata import bin_edges, stratified_counts

__all__ = ["BALANCES", "BATCHINGS", "Dealing", "check_balance", "drawn_work", "rows_of", "sampled_work"]

BATCHINGS = ("padded", "longest", "unpadded", "packed")
BALANCES = ("drawn", "sorted", "exchanged", "stratified", "stratified-exchanged")

MOST_DRAWS, FEWEST_DRAWS = 512, 8
DRAWN_UNITS = 4_000_000  # over all draws: bounds the seconds that sampling takes
UNITS_AT_ONCE = 1_000_000  # bounds the memory


class Dealing(Protocol):
    """How samples become micro-batches and are dealt to ranks: these fields of a plan's options."""

    @property
    def batching(self) -> str: ...
    @property
    def balance(self) -> str: ...


def rows_of(lengths: Lengths, batching: str, samples: int, seq_len: int) -> int:
    """Rows that `samples` samples take: as many; of packs, their number over the samples of one, rounded."""
    if batching != "packed":
        return samples
    return max(1, round(samples / packs_of(lengths, seq_len).samples))


def check_balance(lengths: Lengths, options: Dealing, samples: int, seq_len: int) -> None:
    """UserError if `samples` samples of these lengths a rank cannot be dealt so.

    The reasons: a sample longer than `seq_len`; for strata a bin without samples, fewer samples than bins,
    and packed rows.
    """
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
    """The work of `ranks` data-parallel ranks with `samples` samples each an iteration.

    `node_ranks`: ranks of a node, among which samples are exchanged. `micro_batch`: samples of a micro-batch,
    whose number divides `samples`. The same arguments give the same draws. Raises UserError as
    `check_balance` does.
    """
    check_balance(lengths, options, samples, seq_len)
    return _work(_key(lengths, options, ranks, samples, node_ranks, micro_batch, seq_len, seed))


def sampled_work(
    lengths: Lengths,
    options: Dealing,
    ranks: int,
    samples: int,
    node_ranks: int,
    micro_batch: int,
    seq_len: int,
    seed: int = 0,
) -> SampledRanks:
    """The same by seeded draws, also where `drawn_work` is exact: one checks the other."""
    check_balance(lengths, options, samples, seq_len)
    return _sampled(_key(lengths, options, ranks, samples, node_ranks, micro_batch, seq_len, seed))


class _Key(NamedTuple):
    """What the draws depend on; `group`: ranks among which samples are dealt, 1 for none."""

    lengths: Lengths
    batching: str
    strata: bool
    ranks: int
    samples: int
    group: int
    micro_batch: int
    seq_len: int
    seed: int


def _key(
    lengths: Lengths,
    options: Dealing,
    ranks: int,
    samples: int,
    node_ranks: int,
    micro_batch: int,
    seq_len: int,
    seed: int,
) -> _Key:
    if min(ranks, samples, node_ranks, micro_batch) < 1 or samples % micro_batch:
        raise ValueError(f"{ranks=}, {samples=}, {node_ranks=}, {micro_batch=}: wrong sizes")
    group = {"sorted": ranks, "exchanged": node_ranks, "stratified-exchanged": node_ranks}.get(
        options.balance, 1
    )
    strata = options.balance.startswith("stratified")
    alike = micro_batch if options.batching == "longest" else 1
    return _Key(lengths, options.batching, strata, ranks, samples, min(group, ranks), alike, seq_len, seed)


@lru_cache(maxsize=4096)
def _work(key: _Key) -> DrawnWork:
    if key.batching == "padded":
        point = np.array([(key.seq_len, key.seq_len**2)], dtype=float)
        return IndependentRanks.of([UnitPart(point, np.ones(1), key.samples)], key.ranks)
    if key.group > 1 or (key.micro_batch > 1 and key.strata):
        return _sampled(key)
    if key.micro_batch == 1:
        return IndependentRanks.of(_units(key), key.ranks)
    (units,) = _units(key)
    longest = np.diff(np.cumsum(units.shares) ** key.micro_batch, prepend=0.0)
    batches = UnitPart(units.points * key.micro_batch, longest, key.samples // key.micro_batch)
    return IndependentRanks.of([batches], key.ranks)


def _units(key: _Key) -> list[UnitPart]:
    """What is dealt, samples or packed rows, in rising order of work, by bin, with the number of a rank."""
    if key.batching == "packed":
        packs = packs_of(key.lengths, key.seq_len)
        points = np.array([(key.seq_len, squares) for squares in packs.squares], dtype=float)
        order = np.argsort(points[:, 1], kind="stable")
        rows = rows_of(key.lengths, key.batching, key.samples, key.seq_len)
        return [UnitPart(points[order], np.array(packs.shares)[order], rows)]
    tokens = np.array(key.lengths.tokens, dtype=float)
    points, shares = np.stack([tokens, tokens**2], axis=1), np.array(key.lengths.shares)
    if not key.strata:
        return [UnitPart(points, shares, key.samples)]
    ends = np.searchsorted(tokens, bin_edges(key.seq_len), side="right").tolist()
    counts = stratified_counts(key.lengths, key.samples, key.seq_len)
    return [
        UnitPart(points[start:end], shares[start:end], count)
        for start, end, count in zip([0, *ends], ends, counts, strict=False)
    ]


@lru_cache(maxsize=4096)
def _sampled(key: _Key) -> SampledRanks:
    parts = _units(key)
    points = np.concatenate([part.points for part in parts])
    rng = np.random.default_rng(key.seed)
    size = key.ranks * key.samples
    draws = max(FEWEST_DRAWS, min(MOST_DRAWS, DRAWN_UNITS // size))
    hulls: list[Points] = []
    means: list[Array] = []
    for first in range(0, draws, at_once := max(1, UNITS_AT_ONCE // size)):
        dealt = _dealt(key, parts, rng, min(at_once, draws - first))
        work = _work_of_ranks(points, dealt, key.micro_batch)
        means.extend(work.mean(axis=1))
        hulls.extend(upper_hull(each) for each in work)
    exact = key.micro_batch == 1
    expected = IndependentRanks.of(parts, 1)
    tokens, squares = (expected.tokens, expected.squares) if exact else np.mean(means, axis=0).tolist()
    return SampledRanks(stacked(hulls), np.array(means), tokens, squares, exact)


def _dealt(key: _Key, parts: list[UnitPart], rng: np.random.Generator, draws: int) -> Indices:
    """draws x ranks x units of a rank, as indices into the units of all parts."""
    drawn, first = [], 0
    for part in parts:
        drawn.append(draw(rng, part.shares, (draws * key.ranks, part.number), first))
        first += len(part.shares)
    units = np.concatenate(drawn, axis=1).reshape(draws, key.ranks, -1)
    if key.group == 1:
        return np.sort(units, axis=2) if key.strata else units
    whole = key.ranks // key.group * key.group  # the last node may have fewer ranks
    nodes = [(units[:, :whole], key.group), (units[:, whole:], key.ranks - whole)]
    dealt = [
        deal(some.reshape(-1, ranks * units.shape[2]), ranks).reshape(draws, -1, units.shape[2])
        for some, ranks in nodes
        if ranks
    ]
    return np.concatenate(dealt, axis=1)


def _work_of_ranks(points: Points, dealt: Indices, micro_batch: int) -> Points:
    """draws x ranks x (tokens, squares). Every sample of a micro-batch counts as its longest."""
    if micro_batch > 1:
        dealt = dealt.reshape(*dealt.shape[:2], -1, micro_batch).max(axis=3)
    sums = [column.take(dealt).sum(axis=2) for column in points.T]
    return micro_batch * np.stack(sums, axis=2)
