"""Pairs of the greatest total weight, among things of a few kinds."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from .assignment import without_lines_of_highs

__all__ = ["best_pairs"]


def best_pairs(counts: Sequence[int], weights: Sequence[Sequence[float]]) -> dict[tuple[int, int], int]:
    """How many pairs of kinds (a, b), a <= b, a matching of the greatest total weight has.

    `counts`: how many things there are of each kind. `weights[a][b]`: the weight of such a pair; pairs of 0
    and less are not made. Every thing is in at most one pair. This is maximum weight matching (Edmonds,
    "Paths, Trees, and Flowers", 1965) in a graph whose nodes are alike within a kind, so an integer program
    with one variable for each pair of kinds solves it exactly, however many things there are:

        max  sum w[a, b] x[a, b]    with    2 x[a, a] + sum over b != a of x[a, b] <= counts[a]

    HiGHS stops after 10,000 nodes of its search tree and never by the clock.

    >>> best_pairs([2, 1], [[0.1, 0.5], [0.5, 0.0]])
    {(0, 1): 1}
    """
    return dict(_solved(tuple(counts), tuple(tuple(row) for row in weights)))


@lru_cache(10_000)  # queues change slowly, and the same numbers come again
def _solved(counts: tuple[int, ...], weights: tuple[tuple[float, ...], ...]) -> dict[tuple[int, int], int]:
    from scipy.optimize import Bounds, LinearConstraint, milp

    kinds = range(len(counts))
    pairs = [(a, b) for a in kinds for b in kinds if a <= b and weights[a][b] > 0]
    pairs = [(a, b) for a, b in pairs if (counts[a] > 1 if a == b else counts[a] and counts[b])]
    if not pairs:
        return {}
    membership = np.zeros((len(counts), len(pairs)))
    for i, (a, b) in enumerate(pairs):
        membership[a, i] += 1
        membership[b, i] += 1
    with without_lines_of_highs():
        solution = milp(
            -np.array([weights[a][b] for a, b in pairs]),
            integrality=np.ones(len(pairs)),
            bounds=Bounds(0, np.inf),
            constraints=LinearConstraint(membership, ub=np.array(counts, float)),
            options={"mip_rel_gap": 0.0, "node_limit": 10_000},
        )
    assert solution.x is not None, "no pairs at all are a solution"
    pair_counts = np.rint(solution.x).astype(int).tolist()
    return {pair: n for pair, n in zip(pairs, pair_counts, strict=True) if n}
