"""Who is owed how much time on which type of GPU, and who has received it: Gavel's round-based mechanism.

Narayanan et al. (Gavel), OSDI 2020, section 5: in every round jobs run in the order of their priorities, the
time that X says they should have spent on a type over the time that they have spent there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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


@dataclass
class _Account:
    share: Array
    owed: Array
    received: Array
    attained: float = 0.0  # GPU-seconds at the last booking
    type: int = 0  # on which it ran since


class Ledger:
    """Accounts of all jobs, in seconds by GPU type, from their first round on.

    Owed is the integral of the share over time, so that shares may change without the past being forgotten:
    with constant shares owed / received orders jobs of one age as X / received does.
    """

    def __init__(self, types: int):
        self._types = types
        self._accounts: dict[JobView, _Account] = {}
        self._since_s = 0.0

    def book(self, jobs: Sequence[JobView], now: float) -> None:
        """Enter what happened since the last booking; keep accounts for `jobs` alone."""
        passed_s, self._since_s = now - self._since_s, now
        before = self._accounts
        self._accounts = {job: before.get(job) or self._open() for job in jobs}
        for job, account in self._accounts.items():
            if job in before:
                account.owed += account.share * passed_s
            account.received[account.type] += (job.attained - account.attained) / job.requested
            account.attained = job.attained

    def _open(self) -> _Account:
        nothing = np.zeros(self._types)
        return _Account(nothing, nothing.copy(), nothing.copy())

    def set_shares(self, shares: Array) -> None:
        """From now on jobs, in the order of the last booking, are owed these shares (jobs, types)."""
        for account, share in zip(self._accounts.values(), shares, strict=True):
            account.share = share

    def ranked(self, ahead_s: float) -> list[tuple[JobView, int]]:
        """(job, type) pairs by priority, the coming `ahead_s` seconds owed already; of equal ones the larger
        share first, then in order of submission. Pairs without a share come last.
        """
        if not self._accounts:
            return []
        jobs, accounts = list(self._accounts), list(self._accounts.values())
        share = np.array([account.share for account in accounts])
        owed = np.array([account.owed for account in accounts]) + share * ahead_s
        rank = priorities(np.where(share > 0, owed, 0.0), np.array([a.received for a in accounts]))
        row, type_ = (index.ravel() for index in np.indices(share.shape))
        order = np.lexsort((type_, row, -share.ravel(), -rank.ravel()))
        return [(jobs[row[i]], int(type_[i])) for i in order]

    def ran_on(self, job: JobView, type_: int) -> None:
        """Note that a job runs on GPUs of this type from now on."""
        self._accounts[job].type = type_
