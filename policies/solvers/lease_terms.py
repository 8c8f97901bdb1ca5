"""Leases for jobs with deadlines, by an integer program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .assignment import without_lines_of_highs

__all__ = ["LeaseDemand", "lease_terms"]

_LATENESS = 1e-3  # the last term costs this much more than the first, so that of equal plans the earlier wins


class LeaseDemand(NamedTuple):
    """What a job needs of the terms of leases.

    | field | |
    |---|---|
    | `gpus` | in every term that it gets |
    | `need_s` | seconds of work, and of overhead still to be paid where it runs |
    | `again_s` | seconds lost at each start, in a term that follows one without a lease |
    | `seconds` | of each term, how many lie before the deadline and are still to come |
    | `holds` | whether the job runs now, so that the first term is no start |
    | `keeps` | whether it must get the first term |
    """

    gpus: int
    need_s: float
    again_s: float
    seconds: tuple[float, ...]
    holds: bool = False
    keeps: bool = False


def lease_terms(
    demands: Sequence[LeaseDemand], free: Sequence[int], *, search_nodes: int
) -> list[tuple[int, ...]] | None:
    """The terms of each job, ascending, that meet all demands within the `free` GPUs of each term; None if
    there are none, or none were found in `search_nodes` nodes of HiGHS' search tree. It never stops by the
    clock.

    x[j, t] = 1 if job j has a lease in term t, y[j, t] >= x[j, t] - x[j, t - 1] if it starts there:

        sum over j of gpus[j] x[j, t] <= free[t]                                  for every t
        sum over t of seconds[j, t] x[j, t] - again_s[j] y[j, t] >= need_s[j]     for every j

    Of the solutions, one of nearly the least GPU-seconds, early terms before late ones.
    """
    if not demands:
        return []
    held = _solve(demands, free, search_nodes)
    if held is None:
        return None
    terms_by_job = [tuple(int(t) for t in np.flatnonzero(row)) for row in held]
    return terms_by_job if all(_meets(*pair) for pair in zip(demands, terms_by_job, strict=True)) else None


def _solve(demands: Sequence[LeaseDemand], free: Sequence[int], search_nodes: int) -> np.ndarray | None:
    """x by (job, term); None without a solution."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    jobs, terms = len(demands), len(free)
    half = jobs * terms
    seconds = np.array([demand.seconds for demand in demands])
    gpus = np.repeat([float(demand.gpus) for demand in demands], terms)
    term = np.tile(np.arange(terms), jobs)
    lower_bounds = np.zeros(2 * half)
    upper_bounds = np.concatenate([(seconds > 0).ravel(), np.ones(half)]).astype(float)
    lower_bounds[:half:terms] = [demand.keeps and demand.seconds[0] > 0 for demand in demands]
    held_before = np.zeros(half)
    held_before[::terms] = [demand.holds for demand in demands]
    starts, room, work = _rows(demands, terms, seconds, gpus)
    cost = gpus * seconds.ravel() * (1 + _LATENESS * term / terms)
    with without_lines_of_highs():
        result = milp(
            np.concatenate([cost / max(cost.max(), 1.0), np.zeros(half)]),
            integrality=np.concatenate([np.ones(half), np.zeros(half)]),
            bounds=Bounds(lower_bounds, upper_bounds),
            constraints=[
                LinearConstraint(starts, ub=held_before),
                LinearConstraint(room, ub=np.array(free, dtype=float)),
                LinearConstraint(work, lb=np.array([demand.need_s for demand in demands])),
            ],
            options={"mip_rel_gap": 0.05, "node_limit": search_nodes},
        )
    return None if result.x is None else np.rint(result.x[:half]).reshape(jobs, terms)


def _rows(
    demands: Sequence[LeaseDemand], terms: int, seconds: np.ndarray, gpus: np.ndarray
) -> tuple[Any, Any, Any]:
    """The matrices of the three constraints over all x, then all y: starts, free GPUs, and work."""
    from scipy.sparse import csr_array

    jobs, columns = len(demands), np.arange(len(demands) * terms)
    half = len(columns)
    job, term = np.divmod(columns, terms)
    later = np.flatnonzero(term > 0)
    again = np.repeat([demand.again_s for demand in demands], terms)
    starts = csr_array(
        (
            np.concatenate([np.ones(half), -np.ones(len(later)), -np.ones(half)]),
            (
                np.concatenate([columns, later, columns]),
                np.concatenate([columns, later - 1, half + columns]),
            ),
        ),
        shape=(half, 2 * half),
    )
    room = csr_array((gpus, (term, columns)), shape=(terms, 2 * half))
    work = csr_array(
        (np.concatenate([seconds.ravel(), -again]), (np.concatenate([job, job]), np.arange(2 * half))),
        shape=(jobs, 2 * half),
    )
    return starts, room, work


def _meets(demand: LeaseDemand, terms: tuple[int, ...]) -> bool:
    """Whether the terms do the work, without the solver's tolerances."""
    starts = sum(t - 1 not in terms and not (t == 0 and demand.holds) for t in terms)
    return sum(demand.seconds[t] for t in terms) - starts * demand.again_s >= demand.need_s
