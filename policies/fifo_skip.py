"""First in, first out, but a job that does not fit is skipped."""

from __future__ import annotations

from clustersim.scheduler import JobView, Proposal, Scheduler, State

__all__ = ["FifoSkip"]


def _submission(job: JobView) -> int:
    return job.order


class FifoSkip(Scheduler):
    """First come, first served, not preemptive; a job that does not fit is skipped, without a reservation:
    large jobs may starve.
    """

    def schedule(self, state: State) -> Proposal:
        proposal = state.proposal()
        for job in state.pending_by(_submission).walk(proposal.fits):
            proposal.start(job)
        return proposal
