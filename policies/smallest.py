"""Smallest job first."""

from __future__ import annotations

from clustersim.scheduler import JobView, Proposal, Scheduler, State

__all__ = ["Smallest"]


class Smallest(Scheduler):
    """Fewest requested GPUs first, preemptive, ties in order of submission; a job that does not fit is
    skipped.

    Small jobs pass large ones however late they arrive, so large jobs starve while there are enough small
    ones.
    """

    def schedule(self, state: State) -> Proposal:
        proposal = state.proposal()
        proposal.run_by(_size, falling=True)
        return proposal


def _size(job: JobView) -> int:
    return job.requested
