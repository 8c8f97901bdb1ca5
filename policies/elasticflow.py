"""ElasticFlow: deadlines instead of GPU counts, elastic allocation, admission control.

Gu et al., "ElasticFlow: An Elastic Serverless Training Platform for Distributed Deep Learning", ASPLOS
2023.

- Admission (`promises.py`): a job with a deadline is admitted if the work it states can be reserved on the
  GPUs that are free until then, or on those that jobs with later deadlines can still do without.
- Allocation: every admitted job gets what it has reserved for now; what is left goes, one step at a time, to
  the job whose GPU time grows least per GPU added (`spare.py`; the best marginal return, section 4.2).

Differences to the published artifact: arrivals of one instant are judged one by one, not declined together;
the marginal return is the smallest increase of GPU time, not the largest; a restart is charged in every
reservation, so that a promise holds under overheads; a job on spare GPUs is moved only where that finishes
it earlier.
"""

from __future__ import annotations

from math import inf

from clustersim.scheduler import JobView, Proposal, Scheduler, State

from .promises import Agenda, Promises
from .spare import share_out

__all__ = ["ElasticFlow"]


class ElasticFlow(Scheduler):
    """Admission by minimum satisfactory share, spare GPUs by marginal return, data parallelism only.

    Jobs without a deadline are always admitted and live on spare GPUs. Each reservation holds `guard_s`
    seconds more work than the job needs. With `admission` off, a job that cannot be promised its deadline is
    not declined but lives on spare GPUs too. Work is the stated iterations; for jobs that state none it comes
    from the oracle.
    """

    planner = "data-parallel"
    one_gpu_type = True

    def __init__(self, guard_s: float = 1.0, admission: bool = True):
        if not 0 <= guard_s < inf:
            raise ValueError(f"guard_s={guard_s!r}: must be a finite number of seconds, at least 0")
        if not isinstance(admission, bool):
            raise ValueError(f"admission={admission!r}: must be true or false")
        self.guard_s, self.admission = guard_s, admission
        self._promises: Promises | None = None

    def admit(self, job: JobView, state: State) -> bool:
        promises = self._of(state)
        promises.forget_finished(state)  # what ends at this instant is free for what arrives at it
        if promises.admit(job, state.now):
            return True
        if not self.admission:
            promises.take_without_promise(job)
        return not self.admission

    def schedule(self, state: State) -> Proposal:
        promises = self._of(state)
        promises.forget_finished(state)
        agenda = promises.agenda(state.now)
        target = share_out(state, promises, agenda)
        promises.widen(agenda, target, state)
        proposal = self._propose(state, agenda, target)
        if agenda.wake_at < inf:
            proposal.wake_at = agenda.wake_at
        return proposal

    def _of(self, state: State) -> Promises:
        if self._promises is None:
            self._promises = Promises(state.now, state.cluster, self.guard_s)
        return self._promises

    def _propose(self, state: State, agenda: Agenda, target: dict[JobView, int]) -> Proposal:
        """Shrink first, then place what grows, largest first.

        For what is reserved, small jobs move together if that is what it takes.
        """
        proposal, due = state.proposal(), agenda.due
        for job in state.running:
            gpus = target.get(job, 0)
            if not gpus:
                proposal.stop(job)
            elif gpus < job.gpus:
                proposal.resize(job, gpus)
        growing = sorted(
            (job for job in target if target[job] > proposal.gpus(job)),
            key=lambda job: (-target[job], job.order),
        )
        unplaced = [job for job in growing if not _put(proposal, job, target[job])]
        if any(due.get(job, 0) > proposal.gpus(job) for job in unplaced):
            promises = self._of(state)
            wanted = sorted(due, key=lambda job: (promises.slack_s(job, state.now), job.order))
            proposal.compact({job: max(due[job], proposal.gpus(job)) for job in wanted})
        return proposal


def _put(proposal: Proposal, job: JobView, gpus: int) -> bool:
    grow = proposal.resize if proposal.gpus(job) else proposal.start
    return grow(job, gpus) is not None
