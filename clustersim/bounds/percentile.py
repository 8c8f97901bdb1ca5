"""A bound of the 99th percentile of JCT."""

from __future__ import annotations

from math import floor

import numpy as np

from .columns import Columns, Floats
from .deadlines import met_at_most

__all__ = ["p99_s"]

_SHARE = 0.99


def p99_s(columns: Columns, alone: Floats, *, steps: int, visits: int, trials: int) -> float:
    """The least 99th percentile of JCT, interpolated between order statistics as in the metric (type 7 of
    Hyndman and Fan). `alone`: the least JCT of each job. `trials`: how many JCTs are tried for a statistic.

    *Statement.* With n jobs let h = 0.99 (n - 1) and m = floor(h) + 1. The percentile is the m-th shortest
    JCT + (h - floor(h)) x the difference to the next. The m-th shortest JCT is at least the m-th smallest of
    `alone`. It is above x if fewer than m jobs can be done within x of their release (`met_at_most`).

    *Proof.* Each JCT is at least its bound, so in order they are, too. If the m-th shortest were at most x,
    then m jobs would be done within x. The percentile grows with both statistics. []
    """
    place = _SHARE * (len(columns) - 1)
    rank, rest = floor(place) + 1, place - floor(place)
    least = np.sort(alone)

    def proved_s(count: int, from_s: float) -> float:
        """The largest x found for which fewer than `count` jobs can be done within x; `from_s` if none."""
        low_s, high_s = from_s, np.inf
        for _ in range(trials):
            x = 2.0 * low_s if high_s == np.inf else float(np.sqrt(low_s * high_s))
            if x <= 0 or high_s <= 1.02 * low_s:
                break
            met = met_at_most(columns, columns.release_s + x, steps=steps, visits=visits, enough=count - 1)
            low_s, high_s = (x, high_s) if met < count else (low_s, x)
        return low_s

    lower_s = proved_s(rank, float(least[rank - 1]))
    if not rest:
        return lower_s
    upper_s = proved_s(rank + 1, max(lower_s, float(least[rank])))
    return lower_s + rest * (upper_s - lower_s)
