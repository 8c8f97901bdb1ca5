"""Finish-time fairness by linear programs: the smallest ratio that all jobs can attain.

rho_T(m, X) = (elapsed + remaining / throughput(m, X)) / isolated, where isolated is the time from submission
to finish that the job would have alone on 1/N of the cluster. The ratio is that of Mahajan et al. (Themis),
NSDI 2020, in the form of Narayanan et al. (Gavel), OSDI 2020, section 4.2.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .time_shares import Problem, largest_level

__all__ = ["isolated_shares", "least_ratio"]

Array = NDArray[np.float64]
_MOST_CUTS, _MOST_STEPS, _TOLERANCE = 40, 60, 1e-7


def isolated_shares(problem: Problem, jobs: int) -> Array:
    """X_isolated (rows, types): a job's shares of time when it alone has 1/`jobs` of every type."""
    shares = problem.capacity[None, :] / (jobs * problem.gpus[:, None])
    return shares / np.maximum(1.0, shares.sum(axis=1, keepdims=True))


def least_ratio(problem: Problem, elapsed: Array, remaining: Array, isolated: Array) -> tuple[float, Array]:
    """The smallest rho that all rows can attain together, and the throughput (rows,) that each needs for it.

    `elapsed`: seconds since submission; `remaining`: seconds of work left on the best type; `isolated`: as in
    the module's docstring, in seconds.

    For a given rho, row m needs the throughput remaining / (rho isolated - elapsed). Whether all rows can
    have theirs is a linear program, with an optimal level below 1 if they cannot. By duality, its prices y
    and its level bound every attainable rho: the sum of y[m] need[m](rho) is at most the level. The smallest
    rho that satisfies the bound is tried next. This cutting-plane method rises to the solution in few
    programs.
    """
    rho = float(((elapsed + remaining) / isolated).max())
    for _ in range(_MOST_CUTS):
        need = remaining / (rho * isolated - elapsed)
        best = largest_level(problem, need)
        if best.level >= 1 - _TOLERANCE:
            return rho, need
        rho = _root(best.prices, best.level, rho, elapsed, remaining, isolated)
    return rho, min(1.0, best.level) * need


def _root(
    prices: Array, level: float, rho: float, elapsed: Array, remaining: Array, isolated: Array
) -> float:
    """The rho at which the sum of prices x need(rho) equals the level, by Newton's method from the left: the
    sum is convex and falling.
    """
    for _ in range(_MOST_STEPS):
        spare = rho * isolated - elapsed
        need = remaining / spare
        excess = float(prices @ need) - level
        if excess <= _TOLERANCE * level:
            break
        rho += excess / float(prices @ (need * isolated / spare))
    return rho
