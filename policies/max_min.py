"""Equal shares of the GPUs."""

from __future__ import annotations

from clustersim.scheduler import JobView, Proposal, Scheduler, State

from .placing import available, run_elastic
from .steps import by_steps

__all__ = ["MaxMin"]


class MaxMin(Scheduler):
    """Equal shares by progressive filling: whoever would hold the fewest GPUs after its next step takes it,
    until no step fits; at every event.

    Max-min fairness as in Bertsekas and Gallager, Data Networks, section 6.5.2, over the GPU counts that jobs
    can use.
    """

    def schedule(self, state: State) -> Proposal:
        jobs = sorted([*state.running, *state.pending], key=lambda job: job.order)
        return run_elastic(state, by_steps(jobs, available(state), _size))


def _size(job: JobView, held: int, size: int) -> float:
    return size
