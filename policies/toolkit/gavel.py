"""Gavel: policies as linear programs over shares of time, realised in rounds.

Narayanan et al. (Gavel), OSDI 2020, section 5: in every round jobs run in the order of their priorities, the
time that X says they should have spent on a type over the time that they have spent there.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from clustersim.scheduler import JobView, Proposal, Scheduler, State

from .fulfil import run_ranked
from .parameters import number
from .rounds import Rounds

__all__ = ["Gavel", "Ledger", "priorities"]

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


class Gavel(Scheduler):
    """What Gavel's policies share: at the beginning of a round, if other jobs are here than before, shares of
    time are computed anew; then jobs run in the order of their priorities.

    Jobs run at their requested GPUs. A job that arrives within a round of `round_s` seconds waits for the
    next one.
    """

    def __init__(self, round_s: float = 360.0):
        self.round_s = number("round_s", round_s, 1.0, 1e7)
        self._rounds = Rounds(self.round_s)
        self._ledger: Ledger | None = None
        self._jobs: list[JobView] = []  # of the last round

    def time_shares(
        self, jobs: Sequence[JobView], rates: Array, capacity: Sequence[int], now: float
    ) -> Array:
        """X (jobs, types) for `jobs` in order of submission; `rates` (jobs, types) as `JobView.rate` on the
        requested GPUs, `capacity` the GPUs of each type.
        """
        raise NotImplementedError

    def schedule(self, state: State) -> Proposal:
        if not self._rounds.begins(state):
            return self._rounds.until_end(state.proposal(), state)
        types = state.cluster.gpu_types
        if self._ledger is None:
            self._ledger = Ledger(len(types))
        jobs = sorted([*state.running, *state.pending], key=lambda job: job.order)
        self._ledger.book(jobs, state.now)
        if jobs and jobs != self._jobs:
            rates = np.array([[job.rate(job.requested, name) for name in types] for job in jobs])
            capacity = [pool.gpus for pool in state.cluster.pools]
            self._ledger.set_shares(self.time_shares(jobs, rates, capacity, state.now))
        self._jobs = jobs
        pairs = ((job, job.requested, types[i]) for job, i in self._ledger.ranked(self.round_s))
        proposal = run_ranked(state, [pair for pair in pairs if pair[0].can_run_on(pair[1], pair[2])])
        for job in proposal.running():
            self._ledger.ran_on(job, types.index(proposal.gpu_type(job)))
        return self._rounds.until_end(proposal, state)
