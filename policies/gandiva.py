"""Gandiva: time slicing, packing by trial, growing and shrinking, and migration against fragmentation."""

from __future__ import annotations

from collections.abc import Iterable

from clustersim.scheduler import JobView, Proposal, State
from policies.packing.groups import Group, Wanted, groups_of, run_groups, start_group
from policies.packing.migration import with_room
from policies.packing.trials import Trials
from policies.round_robin import RoundRobin
from policies.toolkit.parameters import number, switch

__all__ = ["Gandiva"]


class Gandiva(RoundRobin):
    """Round robin in slices of `quantum_s` seconds; jobs smaller than a node migrate together where that lets
    the first waiting job start for which there are GPUs enough.

    Xiao et al., "Gandiva: Introspective Cluster Scheduling for Deep Learning", OSDI 2018. `packing`: while
    jobs wait, two jobs of as many GPUs share them for `trial_s` seconds of work, and go on if together they
    do more work than in turns. `grow_shrink`: while no job waits, jobs take idle GPUs of their node, and
    return them as soon as a job waits. The paper's slices of about a minute presume its suspension within
    seconds; a slice should be long against a restart.
    """

    leaves_idle = False

    def __init__(
        self, quantum_s: float = 600.0, packing: bool = False, trial_s: float = 120.0,
        grow_shrink: bool = False,
    ):  # fmt: skip
        super().__init__(quantum_s)
        self.packing = switch("packing", packing)
        self.packs = 2 if self.packing else 1
        self.trial_s = number("trial_s", trial_s, minimum=1)
        self.grow_shrink = self.elastic = switch("grow_shrink", grow_shrink)
        self._trials = Trials(self.trial_s)
        self._next_packing_s = 0.0
        self._grown: dict[JobView, int] = {}  # with the GPUs that each held before
        self._idle_since_s: float | None = None  # since when GPUs are free and no job waits

    def schedule(self, state: State) -> Proposal:
        proposal = state.proposal()
        if self.grow_shrink and state.pending:
            self._shrink(proposal, state)
        if self.packing:
            proposal = self._serve_packed(proposal, state)
        else:
            self.end_slices(state)
            proposal.run_by(self.queue_position)
            proposal = self._migrated(proposal, state)
        self._slices.request_wake_up(proposal, state)
        if self.packing:
            _wake(proposal, self._trials.next_end_s(state.now))
            if any(placement is None for placement in proposal.changes.values()):
                _wake(proposal, state.now + self.quantum_s)  # a job waits from now on
        if self.grow_shrink:
            self._grow(proposal, state)
        return proposal

    def _migrated(self, proposal: Proposal, state: State) -> Proposal:
        """The draft in which the first waiting job with GPUs enough has a place, if there is one."""
        if not state.pending or not proposal.free or state.cluster.mixed:
            return proposal
        for job in state.pending_by(self.queue_position).walk(lambda gpus: gpus <= proposal.free):
            if proposal.placement(job) is None:
                draft = proposal.copy()
                draft.compact({job: job.requested})
                others_run = all(
                    draft.gpus(neighbour) == proposal.gpus(neighbour) for neighbour in proposal.running()
                )
                return draft if draft.placement(job) and others_run else proposal
        return proposal

    # Packing

    def _serve_packed(self, proposal: Proposal, state: State) -> Proposal:
        trials = self._trials
        trials.follow(state)
        unpacked_jobs = trials.failed()
        for guest in unpacked_jobs:
            proposal.stop(guest)
        trials.measure(group[0] for group in groups_of(proposal) if len(group) == 1)
        ended = self.end_slices(state)
        for job in [event.job for event in state.events if event.kind == "submitted" and event.job]:
            self.queue_position(job)  # behind all others from now on
        if ended and state.pending:
            self._take_turns(proposal, [*state.pending, *unpacked_jobs], state.in_service)
        proposal = self._start_waiting(proposal, state)
        if not state.pending:
            _part(proposal, state)
        paired = {job for group in proposal.groups() for job in group if len(group) > 1}
        trials.started(job for job, placement in proposal.changes.items() if placement and job not in paired)
        if state.now >= self._next_packing_s or unpacked_jobs:
            self._pack(proposal, state)
            self._next_packing_s = state.now + self.quantum_s
        return proposal

    def _take_turns(self, proposal: Proposal, waiting: Iterable[JobView], room: int) -> None:
        """Run groups in the order of the queue, where a pair has the place of its first job. `room`: GPUs."""
        line: list[tuple[int, Group]] = [(self.queue_position(job), (job,)) for job in waiting]
        line += [(min(map(self.queue_position, group)), group) for group in groups_of(proposal)]
        next_groups: list[Wanted] = []
        for _, group in sorted(line, key=lambda entry: entry[0]):
            if group[0].requested <= room:
                next_groups.append((group, None))
                room -= group[0].requested
            if not room:
                break
        if run_groups(proposal, next_groups, _parts):  # free GPUs are too scattered
            for job in proposal.running():
                proposal.stop(job)
            for group, _ in next_groups:
                start_group(proposal, group, _parts(group[0]))

    def _start_waiting(self, proposal: Proposal, state: State) -> Proposal:
        """Start waiting jobs on free GPUs. For the first one for which there are GPUs enough and no place,
        others migrate.
        """
        hopeless, migrate = set[float](), not state.cluster.mixed

        def may_start(gpus: float) -> bool:
            return gpus not in hopeless and (gpus <= proposal.free or (gpus < 1 and proposal.fits(gpus)))

        for job in state.pending_by(self.queue_position).walk(may_start):
            if proposal.gpus(job) or start_group(proposal, (job,), _parts(job)):
                continue
            hopeless.add(job.needs)
            if migrate and job.needs >= 1:
                migrate = False
                size, settling = state.cluster.gpus_per_node, state.unsettled()
                draft = with_room(proposal, job, _parts(job), size, settling)
                proposal = proposal if draft is None else draft
        return proposal

    def _pack(self, proposal: Proposal, state: State) -> None:
        """Let waiting jobs that have run alone join jobs that run alone."""
        hosts: dict[tuple[object, ...], list[JobView]] = {}
        for group in proposal.groups():
            if len(group) == 1:
                hosts.setdefault(_size(group[0]), []).append(group[0])
        without: set[tuple[object, ...]] = set()  # jobs of this model and size have no host
        stopped = [job for job, placement in proposal.changes.items() if placement is None]
        waiting = [job for job in (*state.pending, *stopped) if job.needs >= 1 and self._trials.knows(job)]
        for job in sorted(waiting, key=self.queue_position):
            kind = job.model, *_size(job)
            if proposal.gpus(job) or kind in without or not hosts.get(_size(job)):
                continue
            host = self._trials.host_for(job, hosts[_size(job)])
            if host is None:
                without.add(kind)
            if host is not None and proposal.start_shared(job, 0.5, beside=host):
                hosts[_size(job)].remove(host)
                self._trials.join(job, host, proposal.changes)

    # Growing and shrinking

    def _shrink(self, proposal: Proposal, state: State) -> None:
        """Return GPUs that jobs took while no job waited, the last taken first, as far as jobs wait."""
        pending_gpus = sum(job.requested for job in state.pending)
        for job, count in reversed(list(self._grown.items())):
            if proposal.free >= pending_gpus:
                return
            del self._grown[job]
            if job.gpus > count:
                proposal.resize(job, count)

    def _grow(self, proposal: Proposal, state: State) -> None:
        """Once GPUs have been idle for a slice, jobs of one node grow there, in order of submission."""
        idle = proposal.free and all(proposal.gpus(job) for job in state.pending)
        if not idle:
            self._idle_since_s = None
            return
        if self._idle_since_s is None:
            self._idle_since_s = state.now
        if state.now < self._idle_since_s + self.quantum_s - 1e-6:
            _wake(proposal, self._idle_since_s + self.quantum_s)
            return
        settling = state.unsettled()
        paired = {job for group in proposal.groups() for job in group if len(group) > 1}
        for job in proposal.running():
            placement, count = proposal.placement(job) or (), job.gpus
            busy = job in proposal.changes or job in settling or job in paired or job.needs < 1
            if busy or len(placement) != 1:
                continue
            node = placement[0][0]
            sizes = job.sizes if job.gpu_type is None else job.sizes_on(job.gpu_type)
            larger = [size for size in sizes if count < size <= count + proposal.free_on(node)]
            if larger:
                now_there = proposal.resize(job, larger[-1])
                if now_there is None or [place for place, _ in now_there] != [node]:
                    proposal.resize(job, count)
                else:
                    self._grown.setdefault(job, count)


def _size(job: JobView) -> tuple[object, ...]:
    """What jobs must have in common to run on the same GPUs."""
    return job.requested, job.node_counts


def _parts(job: JobView) -> int:
    """Into how many parts the GPUs of a job are divided: one that holds part of a GPU by its trace shares by
    itself.
    """
    return 2 if job.needs >= 1 else 1


def _part(proposal: Proposal, state: State) -> None:
    """While no job waits, the later job of a pair moves to free GPUs."""
    settling = state.unsettled()
    for group in proposal.groups():
        if len(group) == 2 and group[0].requested <= proposal.free and not any(j in settling for j in group):
            host, guest = group
            proposal.stop(guest)
            if proposal.start_shared(guest, 0.5) is None:
                proposal.start_shared(guest, 0.5, beside=host)


def _wake(proposal: Proposal, at_s: float | None) -> None:
    """Wake the policy at this time, if not earlier."""
    if at_s is not None and (proposal.wake_at is None or at_s < proposal.wake_at):
        proposal.wake_at = at_s
