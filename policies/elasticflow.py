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

from math import inf
from reprlib import repr as brief

from clustersim.scheduler import JobView, Proposal, Scheduler, State
from policies.reservation.admission import Admission, Agenda
from policies.reservation.gpu_types import Share
from policies.reservation.seating import Seating
from policies.reservation.spare_gpus import may_stay, share_out
from policies.toolkit.parameters import number

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
    elastic = True

    def __init__(self, guard_s: float = 1.0, admission: bool = True):
        if not isinstance(admission, bool):
            raise ValueError(f"admission={brief(admission)}: must be true or false")
        self.guard_s, self.admission = number("guard_s", guard_s, _LEAST_GUARD_S), admission
        self._admission: Admission | None = None

    def admit(self, job: JobView, state: State) -> bool:
        admission = self.reservations(state)
        admission.release_finished(state)  # a job that ends at this instant makes room for one that arrives
        if admission.admit(job, state):
            return True
        if not self.admission:
            admission.admit_without_reservation(job)
        return not self.admission

    def schedule(self, state: State) -> Proposal:
        admission = self.reservations(state)
        admission.release_finished(state)
        agenda = admission.agenda(state.now)
        in_service = state.in_service_by_type() if state.cluster.mixed else {"": state.in_service}
        target = share_out(state, admission, agenda, in_service)
        admission.widen(agenda, target, in_service, state.now)
        proposal = _Following(admission, agenda, target, state).propose()
        if agenda.wake_at < inf:
            proposal.wake_at = agenda.wake_at
        return proposal

    def reservations(self, state: State) -> Admission:
        """The demands and reservations of the admitted jobs."""
        if self._admission is None:
            self._admission = Admission(state.now, state.cluster, self.guard_s)
        return self._admission


class _Following:
    """One decision: a draft that gives every job its `target`, and seats the jobs that must be at the address
    of their reservation.

    A job that is due need not be there: it may also stay where it runs, on spare GPUs, as long as that costs
    it no more than it can afford (`may_stay`).
    """

    def __init__(self, admission: Admission, agenda: Agenda, target: dict[JobView, Share], state: State):
        self.admission, self.agenda, self.target, self.state = admission, agenda, target, state
        self.proposal = state.proposal()

    def propose(self) -> Proposal:
        """Shrink first, then seat the jobs that must follow their reservation, then grow, then seat the jobs
        that were to grow but could not.
        """
        target, due, proposal = self.target, self.agenda.due, self.proposal
        demands = self.admission.demands
        self._shrink()
        seating = Seating(proposal, self.admission.rooms, demands, due)
        unseated = self._keep_seats(seating)
        reserved = {job: Share(due[job].gpus, demands[job].gpu_type) for job in unseated}
        reserved_only = [job for job in unseated if target[job] == reserved[job]]
        seating.seat(
            [job for job in reserved_only if not (self._holds(job) == target[job] and self._may_stay(job))]
        )
        self._grow(seating)
        failed = [job for job in unseated if self._drafted(job) != target[job] and not self._may_stay(job)]
        seating.seat([job for job in failed if job not in seating.seated])
        for job in seating.evicted:
            if job not in due and not proposal.gpus(job):
                seating.give_spare(job, target[job])
        self.admission.note_seated(due, seating.seated)
        return proposal

    def _holds(self, job: JobView) -> Share:
        """What a job holds now."""
        return Share(job.gpus, (job.gpu_type or "") if self.state.cluster.mixed else "")

    def _drafted(self, job: JobView) -> Share:
        """What a job holds in the draft."""
        gpu_type = self.proposal.gpu_type(job) if self.state.cluster.mixed else ""
        return Share(self.proposal.gpus(job), gpu_type or "")

    def _shrink(self) -> None:
        """Stop the jobs without a target, and those that leave spare GPUs for others of another type; resize
        those that hold more than their target.
        """
        for job in self.state.running:
            share, held = self.target.get(job), self._holds(job)
            if share is None or (share.gpu_type != held.gpu_type and job not in self.agenda.due):
                self.proposal.stop(job)
            elif share.gpu_type == held.gpu_type and share.gpus < job.gpus:
                self.proposal.resize(job, share.gpus)

    def _keep_seats(self, seating: Seating) -> list[JobView]:
        """Seat the due jobs that are at their address: first those that were there before, then those that
        happen to run where their address can be. Returns the others, the least slack first.
        """
        due, demands = self.agenda.due, self.admission.demands
        others = [job for job in due if not (demands[job].in_place and seating.keep(job))]
        others.sort(key=lambda job: (self.admission.slack_s(job, self.state.now), job.order))
        return [job for job in others if not (self.proposal.gpus(job) == due[job].gpus and seating.keep(job))]

    def _grow(self, seating: Seating) -> None:
        """Give jobs that hold less than their target the GPUs they lack, the largest target first.

        Reservations that begin early do so at their address if possible. A due job that was evicted was
        seated again instead, unless it found no place.
        """
        target, proposal = self.target, self.proposal
        early = {
            job: self.admission.slots(job)[0]
            for *_, job, gpus in self.agenda.soon
            if target.get(job) == (gpus, self.admission.demands[job].gpu_type)
        }
        growing = [
            job
            for job, (gpus, gpu_type) in target.items()
            if gpus > proposal.gpus(job) or self._drafted(job).gpu_type != gpu_type
        ]
        for job in sorted(growing, key=lambda job: (-target[job].gpus, job.order)):
            if job in early and not proposal.gpus(job) and seating.begin_early(job, early[job]):
                continue
            if job in self.agenda.due and job in seating.evicted and job not in seating.unplaced:
                continue
            held = self._holds(job)
            stopped = held.gpus and not proposal.gpus(job) and held.gpu_type != target[job].gpu_type
            if not seating.give_spare(job, target[job]) and stopped:
                seating.give_spare(job, held)

    def _may_stay(self, job: JobView) -> bool:
        """Whether a job that is due may stay where it is, on spare GPUs."""
        slots, demand = self.admission.slots(job), self.admission.demands[job]
        held = self._holds(job)
        if self._drafted(job) != held:
            return False
        if held.gpu_type == demand.gpu_type:
            if held.gpus < slots[0].gpus:
                return False
        elif job.rate(held.gpus, held.gpu_type) < demand.rates[slots[0].gpus]:
            return False
        return may_stay(demand, slots[0].gpus, slots, self.state.now)
