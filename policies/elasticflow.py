"""ElasticFlow: deadlines instead of GPU counts, elastic allocation, admission control.

Gu et al., "ElasticFlow: An Elastic Serverless Training Platform for Distributed Deep Learning", ASPLOS
2023.

- Admission (`promises.py`): a job with a deadline is admitted if the work it states can be reserved on the
  GPUs that are free until then, or on those that jobs with later deadlines can still do without.
- Allocation: every admitted job gets what it has reserved for now; what is left goes, one step at a time, to
  the job whose GPU time grows least per GPU added (`spare.py`; the best marginal return, section 4.2).

Differences to the published artifact: arrivals of one instant are judged one by one, not declined together;
the marginal return is the smallest increase of GPU time, not the largest; every piece of a reservation is
charged a restart (the first one at least a launch), so that a promise holds under overheads; a job on spare
GPUs is moved only where that finishes it earlier.
"""

from __future__ import annotations

from functools import partial
from math import inf

from clustersim.scheduler import JobView, Proposal, Scheduler, State
from policies.reservation.admission import Agenda, Promises
from policies.reservation.seating import Seating
from policies.reservation.spare_gpus import may_stay, share_out
from policies.toolkit.parameters import number

__all__ = ["ElasticFlow"]

_LEAST_GUARD_S = 1e-3  # well above the rounding of times, else reservations could end before their jobs


class ElasticFlow(Scheduler):
    """Admission by minimum satisfactory share, spare GPUs by marginal return, data parallelism only.

    Jobs without a deadline are always admitted and live on spare GPUs. Each reservation holds `guard_s`
    seconds (at least 0.001) more work than the job needs, so that rounded times break no promise. With
    `admission` off, a job that cannot be promised its deadline is not declined but lives on spare GPUs too.
    Work is the stated iterations; for jobs that state none it comes from the oracle.
    """

    planner = "data-parallel"
    one_gpu_type = True

    def __init__(self, guard_s: float = 1.0, admission: bool = True):
        if not isinstance(admission, bool):
            raise ValueError(f"admission={admission!r}: must be true or false")
        self.guard_s, self.admission = number("guard_s", guard_s, _LEAST_GUARD_S), admission
        self._promises: Promises | None = None

    def admit(self, job: JobView, state: State) -> bool:
        promises = self._of(state)
        promises.forget_finished(state)  # what ends at this instant is free for what arrives at it
        if promises.admit(job, state):
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
        """Shrink first, then seat those whose reservation says so, then place what grows, largest first."""
        proposal, due, promises = state.proposal(), agenda.due, self._of(state)
        for job in state.running:
            gpus = target.get(job, 0)
            if not gpus:
                proposal.stop(job)
            elif gpus < job.gpus:
                proposal.resize(job, gpus)
        seating = Seating(proposal, state.cluster, due)
        unseated = [job for job in due if not (promises.demands[job].in_place and seating.keep(job))]
        unseated.sort(key=lambda job: (promises.slack_s(job, state.now), job.order))
        unseated = [
            job for job in unseated if not (proposal.gpus(job) == due[job].gpus and seating.keep(job))
        ]
        may_stay = partial(self._may_stay, proposal, state)
        tied = [job for job in unseated if target[job] == due[job].gpus]
        seating.seat(job for job in tied if not (job.gpus == target[job] and may_stay(job)))
        early = {job: promises.pieces(job)[0] for *_, job, gpus in agenda.soon if target.get(job) == gpus}
        growing = [job for job in target if target[job] > proposal.gpus(job)]
        for job in sorted(growing, key=lambda job: (-target[job], job.order)):
            if job in early and not proposal.gpus(job) and seating.begin_early(job, early[job]):
                continue
            if job not in due or job not in seating.evicted or job in seating.unplaced:
                seating.give_spare(job, target[job])
        failed = (job for job in unseated if proposal.gpus(job) != target[job] and not may_stay(job))
        seating.seat(job for job in failed if job not in seating.seated)
        for job in seating.evicted:
            if job not in due and not proposal.gpus(job):
                seating.give_spare(job, target[job])
        promises.note_seats(due, seating.seated)
        return proposal

    def _may_stay(self, proposal: Proposal, state: State, job: JobView) -> bool:
        """Whether a job that is due may stay where it is, on spare GPUs."""
        promises = self._of(state)
        pieces = promises.pieces(job)
        if proposal.gpus(job) != job.gpus or job.gpus < pieces[0].gpus:
            return False
        return may_stay(promises.demands[job], pieces[0].gpus, pieces, state.now)
