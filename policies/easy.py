"""EASY backfilling."""

from __future__ import annotations

from math import inf

from clustersim.scheduler import JobView, Proposal, Scheduler, State
from policies.toolkit.backfill import RunTimeEstimates, Shadow

__all__ = ["Easy"]


class Easy(Scheduler):
    """First come, first served, not preemptive; a later job may start earlier if it does not delay the first
    job of the queue, by estimated run times.

    Lifka, "The ANL/IBM SP scheduling system", JSSPP 1995; the algorithm as in Mu'alem and Feitelson, IEEE
    TPDS 2001. The estimate is the user's (`estimate_s`) where the trace has one. Other jobs that state no
    work are estimated at `estimate_factor` times their logged duration.
    """

    def __init__(self, estimate_factor: float = 1.0):
        self._estimates = RunTimeEstimates(estimate_factor)
        self.estimate_factor = self._estimates.factor

    def schedule(self, state: State) -> Proposal:
        self._estimates.update(state)
        proposal = state.proposal()
        if proposal.plans_closures:
            start, now = self._estimates.start, state.now
            head = next((job for job in state.pending if not start(job, proposal, now)), None)
        else:
            head = next((job for job in state.pending if not proposal.start(job)), None)
        if head is not None and not proposal.full:
            shadow = self.shadow(head, proposal, state)
            for job in state.pending_by(_submission).walk(proposal.fits):
                if job.order > head.order:
                    shadow.backfill(job)
            if (expiry_s := self._estimates.watch(proposal, state.now)) < inf:
                proposal.wake_at = expiry_s
        return proposal

    def shadow(self, head: JobView, proposal: Proposal, state: State) -> Shadow:
        return Shadow(head, proposal, self._estimates, state.now)


def _submission(job: JobView) -> int:
    return job.order
