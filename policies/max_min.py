"""Equal shares of the GPUs."""

from __future__ import annotations

from clustersim.scheduler import JobView, Proposal, Scheduler, State
from policies.toolkit.stepwise import allocate_stepwise, jobs_by

__all__ = ["MaxMin"]


class MaxMin(Scheduler):
    """Equal shares by progressive filling: the job that would hold the fewest GPUs after its next step takes
    it, until no step fits; at every event.

    Max-min fairness as in Bertsekas and Gallager, Data Networks, section 6.5.2, over the GPU counts that jobs
    can use.
    """

    one_gpu_type = True
    elastic = True

    def schedule(self, state: State) -> Proposal:
        proposal = state.proposal()
        shares = allocate_stepwise(jobs_by(state, _smallest), state.in_service, _size)
        proposal.run(shares, let_settle=True)
        return proposal


def _smallest(job: JobView) -> int:
    return job.sizes[0]


def _size(job: JobView, held: int, size: int) -> float:
    return size
