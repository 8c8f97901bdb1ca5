"""Shortest job first."""

from __future__ import annotations

from clustersim.scheduler import JobView, Proposal, Scheduler, State

__all__ = ["Sjf"]


class Sjf(Scheduler):
    """Shortest run time at the requested GPUs first, not preemptive; the first job that does not fit blocks.

    A job that fits on no nodes that remain in the cluster (`State.ever_fits`) is skipped. Run times that
    users do not state come from the oracle.
    """

    def schedule(self, state: State) -> Proposal:
        proposal = state.proposal()
        for job in state.pending_by(_run_time):
            if not proposal.start(job) and state.ever_fits(job):
                break
        return proposal


def _run_time(job: JobView) -> float:
    return job.oracle_remaining()
