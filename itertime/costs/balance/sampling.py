"""Draws of samples, and how they are dealt to ranks; all draws of a node, where they are few.

A unit is what is dealt: a sample, or a row of packed samples. Units are known by their index, in rising order
of their work. They are drawn independently of each other: a data set has far more than an iteration takes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import combinations_with_replacement, product
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from itertime.arrays import Array

from .hulls import Points
from .slowest import UnitPart

Indices = NDArray[np.integer]


def draw(rng: np.random.Generator, shares: ArrayLike, shape: tuple[int, ...], start: int = 0) -> Indices:
    """Indices from `start` on with the probabilities `shares`, by the alias method (Walker 1977; Vose 1991).

    They have 16 bits where these suffice, as they are sorted faster. Choosing by a product instead of a
    condition spares the processor a guess for each.
    """
    keep, alias = _alias_table(shares)
    u = rng.random(shape)
    u *= len(keep)
    column = u.astype(np.intp)
    u -= column
    small = start + len(keep) <= np.iinfo(np.int16).max
    width = np.int16 if small else np.int32
    share_of_column: NDArray[Any] = column.astype(width)
    alias_of_column: NDArray[Any] = alias.astype(width).take(column)
    return alias_of_column + (share_of_column - alias_of_column) * (u < keep.take(column)) + width(start)


def _alias_table(shares: ArrayLike) -> tuple[Array, NDArray[np.int32]]:
    """For each of the equally likely columns: the probability of its own index, and the other index."""
    keep = np.array(shares, dtype=float)
    count = len(keep)
    keep *= count / keep.sum()
    alias = np.arange(count, dtype=np.int32)
    small = [i for i in range(count) if keep[i] < 1]
    large = [i for i in range(count) if keep[i] >= 1]
    while small and large:
        low, high = small.pop(), large[-1]
        alias[low] = high
        keep[high] -= 1 - keep[low]
        if keep[high] < 1:
            small.append(large.pop())
    keep[[*small, *large]] = 1.0  # what rounding left
    return keep, alias


def deal(pools: Indices, ranks: int) -> Indices:
    """Sort the units of each pool from the largest, and deal them in a snake: the order of the ranks turns
    around from round to round, as Samsung's and NVIDIA's MLPerf runs do (`group_exchange_padding`).

    `pools`: pools x units. Returns pools x `ranks` x units of a rank, each rank from the largest.

    >>> deal(np.array([[1, 2, 3, 4, 5, 6]], dtype=np.int16), 2).tolist()
    [[[6, 3, 2], [5, 4, 1]]]
    """
    rounds = np.sort(pools, axis=1)[:, ::-1].reshape(len(pools), -1, ranks).copy()
    rounds[:, 1::2] = rounds[:, 1::2, ::-1]
    return rounds.swapaxes(1, 2)


def work_of_ranks(points: Points, dealt: Indices, micro_batch: int) -> Points:
    """Tokens and squares of every rank: draws x ranks x 2, from draws x ranks x units of a rank.

    `points`: units x 2. Every sample of a micro-batch counts as its longest.
    """
    if micro_batch > 1:
        dealt = dealt.reshape(*dealt.shape[:2], -1, micro_batch).max(axis=3)
    sums = [column.take(dealt).sum(axis=2) for column in points.T]
    return micro_batch * np.stack(sums, axis=2)


MOST_POOLS = 2_000


def pools_of(parts: Sequence[UnitPart], ranks: int) -> tuple[Indices, Array] | None:
    """The different pools that `ranks` ranks can draw from all parts, pools x units, and their probabilities.

    A unit is its index in all parts, one part after the other. The order of the draws does not matter, so the
    probabilities are those of multinomial distributions. None for more than `MOST_POOLS` pools.
    """
    sizes = [(len(part.shares), ranks * part.number) for part in parts]
    if math.prod(math.comb(units + drawn - 1, drawn) for units, drawn in sizes) > MOST_POOLS:
        return None
    start = 0
    choices = []
    for part, (units, drawn) in zip(parts, sizes, strict=True):
        choices.append(list(_draws((part.shares / part.shares.sum()).tolist(), drawn, start)))
        start += units
    pools = [[unit for units, _ in choice for unit in units] for choice in product(*choices)]
    chances = [math.prod(chance for _, chance in choice) for choice in product(*choices)]
    return np.array(pools, dtype=np.int32), np.array(chances)


def _draws(shares: Sequence[float], drawn: int, start: int) -> Iterator[tuple[tuple[int, ...], float]]:
    """Every multiset of `drawn` units, as indices from `start` on, with its probability."""
    for units in combinations_with_replacement(range(len(shares)), drawn):
        counts = [units.count(unit) for unit in range(len(shares))]
        orders = math.lgamma(drawn + 1) - math.fsum(math.lgamma(count + 1) for count in counts)
        log_chance = math.fsum(count * math.log(share) for share, count in zip(shares, counts, strict=True))
        yield tuple(start + unit for unit in units), math.exp(orders + log_chance)
