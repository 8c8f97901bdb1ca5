"""Positions of jobs on machines with the least total completion time, by a minimum-cost matching.

Horn, "Minimizing average flow time with parallel machines", Operations Research 21(3), 1973, and Bruno,
Coffman and Sethi, "Scheduling independent tasks to reduce mean finishing time", CACM 17(7), 1974: on
unrelated machines, a job that is k-th from the end on its machine adds k times its run time to the sum of all
completion times. So the best schedule is a matching of jobs with pairs (machine, k).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["Place", "lanes", "positions"]

Array = NDArray[np.float64]

Place = tuple[int, float]
"""(machine type, planned start in seconds from now)."""


def lanes(releases: Array, width: float) -> Array:
    """When `width` GPUs are free, twice `width`, and so on: one machine for each, ascending; one machine for
    all GPUs where there are fewer.

    `releases` (GPUs,): seconds until each is free.

    >>> lanes(np.array([0.0, 30.0, 0.0, 10.0, 20.0]), 2.0)
    array([ 0., 20.])
    """
    machines = max(1, int(len(releases) / width + 1e-9)) if len(releases) else 0
    lane_ends = np.ceil(width * np.arange(1, machines + 1) - 1e-9).astype(int) - 1
    return np.sort(releases)[np.minimum(lane_ends, len(releases) - 1)]


def positions(run_s: Array, share: Array, machines: Sequence[Array], behind: float = 0.0) -> list[Place]:
    """The type and planned start of each job at the least sum of completion times.

    `run_s` (jobs, types): seconds, infinite where a job cannot run; every job can on a type with machines.
    `share` (jobs,): how much of its run time a job keeps the jobs behind it waiting; 1 for jobs of a whole
    machine. `machines`: by type, the seconds until each machine is free, ascending. `behind`: further jobs
    that follow on each machine. Alike jobs of one type start in their order.

    A job that is k-th from the end of a machine which is free from r on costs
    r + run_s (1 + (k - 1 + behind) share). A pair (machine, k) is left out where as many others as there are
    jobs have neither a later r nor a larger k.
    """
    from scipy.optimize import linear_sum_assignment

    jobs = len(run_s)
    pairs = [(t, i, k, r) for t, free in enumerate(machines) for i, k, r in _pairs(free, jobs)]
    type_, machine, place = (np.array(column, dtype=int) for column in list(zip(*pairs, strict=True))[:3])
    release = np.array([r for *_, r in pairs])
    cost = run_s[:, type_] * (1 + (place[None, :] - 1 + behind) * share[:, None]) + release[None, :]
    possible = np.isfinite(cost)
    cost[~possible] = 2 * jobs * (1 + cost[possible].max(initial=0.0))
    rows, columns = linear_sum_assignment(cost)
    start_s = np.zeros(jobs)
    for t, i in sorted({(int(type_[c]), int(machine[c])) for c in columns}):
        mine = [(r, c) for r, c in zip(rows, columns, strict=True) if type_[c] == t and machine[c] == i]
        clock = float(machines[t][i])
        for r, _ in sorted(mine, key=lambda pair: -place[pair[1]]):
            start_s[r] = clock
            clock += float(run_s[r, t] * share[r])
    return _in_order(run_s, share, [int(type_[c]) for c in columns], start_s.tolist())


def _pairs(free: Array, jobs: int) -> list[tuple[int, int, float]]:
    """(machine, k, r) that a best matching may use, of machines of one type that are free in this order."""
    return [(i, k, r) for i, r in enumerate(free[:jobs].tolist()) for k in range(1, jobs // (i + 1) + 1)]


def _in_order(run_s: Array, share: Array, types: Sequence[int], start_s: Sequence[float]) -> list[Place]:
    """The places with those of alike jobs exchanged, so that of equal types the first job starts first."""
    jobs_of_kind: dict[tuple[float, ...], list[int]] = {}
    for row in range(len(types)):
        jobs_of_kind.setdefault((*run_s[row].tolist(), float(share[row]), types[row]), []).append(row)
    places = list(zip(types, start_s, strict=True))
    for rows in jobs_of_kind.values():
        for row, place in zip(rows, sorted(places[r] for r in rows), strict=True):
            places[row] = place
    return places
