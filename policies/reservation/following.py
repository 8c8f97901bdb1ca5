"""From reservations to a proposal: jobs get what they have reserved for now, a rule shares out the rest."""

from __future__ import annotations

from math import inf

from clustersim.scheduler import JobView, Proposal, State

from .agenda import Agenda
from .calendar import WHOLE
from .gpu_types import Share
from .reservations import Reservations
from .seating import Seating
from .spare_gpus import SpareGpus, SpareRule, may_stay

__all__ = ["follow"]


def follow(state: State, reservations: Reservations, rule: SpareRule) -> Proposal:
    """The proposal of a policy that keeps its reservations and shares out spare GPUs by `rule`. It asks to be
    woken when reserved GPUs change.

    A job that is due need not be at its address: it may also stay where it runs, on spare GPUs, as long as
    that costs it no more than it can afford (`may_stay`).
    """
    agenda = reservations.agenda(state)
    in_service = state.in_service_by_type() if state.cluster.mixed else {"": state.in_service}
    spare = SpareGpus(state, reservations, agenda, in_service)
    rule(spare)
    reservations.widen(agenda, spare.target, spare.spare, state.now)
    following = _Following(state, reservations, agenda, spare)
    proposal = following.proposal if following.stands() else following.propose()
    if agenda.wake_at < inf:
        proposal.wake_at = agenda.wake_at
    return proposal


class _Following:
    """One decision."""

    def __init__(self, state: State, reservations: Reservations, agenda: Agenda, spare: SpareGpus):
        self.state, self.reservations, self.agenda = state, reservations, agenda
        self.target, self.held = spare.target, spare.held
        self.proposal = state.proposal()
        self.mixed = state.cluster.mixed

    def stands(self) -> bool:
        """Whether every job holds what it is to have, and no job has to be seated. Jobs that hold whole nodes
        of their own, as many as they have reserved, are in place from then on.
        """
        target, held = self.target, self.held
        if len(held) != len(target):
            return False
        for job, share in target.items():
            if held.get(job) != share.gpus or (self.mixed and share.gpu_type != job.gpu_type):
                return False
        demands, shares = self.reservations.demands, self.agenda.shares
        arrived = [job for job, share in shares.items() if not demands[job].in_place and target[job] == share]
        if not all(self._has_whole_nodes(job) for job in arrived):
            return False
        for job in arrived:
            demands[job].in_place = True
        return True

    def _has_whole_nodes(self, job: JobView) -> bool:
        """Whether a job that has reserved whole nodes runs on nodes that no other job is on."""
        slot, placement = self.agenda.due[job], self.proposal.placement(job)
        node = self.reservations.rooms[self.target[job].gpu_type].gpus_per_node
        return placement is not None and slot.node == WHOLE and len(placement) * node == slot.gpus

    def propose(self) -> Proposal:
        """Shrink first, then seat the jobs that must follow their reservation, then grow, then seat the jobs
        that were to grow but could not.
        """
        target, due, proposal = self.target, self.agenda.due, self.proposal
        demands = self.reservations.demands
        self._shrink()
        seating = Seating(proposal, self.reservations.rooms, demands, due)
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
        self.reservations.note_seated(due, seating.seated)
        self.reservations.note_stops(self.held)
        return proposal

    def _holds(self, job: JobView) -> Share:
        """What a job holds now."""
        return Share(job.gpus, (job.gpu_type or "") if self.mixed else "")

    def _drafted(self, job: JobView) -> Share:
        """What a job holds in the draft."""
        gpu_type = self.proposal.gpu_type(job) if self.mixed else ""
        return Share(self.proposal.gpus(job), gpu_type or "")

    def _shrink(self) -> None:
        """Stop the jobs without a target, and those that leave spare GPUs for others of another type; resize
        those that hold more than their target.
        """
        for job in self.state.running:
            share = self.target.get(job)
            leaves = share is not None and self.mixed and share.gpu_type != job.gpu_type
            if share is None or (leaves and job not in self.agenda.due):
                self.proposal.stop(job)
            elif share.gpus < job.gpus and not leaves:
                self.proposal.resize(job, share.gpus)

    def _keep_seats(self, seating: Seating) -> list[JobView]:
        """Seat the due jobs that are at their address: first those that were there before, then those that
        happen to run where their address can be. Returns the others, the least slack first.
        """
        due, demands = self.agenda.due, self.reservations.demands
        seating.keep_in_place(job for job in due if demands[job].in_place)
        others = [job for job in due if not demands[job].in_place]
        for job in others:
            demands[job].refresh()
        others.sort(key=lambda job: (self.reservations.slack_s(job, self.state.now), job.order))
        return [job for job in others if not (self.proposal.gpus(job) == due[job].gpus and seating.keep(job))]

    def _grow(self, seating: Seating) -> None:
        """Give jobs that hold less than their target the GPUs they lack, the largest target first.

        Reservations that begin early do so at their address if possible. A due job that was evicted was
        seated again instead, unless it found no place.
        """
        target, proposal = self.target, self.proposal
        early = {
            job: self.reservations.slots(job)[0]
            for *_, job, gpus in self.agenda.soon
            if target.get(job) == (gpus, self.reservations.demands[job].gpu_type)
        }
        growing = [
            job
            for job, (gpus, gpu_type) in target.items()
            if gpus > proposal.gpus(job) or (self.mixed and proposal.gpu_type(job) != gpu_type)
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
        slots, demand = self.reservations.slots(job), self.reservations.demands[job]
        held = self._holds(job)
        if not held.gpus or self._drafted(job) != held:
            return False
        if held.gpu_type == demand.gpu_type:
            if held.gpus < slots[0].gpus:
                return False
        elif job.rate(held.gpus, held.gpu_type) < demand.rates[slots[0].gpus]:
            return False
        return may_stay(demand, slots[0].gpus, slots, self.state.now)
