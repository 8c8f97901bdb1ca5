"""What Gavel's four policies and gandiva-fair share: rounds that follow shares of time.

Narayanan et al., "Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads", OSDI 2020. A
policy computes X[m, j], the fraction of its time that job m is to spend on GPU type j, as the solution of a
linear program. Rounds follow X by priorities (section 5): the time that X assigns to a job on a GPU type,
over the time that the job has spent there. Where jobs share GPUs, X has further columns: the time on a type
beside a job of another kind (`policies/packing/space_sharing.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from clustersim.scheduler import JobView, Proposal, Scheduler, State

from .parameters import number, switch
from .rounds import Rounds

__all__ = ["Gavel", "Ledger", "priorities"]

Array = NDArray[np.float64]


def priorities(owed: Array, received: Array) -> Array:
    """owed / received, element by element; infinite where time is owed and none was received, 0 where none is
    owed. Both (jobs, types), in the same unit of time.

    >>> print(priorities(np.array([[0.6, 0.4, 0.0]]), np.array([[3.0, 0.0, 1.0]])))
    [[0.2 inf 0. ]]
    """
    ratio = np.divide(owed, received, out=np.full_like(owed, np.inf), where=received > 0)
    return np.where(owed > 0, ratio, 0.0)


class Ledger:
    """The time owed to each job and received by it, in seconds by column of X, from its first round on.

    The time owed is the integral of the share over time, so a change of shares keeps the past. With constant
    shares, owed / received orders jobs of equal age as X / received does. Columns are the GPU types, and
    later ones ways to share their GPUs, which may become more.
    """

    def __init__(self, types: int):
        self._types = types
        self._row: dict[JobView, int] = {}  # in the tables (jobs, columns) and vectors (jobs,) below
        self._share, self._owed, self._received = (np.zeros((0, types)) for _ in range(3))
        self._attained = np.zeros(0)  # GPU-seconds at the last call of `book`
        self._column = np.zeros(0, dtype=int)  # in which each job has run since
        self._part = np.zeros(0)  # of its GPUs that each has held, 0 if it has not run
        self._since_s = 0.0

    def book(self, jobs: Sequence[JobView], now: float) -> None:
        """Enter what happened since the last call. Accounts of jobs other than `jobs` are dropped."""
        passed_s, self._since_s = now - self._since_s, now
        rows = np.array([self._row.get(job, -1) for job in jobs], dtype=int)  # -1: the row of zeros
        self._row = {job: i for i, job in enumerate(jobs)}
        self._share, self._owed, self._received, self._attained, self._column, self._part = (
            np.concatenate([table, np.zeros((1, *table.shape[1:]), dtype=table.dtype)])[rows]
            for table in (
                self._share, self._owed, self._received, self._attained, self._column, self._part,
            )
        )  # fmt: skip
        attained = np.array([job.attained for job in jobs])
        requested = np.array([job.requested for job in jobs])
        self._owed += self._share * passed_s
        held = requested * np.where(self._part > 0, self._part, 1.0)
        self._received[np.arange(len(jobs)), self._column] += (attained - self._attained) / held
        self._attained = attained

    def set_shares(self, shares: Array) -> None:
        """The shares (jobs, columns) owed from now on, to jobs in the order of the last call of `book`."""
        new_columns = shares.shape[1] - self._owed.shape[1]
        if new_columns:
            self._owed, self._received = (
                np.pad(table, ((0, 0), (0, new_columns))) for table in (self._owed, self._received)
            )
        self._share = shares

    def ranked(self, ahead_s: float) -> list[tuple[JobView, int]]:
        """(job, column) pairs by priority, with the coming `ahead_s` seconds counted as owed. Ties: the
        larger share first, then in order of submission. Pairs of a job and a type without a share come last;
        other columns without a share are left out.
        """
        if not self._row:
            return []
        jobs, share = list(self._row), self._share
        rank = priorities(np.where(share > 0, self._owed + share * ahead_s, 0.0), self._received)
        listed = share > 0
        listed[:, : self._types] = True
        row, column = np.nonzero(listed)
        order = np.lexsort((column, row, -share[listed], -rank[listed]))
        return [(jobs[i], j) for i, j in zip(row[order].tolist(), column[order].tolist(), strict=True)]

    def share(self, job: JobView, column: int) -> float:
        """The share of its time that a job is to have in a column."""
        return float(self._share[self._row[job], column])

    def ran_on(self, job: JobView, column: int, part: float = 1.0) -> None:
        """Note that a job runs in this column from now on, and which part of its GPUs it holds."""
        self._column[self._row[job]], self._part[self._row[job]] = column, part


class Gavel(Scheduler):
    """The base of Gavel's policies: at the beginning of a round, shares of time are computed anew if the set
    of jobs has changed, or with `recompute_every_round` always. Jobs run in the order of their priorities.

    Jobs run at their requested GPUs. A job that arrives within a round of `round_s` seconds waits for the
    next one.
    """

    leaves_idle = False

    def __init__(self, round_s: float = 360.0, recompute_every_round: bool = False):
        self.round_s = number("round_s", round_s, 1.0, 1e7)
        self.recompute_every_round = switch("recompute_every_round", recompute_every_round)
        self._rounds = Rounds(self.round_s)
        self._ledger: Ledger | None = None
        self._jobs: list[JobView] = []  # in the last round

    def time_shares(
        self, jobs: Sequence[JobView], rates: Array, capacity: Sequence[int], now: float
    ) -> Array:
        """X (jobs, types). `jobs` are in order of submission; `rates` (jobs, types) are `JobView.rate` on the
        requested GPUs; `capacity` is the number of GPUs of each type.
        """
        raise NotImplementedError

    def columns(self, jobs: Sequence[JobView], rates: Array, capacity: Sequence[int], now: float) -> Array:
        """The shares of `time_shares` in the columns of the ledger."""
        return self.time_shares(jobs, rates, capacity, now)

    def run(self, proposal: Proposal, ledger: Ledger, state: State) -> None:
        """Make the draft what runs in this round, by the priorities of the ledger, and tell the ledger."""
        types = state.cluster.gpu_types
        pairs = ((job, job.requested, types[i]) for job, i in ledger.ranked(self.round_s) if i < len(types))
        able = [pair for pair in pairs if pair[0].can_run_on(pair[1], pair[2])]
        proposal.run(able, smaller=False, let_settle=True)
        for job in proposal.running():
            ledger.ran_on(job, types.index(proposal.gpu_type(job)))

    def schedule(self, state: State) -> Proposal:
        if not self._rounds.begins(state):
            return self._rounds.until_end(state.proposal(), state)
        types = state.cluster.gpu_types
        if self._ledger is None:
            self._ledger = Ledger(len(types))
        jobs = sorted([*state.running, *state.pending], key=lambda job: job.order)
        self._ledger.book(jobs, state.now)
        if jobs and (self.recompute_every_round or jobs != self._jobs):
            rates = np.array([[job.rate(job.requested, name) for name in types] for job in jobs])
            capacity = [pool.gpus for pool in state.cluster.pools]
            self._ledger.set_shares(self.columns(jobs, rates, capacity, state.now))
        self._jobs = jobs
        proposal = state.proposal()
        self.run(proposal, self._ledger, state)
        return self._rounds.until_end(proposal, state)
