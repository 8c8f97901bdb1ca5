"""Gavel: policies as linear programs over shares of time, realised in rounds.

Narayanan et al., "Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads", OSDI 2020.
A policy computes X[m, j], the fraction of its time that job m is to spend on GPU type j (`timeshares.py`);
rounds follow it by priorities (`ledger.py`). Here is what Gavel's four policies share.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from clustersim.scheduler import JobView, Proposal, Scheduler, State
from policies.toolkit.fulfil import run_ranked
from policies.toolkit.gavel import Ledger
from policies.toolkit.parameters import number

from .rounds import Rounds

__all__ = ["Gavel"]

Array = NDArray[np.float64]


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
