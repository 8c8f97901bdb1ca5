"""First in, first out."""

from __future__ import annotations

from clustersim.scheduler import Proposal, Scheduler, State

__all__ = ["Fifo"]


class Fifo(Scheduler):
    """First come, first served, not preemptive; the head of the queue blocks.

    A job that fits on no nodes that remain in the cluster (`State.ever_fits`) is skipped.
    """

    def schedule(self, state: State) -> Proposal:
        proposal = state.proposal()
        for job in state.pending:
            if not proposal.start(job) and state.ever_fits(job):
                break
        return proposal
