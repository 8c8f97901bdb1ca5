"""The work of the ranks of an iteration when samples differ in length, by how samples are dealt to ranks.

Ranks that draw their own samples, as drawn or by strata, are independent: the slowest is an order statistic,
which is computed. Where ranks exchange samples the slowest is sampled, or all outcomes of a node are
enumerated if they are few. A rank with sorted samples or strata runs them in the order of their lengths, so
those of a micro-batch are of similar length; otherwise it runs them as drawn.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from itertime.errors import UserError
from itertime.spec import Lengths, PlanOptions

from .hulls import Points, stacked, upper_hull
from .order_statistics import Array
from .packing import packs_of
from .sampling import Indices, deal, draw, pools_of, work_of_ranks
from .slowest import DrawnWork, IndependentNodes, IndependentRanks, SampledRanks, UnitPart
from .strata import bin_edges, stratified_counts

MOST_DRAWS, FEWEST_DRAWS = 512, 8
DRAWN_UNITS = 4_000_000  # over all draws: bounds the seconds that sampling takes
UNITS_AT_ONCE = 1_000_000  # bounds the memory
MOST_UNITS = 20_000_000  # of one iteration


def rows_of(lengths: Lengths, batching: str, samples: int, seq_len: int) -> int:
    """Rows that `samples` samples take: one each; packed, their number over the mean samples of a pack."""
    if batching != "packed":
        return samples
    return max(1, round(samples / packs_of(lengths, seq_len).samples))


def check_balance(lengths: Lengths, batching: str, balance: str, samples: int, seq_len: int) -> None:
    """Raises UserError if ranks cannot have `samples` samples each of these lengths under a balance.

    The reasons: a sample longer than `seq_len`; for strata a bin without samples, fewer samples than bins,
    and packed rows.
    """
    lengths.check(seq_len)
    if balance.startswith("stratified"):
        if batching == "packed":
            raise UserError(
                f"balance={balance}: bins of lengths have no meaning for batching=packed, whose rows hold "
                f"samples of several lengths; choose another balance"
            )
        stratified_counts(lengths, samples, seq_len)


def drawn_work(
    lengths: Lengths,
    options: PlanOptions,
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
    batching, balance = options.batching, options.balance
    _check_sizes(ranks, samples, node_ranks, micro_batch)
    # Neutral values where a size has no effect: plans that differ in it share their draws.
    micro_batch = micro_batch if batching == "longest" else 1
    node_ranks = min(node_ranks, ranks) if "exchanged" in balance else 1
    return _work(Dealt(lengths, batching, balance, ranks, samples, node_ranks, micro_batch, seq_len, seed))


class Dealt(NamedTuple):
    """The arguments of `drawn_work`, with the batching and the balance of its options."""

    lengths: Lengths
    batching: str
    balance: str
    ranks: int
    samples: int
    node_ranks: int
    micro_batch: int
    seq_len: int
    seed: int = 0

    @property
    def strata(self) -> bool:
        """Whether a rank takes fixed numbers of samples from bins of lengths."""
        return self.balance.startswith("stratified")

    @property
    def group(self) -> int:
        """Ranks that exchange their samples; 1 if none do."""
        if self.balance == "sorted":
            return self.ranks
        return min(self.node_ranks, self.ranks) if "exchanged" in self.balance else 1

    @property
    def padded_together(self) -> int:
        """Samples that are padded to the longest of them."""
        return self.micro_batch if self.batching == "longest" else 1


@lru_cache(maxsize=4096)
def _work(dealt: Dealt) -> DrawnWork:
    _check(dealt)
    if dealt.batching == "padded":
        point = np.array([(dealt.seq_len, dealt.seq_len**2)], dtype=float)
        return IndependentRanks.of([UnitPart(point, np.ones(1), dealt.samples)], dealt.ranks)
    parts = _units(dealt)
    if dealt.group > 1 or (dealt.padded_together > 1 and dealt.balance != "drawn"):
        return _enumerated(dealt, parts) or sampled_work(dealt)
    if dealt.padded_together > 1:
        points, shares, samples = parts[0]
        size = dealt.padded_together
        longest = np.diff(np.cumsum(shares) ** size, prepend=0.0)  # David and Nagaraja, section 2.1
        parts = [UnitPart(points * size, longest, samples // size)]
    return IndependentRanks.of(parts, dealt.ranks)


def _enumerated(dealt: Dealt, parts: list[UnitPart]) -> IndependentNodes | None:
    """The work with all outcomes of one node; None if they are too many, or if nodes differ in size."""
    nodes, remainder = divmod(dealt.ranks, dealt.group)
    pools = None if remainder else pools_of(parts, dealt.group)
    if pools is None:
        return None
    points = np.concatenate([part.points for part in parts])
    work = work_of_ranks(points, deal(pools[0], dealt.group), dealt.padded_together)
    tokens, squares = (pools[1] @ work.mean(axis=1)).tolist()
    return IndependentNodes(
        stacked([upper_hull(node_work) for node_work in work]), pools[1], nodes, tokens, squares
    )


def _check_sizes(ranks: int, samples: int, node_ranks: int, micro_batch: int) -> None:
    if min(ranks, samples, node_ranks, micro_batch) < 1 or samples % micro_batch:
        raise ValueError(f"{ranks=}, {samples=}, {node_ranks=}, {micro_batch=}")


def _check(dealt: Dealt) -> None:
    _check_sizes(*dealt[3:7])
    check_balance(dealt.lengths, dealt.batching, dealt.balance, dealt.samples, dealt.seq_len)


def _units(dealt: Dealt) -> list[UnitPart]:
    """The units that are dealt, samples or packed rows, by bin and in rising order of work."""
    if dealt.batching == "packed":
        packs = packs_of(dealt.lengths, dealt.seq_len)
        points = np.array([(dealt.seq_len, squares) for squares in packs.squares], dtype=float)
        order = np.argsort(points[:, 1], kind="stable")
        rows = rows_of(dealt.lengths, dealt.batching, dealt.samples, dealt.seq_len)
        return [UnitPart(points[order], np.array(packs.shares)[order], rows)]
    tokens = np.array(dealt.lengths.tokens, dtype=float)
    points, shares = np.stack([tokens, tokens**2], axis=1), np.array(dealt.lengths.shares)
    if not dealt.strata:
        return [UnitPart(points, shares, dealt.samples)]
    ends = np.searchsorted(tokens, bin_edges(dealt.seq_len), side="right").tolist()
    counts = stratified_counts(dealt.lengths, dealt.samples, dealt.seq_len)
    return [
        UnitPart(points[start:end], shares[start:end], count)
        for start, end, count in zip([0, *ends], ends, counts, strict=False)
    ]


@lru_cache(maxsize=4096)
def sampled_work(key: Dealt) -> SampledRanks:
    """The work by seeded draws, which is also where `drawn_work` is exact."""
    _check(key)
    parts = _units(key)
    points = np.concatenate([part.points for part in parts])
    rng = np.random.default_rng(key.seed)
    size = key.ranks * key.samples
    if size > MOST_UNITS:
        raise UserError(
            f"balance={key.balance}: an iteration of {size:,} samples is too large to be sampled; the limit "
            f"is {MOST_UNITS:,}: take a smaller global batch, or balance=drawn"
        )
    draws = max(FEWEST_DRAWS, min(MOST_DRAWS, DRAWN_UNITS // size))
    hulls: list[Points] = []
    means: list[Array] = []
    at_once = max(1, UNITS_AT_ONCE // size)
    for start in range(0, draws, at_once):
        dealt = _dealt(key, parts, rng, min(at_once, draws - start))
        work = work_of_ranks(points, dealt, key.padded_together)
        means.extend(work.mean(axis=1))
        hulls.extend(upper_hull(node_work) for node_work in work)
    exact = key.padded_together == 1
    expected = IndependentRanks.of(parts, 1)
    tokens, squares = (expected.tokens, expected.squares) if exact else np.mean(means, axis=0).tolist()
    return SampledRanks(stacked(hulls), np.array(means), tokens, squares, exact)


def _dealt(key: Dealt, parts: list[UnitPart], rng: np.random.Generator, draws: int) -> Indices:
    """draws x ranks x units of a rank, as indices into the units of all parts."""
    drawn, start = [], 0
    for part in parts:
        drawn.append(draw(rng, part.shares, (draws * key.ranks, part.number), start))
        start += len(part.shares)
    units = np.concatenate(drawn, axis=1).reshape(draws, key.ranks, -1)
    if key.group == 1:
        return units if key.balance == "drawn" else np.sort(units, axis=2)
    full_ranks = key.ranks // key.group * key.group  # the last node may have fewer ranks
    nodes = [(units[:, :full_ranks], key.group), (units[:, full_ranks:], key.ranks - full_ranks)]
    dealt = [
        deal(samples.reshape(-1, ranks * units.shape[2]), ranks).reshape(draws, -1, units.shape[2])
        for samples, ranks in nodes
        if ranks
    ]
    return np.concatenate(dealt, axis=1)
