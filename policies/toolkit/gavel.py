"""Who is owed how much time on which type of GPU, and who has received it: Gavel's round-based mechanism.

Narayanan et al. (Gavel), OSDI 2020, section 5: in every round jobs run in the order of their priorities, the
time that X says they should have spent on a type over the time that they have spent there.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from clustersim.scheduler import JobView

__all__ = ["Ledger", "priorities"]

Array = NDArray[np.float64]


def priorities(owed: Array, received: Array) -> Array:
    """owed / received, element by element: infinite for what was owed and never given, 0 where nothing is
    owed. Both (jobs, types), in the same unit of time.

    >>> print(priorities(np.array([[0.6, 0.4, 0.0]]), np.array([[3.0, 0.0, 1.0]])))
    [[0.2 inf 0. ]]
    """
    ratio = np.divide(owed, received, out=np.full_like(owed, np.inf), where=received > 0)
    return np.where(owed > 0, ratio, 0.0)


class Ledger:
    """Accounts of all jobs, in seconds by GPU type, from their first round on.

    Owed is the integral of the share over time, so that shares may change without the past being forgotten:
    with constant shares owed / received orders jobs of one age as X / received does.
    """

    def __init__(self, types: int):
        self._row: dict[JobView, int] = {}  # of the tables (jobs, types) and columns (jobs,) below
        self._share, self._owed, self._received = (np.zeros((0, types)) for _ in range(3))
        self._attained = np.zeros(0)  # GPU-seconds at the last booking
        self._type = np.zeros(0, dtype=int)  # on which a job ran since
        self._since_s = 0.0

    def book(self, jobs: Sequence[JobView], now: float) -> None:
        """Enter what happened since the last booking; keep accounts for `jobs` alone."""
        passed_s, self._since_s = now - self._since_s, now
        rows = np.array([self._row.get(job, -1) for job in jobs], dtype=int)  # the last one is that of nobody
        self._row = {job: i for i, job in enumerate(jobs)}
        self._share, self._owed, self._received, self._attained, self._type = (
            np.concatenate([table, np.zeros((1, *table.shape[1:]), dtype=table.dtype)])[rows]
            for table in (self._share, self._owed, self._received, self._attained, self._type)
        )
        attained = np.array([job.attained for job in jobs])
        requested = np.array([job.requested for job in jobs])
        self._owed += self._share * passed_s
        self._received[np.arange(len(jobs)), self._type] += (attained - self._attained) / requested
        self._attained = attained

    def set_shares(self, shares: Array) -> None:
        """From now on jobs, in the order of the last booking, are owed these shares (jobs, types)."""
        self._share = shares

    def ranked(self, ahead_s: float) -> list[tuple[JobView, int]]:
        """(job, type) pairs by priority, the coming `ahead_s` seconds owed already; of equal ones the larger
        share first, then in order of submission. Pairs without a share come last.
        """
        if not self._row:
            return []
        jobs, share = list(self._row), self._share
        rank = priorities(np.where(share > 0, self._owed + share * ahead_s, 0.0), self._received)
        row, type_ = (index.ravel() for index in np.indices(share.shape))
        order = np.lexsort((type_, row, -share.ravel(), -rank.ravel()))
        return [(jobs[i], j) for i, j in zip(row[order].tolist(), type_[order].tolist(), strict=True)]

    def ran_on(self, job: JobView, type_: int) -> None:
        """Note that a job runs on GPUs of this type from now on."""
        self._type[self._row[job]] = type_
