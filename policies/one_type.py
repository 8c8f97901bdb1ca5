"""Shares of time on GPUs that are all alike: the programs of `timeshares.py` in closed form.

With one type X is a column, and a job's throughput relative to it is X[m] itself; what is left is

    0 <= X[m] <= 1;    sum over m of load[m] X[m] <= capacity        with load[m] = gpus[m] x copies[m]

so that a common level is limited by the row that needs most of its time, or by all GPUs together, and a
largest sum is a fractional knapsack (Dantzig, Operations Research 1957).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["fullest_shares", "level_of_shares"]

Array = NDArray[np.float64]


def level_of_shares(
    load: Array, capacity: float, required: Array, floors: Array
) -> tuple[Array, float, Array]:
    """The largest level at which X[m] >= level x required[m], X[m] >= floors[m] where nothing is required:
    X (rows,), the level, and prices (rows,) as of `timeshares.Level`.

    Where several rows need all of their time, each has an equal part of the price.

    >>> X, level, prices = level_of_shares(np.array([8., 4.]), 8.0, np.array([1., 2.]), np.zeros(2))
    >>> X, level, prices
    (array([0.5, 1. ]), 0.5, array([0.5 , 0.25]))
    """
    asked = required > 0
    left = max(0.0, capacity - float(load @ np.where(asked, 0.0, floors)))
    total, most = float(load @ required), float(required.max())
    if left * most <= total:
        level, prices = left / total, load / total
    else:
        level, longest = 1 / most, required == most
        prices = longest / (most * longest.sum())
    return np.where(asked, level * required, floors), level, prices


def fullest_shares(load: Array, capacity: float, worth: Array, floors: Array) -> Array:
    """X (rows,) >= floors with the largest sum of worth[m] x load[m] X[m]: what the floors leave goes to the
    rows worth most per GPU, of equal ones to the last: the jobs that came last have received least.

    >>> fullest_shares(np.array([8., 4., 4.]), 10.0, np.array([1., 1., 2.]), np.array([0., 0.5, 0.]))
    array([0.25, 1.  , 1.  ])
    """
    order = np.argsort(worth, kind="stable")[::-1]
    room = (load * np.maximum(0.0, 1 - floors))[order]
    before = np.cumsum(room) - room
    left = capacity - float(load @ floors)
    shares = np.minimum(1.0, floors)
    shares[order] += np.clip(left - before, 0.0, room) / load[order]
    return shares
