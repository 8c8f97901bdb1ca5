"""Shortest remaining service first."""

from __future__ import annotations

from clustersim.scheduler import JobView, Proposal, Scheduler, State

__all__ = ["Srsf"]


class Srsf(Scheduler):
    """Least remaining service (remaining seconds x requested GPUs) first, preemptive; a job that does
    not fit is skipped.

    Gu et al., "Tiresias: A GPU Cluster Manager for Distributed Deep Learning", NSDI 2019, section 3.1. Run
    times that users do not state come from the oracle.
    """

    def schedule(self, state: State) -> Proposal:
        proposal = state.proposal()
        proposal.run_by(_remaining_service, falling=True)
        return proposal


def _remaining_service(job: JobView) -> float:
    return job.oracle_remaining() * job.requested
