"""ElasticFlow: deadlines instead of GPU counts, elastic allocation, admission control.

Gu et al., "ElasticFlow: An Elastic Serverless Training Platform for Distributed Deep Learning", ASPLOS
2023.

- Admission: a job with a deadline is admitted if its stated work can be reserved on the GPUs that are free
  before the deadline, or on GPUs that jobs with later deadlines can do without.
- Allocation: every admitted job gets what it has reserved for now. The remaining GPUs go, one step at a time,
  to the job with the smallest growth of GPU time per GPU added (the best marginal return, section 4.2).

Differences from the published artifact: arrivals of one instant are judged one by one, not declined together;
the marginal return is the smallest increase of GPU time, not the largest; every slot of a reservation is
charged a restart (the first one at least a launch), so that deadlines are met under overheads; a job on spare
GPUs is moved only where that finishes it earlier.
"""

from __future__ import annotations

from clustersim.scheduler import JobView, Proposal, Scheduler, State
from policies.reservation import Reservations, follow
from policies.toolkit.parameters import number, switch

__all__ = ["ElasticFlow"]

_LEAST_GUARD_S = 1e-3  # well above the rounding of times, else reservations could end before their jobs


class ElasticFlow(Scheduler):
    """Admission by minimum satisfactory share, spare GPUs by marginal return, data parallelism only.

    Jobs without a deadline are always admitted and run on spare GPUs. Each reservation holds `guard_s`
    seconds (at least 0.001) more work than the job needs, so that rounding makes no job late. With
    `admission` off, a job that cannot meet its deadline is not declined but runs on spare GPUs too. Work is
    the stated iterations; for jobs that state none it comes from the oracle.
    """

    planner = "data-parallel"
    equal_nodes = True
    elastic = True
    leaves_idle = False

    def __init__(self, guard_s: float = 1.0, admission: bool = True):
        self.guard_s = number("guard_s", guard_s, _LEAST_GUARD_S)
        self.admission = switch("admission", admission)
        self._reservations: Reservations | None = None

    def admit(self, job: JobView, state: State) -> bool:
        reservations = self.reservations(state)
        reservations.update(state)  # a job that ends at this instant makes room for one that arrives
        if not self.admission:
            reservations.enter(job)
        return reservations.try_admit(job) or not self.admission

    def schedule(self, state: State) -> Proposal:
        return follow(state, self.reservations(state))

    def reservations(self, state: State) -> Reservations:
        """The reservations of the admitted jobs."""
        if self._reservations is None:
            self._reservations = Reservations(state.cluster, self.guard_s)
        return self._reservations
