"""Optimus: GPUs by marginal gain."""

from __future__ import annotations

from math import inf

from clustersim.scheduler import JobView, Proposal, Scheduler, State
from policies.toolkit.parameters import number
from policies.toolkit.rounds import Rounds
from policies.toolkit.stepwise import allocate_stepwise, jobs_by

__all__ = ["Optimus", "loss_per_gpu"]


class Optimus(Scheduler):
    """Optimus: every job gets the fewest GPUs it can use, in order of submission; the rest go, step by step,
    to the job with the largest fall of remaining time per GPU added; once per round of `round_s` seconds.

    Peng et al., "Optimus: An Efficient Dynamic Resource Scheduler for Deep Learning Clusters", EuroSys 2018,
    section 4.1. Run times that users do not state come from the oracle.
    """

    one_gpu_type = True
    elastic = True

    def __init__(self, round_s: float = 600.0):
        self.round_s = number("round_s", round_s, 1.0, 1e7)
        self._rounds = Rounds(self.round_s)

    def schedule(self, state: State) -> Proposal:
        proposal = state.proposal()
        if self._rounds.begins(state):
            shares = allocate_stepwise(jobs_by(state, _submission), state.in_service, loss_per_gpu)
            proposal.run(shares, let_settle=True)
        return self._rounds.until_end(proposal, state)


def _submission(job: JobView) -> int:
    return job.order


def loss_per_gpu(job: JobView, held: int, size: int) -> float:
    """The change of remaining time per GPU added, in seconds; negative if the step shortens it."""
    if not held:
        return -inf
    return (job.oracle_remaining(size) - job.oracle_remaining(held)) / (size - held)
