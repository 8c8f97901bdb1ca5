"""Earliest deadline first."""

from __future__ import annotations

from math import inf

from clustersim.scheduler import JobView, Proposal, Scheduler, State

__all__ = ["Edf"]


class Edf(Scheduler):
    """Earliest deadline first, preemptive, at the requested GPUs; jobs without a deadline last; a job that
    does not fit is skipped.

    Liu and Layland, JACM 1973, for one processor; on many, and with gangs, it is a heuristic.
    """

    def schedule(self, state: State) -> Proposal:
        proposal = state.proposal()
        proposal.run_by(_deadline, falling=True)
        return proposal


def _deadline(job: JobView) -> float:
    return inf if job.deadline_s is None else job.deadline_s
