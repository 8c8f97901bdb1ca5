"""Draws of samples, and how they are dealt to ranks.

A unit is what is dealt: a sample, or a row of packed samples. Units are known by their index, in rising order
of their work. They are drawn independently of each other: a data set has far more than an iteration takes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from itertime.arrays import Array

from .hulls import Points

__all__ = ["Indices", "deal", "draw", "work_of_ranks"]

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
