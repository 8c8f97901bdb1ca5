"""EASY's reservation: when the job at the head of the queue can start at the latest, and who may start before
it without being in its way.
"""

from __future__ import annotations

from math import inf

from clustersim.scheduler import JobView, Proposal
from policies.toolkit.backfill import Estimates

__all__ = ["Shadow"]


class Shadow:
    """The reservation of `head`, which has no room in `proposal` now.

    `start_s`, the shadow time, is when enough of the running jobs will have ended, by the estimates; infinite
    if there is no room for it even then. It is found in a draft of that moment, so that it holds for the
    places of GPUs, not only for their number.
    """

    def __init__(self, head: JobView, proposal: Proposal, estimates: Estimates, now: float):
        self.head, self.now = head, now
        self._proposal, self._estimates = proposal, estimates
        self._later = proposal.copy()
        ends = [(estimates.end_s(job, now), job.order, job) for job in proposal.running()]
        self.start_s = inf
        for end_s, _, job in sorted(ends, key=lambda end: end[:2]):
            if end_s > self.start_s:
                break
            self._later.stop(job)
            if self.start_s == inf and self._later.fits(head.requested):
                self.start_s = end_s

    def backfill(self, job: JobView) -> bool:
        """Start `job` now if there is room and the head can still start at `start_s`."""
        if self.now + self._estimates.run_s(job) <= self.start_s:
            return self._proposal.start(job) is not None
        if job.requested > self._later.free - self.head.requested:
            return False
        places = self._proposal.start(job)
        if places is None:
            return False
        self._later.start(job, on=places)
        if self._later.fits(self.head.requested):
            return True
        self._later.stop(job)
        self._proposal.stop(job)
        return False
