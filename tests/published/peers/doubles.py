"""Our policies with what other programs do differently, to show that nothing else differs."""

from bisect import bisect_right
from collections.abc import Sequence
from math import floor, inf

import numpy as np
from numpy.typing import NDArray

from clustersim.scheduler import JobView, Proposal, State
from policies.easy import Easy
from policies.gavel_ftf import GavelFtf
from policies.gavel_max_min import GavelMaxMin
from policies.tiresias import Tiresias
from policies.toolkit.backfill import RunTimeEstimates, Shadow
from policies.toolkit.gavel import Gavel, Ledger


class LateTiresias(Tiresias):
    """A running job is looked at only at events, and (limit - seconds run) / GPUs after the last one instead
    of limit / GPUs - seconds run: a job of several GPUs falls late, as in the simulator of Tiresias' authors.
    """

    def schedule(self, state: State) -> Proposal:
        proposal = super().schedule(state)
        changes = [self._falls_s(job, state.now) for job in proposal.running()]
        changes += [time for time in self._promotion_s.values() if time > state.now]
        next_s = min(changes, default=inf)
        proposal.wake_at = next_s if next_s < inf else None
        return proposal

    def _fall(self, state: State) -> list[JobView]:
        fallen_jobs = []
        for job in sorted(state.running, key=lambda job: job.order):
            queue = bisect_right(self.thresholds_gpu_s, self._service(job) + 1e-3)
            if queue > self._places[job][0]:
                self._places[job] = queue, 1, next(self._last)
                state.rerank(self._standing, job)
                fallen_jobs.append(job)
        return fallen_jobs

    def _falls_s(self, job: JobView, now: float) -> float:
        service = self._service(job)
        queue = bisect_right(self.thresholds_gpu_s, service + 1e-3)
        if queue == len(self.thresholds_gpu_s):
            return inf
        looked_s = floor((self.thresholds_gpu_s[queue] - service / job.requested) / job.requested + 1e-6)
        return now + looked_s if looked_s > 0 else inf


class FixedShadow(Easy):
    """The shadow time of the first job of the queue does not move when jobs end early, and there are no extra
    nodes: a later job starts only if it ends by then, as in batsched's easy_bf_fast.
    """

    def __init__(self, estimate_factor: float = 1.0):
        super().__init__(estimate_factor)
        self._head: JobView | None = None
        self._start_s = inf

    def shadow(self, head: JobView, proposal: Proposal, state: State) -> Shadow:
        shadow = super().shadow(head, proposal, state)
        if head is not self._head:
            self._head, self._start_s = head, shadow.start_s
        return _NoExtraNodes(head, proposal, self._estimates, state.now, self._start_s)


class _NoExtraNodes(Shadow):
    def __init__(
        self, head: JobView, proposal: Proposal, estimates: RunTimeEstimates, now: float, start_s: float
    ):
        super().__init__(head, proposal, estimates, now)
        self.start_s = start_s

    def backfill(self, job: JobView) -> bool:
        ends_in_time = self.now + self._estimates.run_s(job) <= self.start_s
        return ends_in_time and self._proposal.start(job) is not None


class KeptShares(Gavel):
    """Shares of time stay for at least 1,920 s, jobs that arrive in between have none, and jobs without a
    share get no GPUs: as Gavel's simulator is shipped. To be mixed into one of Gavel's policies.
    """

    _computed_s, _kept = -inf, dict[JobView, NDArray[np.float64]]()

    def schedule(self, state: State) -> Proposal:
        if self._ledger is None:
            self._ledger = _OnlyShares(len(state.cluster.gpu_types))
        return super().schedule(state)

    def time_shares(
        self, jobs: Sequence[JobView], rates: NDArray[np.float64], capacity: Sequence[int], now: float
    ) -> NDArray[np.float64]:
        if now >= self._computed_s + 1920 - 1e-3:
            shares = super().time_shares(jobs, rates, capacity, now)
            self._computed_s, self._kept = now, dict(zip(jobs, shares, strict=True))
        return np.array([self._kept.get(job, np.zeros(len(capacity))) for job in jobs])


class _OnlyShares(Ledger):
    def ranked(self, ahead_s: float) -> list[tuple[JobView, int]]:
        return [(job, type_) for job, type_ in super().ranked(ahead_s) if self._share[self._row[job], type_]]


class KeptMaxMin(KeptShares, GavelMaxMin):
    """Max-min fairness with shares that are kept."""


class KeptFtf(KeptShares, GavelFtf):
    """Finish-time fairness with shares that are kept."""
