"""Shortest remaining time first."""

from __future__ import annotations

from clustersim.scheduler import JobView, Proposal, Scheduler, State

__all__ = ["Srtf"]


class Srtf(Scheduler):
    """Shortest remaining time at the requested GPUs first, preemptive; a job that does not fit is skipped.

    Optimal for mean completion time on one server (Schrage 1968); a common yardstick on many. Run times
    that users do not state come from the oracle.
    """

    def schedule(self, state: State) -> Proposal:
        proposal = state.proposal()
        proposal.run_by(_remaining, falling=True)
        return proposal


def _remaining(job: JobView) -> float:
    return job.oracle_remaining()
