"""The allocation of a scheduler that serves jobs strictly by a key and preempts jobs that rank behind
(`Proposal.run_by`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence
from heapq import heappop, heappush

from clustersim.cluster import Placement
from clustersim.scheduler.cluster_state import ClusterState
from clustersim.scheduler.draft import Draft
from clustersim.scheduler.internal import active_of, take_over
from clustersim.scheduler.job_view import JobView
from clustersim.scheduler.ranking import Entry, Key, Rank, RunningOrder

__all__ = ["run_by"]


def run_by(
    draft: Draft, facts: ClusterState[JobView], key: Key[JobView], *, non_increasing: bool, changing: bool
) -> None:
    """See `Proposal.run_by`.

    When a job is served, its room is U: what is free, with the GPUs of all jobs behind it. Two invariants
    make the contract hold.

    1. Whatever happens later happens within U, since jobs served later rank behind, and get only what is free
       or held by jobs behind them. What is free at the end, with the GPUs that jobs behind then have, is
       therefore part of U. A job is skipped only if it has no place in U, and a part of U has none either:
       all placers find a place in more room if they find one in less. So no job waits for one behind it, and
       none for GPUs that stay free.
    2. A job that was stopped is served again at its rank. The jobs served since then rank before it, so each
       of its GPUs is free, or has been taken by a job before it. If all are free the job gets them back,
       before anything else is tried. So a job loses its GPUs, or moves, only if a job before it takes some of
       them, which is then never stopped: they do not stay free.

    The invariants do not say which jobs stop. From the last of the order on, jobs stop until the job has a
    place; then, in order, each goes on beside which the job still has one. At last jobs that moved return
    (`_move_back`) where that cannot give a skipped job a place: where GPUs are counted alone, U has as many
    as before. A job that keeps running then keeps its GPUs.
    """
    policy_changes = set(draft.changes)
    held = facts.in_service - facts.capacity.free  # by jobs whose rank has not been reached
    service: _Service | None = None

    def may_fit(gpus: float) -> bool:
        if service is not None:
            return service.may_fit(gpus)
        return gpus <= draft.free + held or (gpus < 1 and draft.fits(gpus))

    walk = facts.waiting.ranked_by(key, elastic=False, changing=changing).entries(may_fit)
    waiting = next(walk, None)
    while waiting is not None and draft.start(waiting[2]) is not None:
        waiting = next(walk, None)  # while there is room, no comparison with running jobs is needed
    if waiting is None:
        return
    rank = waiting[:2]
    service = _Service(draft, facts, facts.running_order(key, non_increasing), rank, policy_changes)
    evicted = service.evicted
    while waiting is not None or evicted:
        if evicted and (waiting is None or evicted[0] < rank):
            again = heappop(evicted)
            service.serve(again[2], again[:2])
        else:
            assert waiting is not None
            service.serve(waiting[2], rank)
            waiting = next(walk, None)
            rank = rank if waiting is None else waiting[:2]
    if service.by_count:
        _move_back(draft, service.all_evicted, policy_changes)


_Victim = tuple[Entry[JobView], Placement]
"""A running job by its rank, and the GPUs that it loses."""


class _Service:
    """Serves jobs in the order of their ranks.

    `evicted`: jobs that lost their GPUs and whose rank has not been reached yet (a heap). `all_evicted`: all
    jobs that lost their GPUs. `by_count`: whether the number of free GPUs alone tells whether a job has room.

    `_behind`: the running jobs that may have to stop at all, in order, with their `_placements` and `_counts`
    of GPUs, () and 0 once a job stopped. Those from `_passed` on may still have to: all jobs behind the
    present rank, possibly others. `_held`: their GPUs.
    """

    def __init__(
        self,
        draft: Draft,
        facts: ClusterState[JobView],
        order: RunningOrder[JobView],
        first_rank: Rank,
        policy_changes: Collection[JobView],
    ):
        self._draft, self._order = draft, order
        self._behind, self._passed = order.behind(first_rank), 0
        jobs = [active_of(job) for _, _, job in self._behind]
        self._placements: list[Placement] = [job.placement or () for job in jobs]
        self._counts = [job.gpus for job in jobs]
        if policy_changes:
            for i, (_, _, view) in enumerate(self._behind):
                if view in policy_changes and self._placements[i]:
                    self._placements[i] = draft.placement(view) or ()
                    self._counts[i] = draft.gpus(view)
        self._held = sum(self._counts)
        self._limit_hosts = facts.nodes.limit_hosts
        cluster = facts.cluster
        same_room = not (cluster.mixed or facts.nodes.may_close or cluster.network_model.by_placement)
        self._same_room = same_room  # for all jobs of equal requests
        self.by_count = same_room and facts.placer.by_count and not facts.nodes.may_refuse_jobs
        self._hopeless: set[float] = set()  # GPU counts without room; room only shrinks
        self._too_much: set[tuple[float, object]] = set()  # the same with cores, memory and nodes
        self.evicted: list[Entry[JobView]] = []
        self.all_evicted: list[JobView] = []

    def may_fit(self, gpus: float) -> bool:
        """False only if there is no room for `gpus` GPUs even if all jobs of later rank stopped."""
        if gpus > self._draft.free + self._held:
            return gpus < 1 and self._draft.fits(gpus)
        return self._limit_hosts or gpus not in self._hopeless

    def serve(self, job: JobView, rank: Rank) -> None:
        """Start `job`, stopping the last running jobs until it fits. If it never fits, stop none."""
        draft, gpus = self._draft, job.needs
        if draft.keep(job):
            return
        self._pass(rank)
        if not self.may_fit(gpus) or not self._may_fit_at_all(job, gpus):
            return
        exact_for = None if active_of(job).terms is None else job
        placement = draft.start(job)
        victims: list[_Victim] = []
        while placement is None and (victim := self._order.take_last(rank)) is not None:
            held = draft.placement(victim[2])
            if not held:
                continue  # the policy stopped it before
            draft.stop(victim[2])
            victims.append((victim, held))
            placement = draft.start(job) if draft.fits(gpus, None, exact_for) else None
        if placement is None:
            if self._same_room and (terms := active_of(job).terms) is not None:
                self._too_much.add((gpus, terms))
            for victim, held in victims:
                draft.start(victim[2], _gpus(held), on=held)
                self._order.put_back(victim)
            return
        if len(victims) > 1:
            victims = self._without_spared(victims, job)
        for victim, _ in victims:
            self._forget(victim[2])
            self.all_evicted.append(victim[2])
            heappush(self.evicted, victim)

    def _may_fit_at_all(self, job: JobView, gpus: float) -> bool:
        """False only if `job` would have no room even if all jobs of later rank stopped. A demand for cores
        and memory makes nodes smaller, which may give a job the right to more of them; GPUs alone tell
        nothing then.
        """
        terms = active_of(job).terms
        if terms is not None:
            return (gpus, terms) not in self._too_much
        if gpus in self._hopeless:
            return False
        draft, placements = self._draft, self._placements
        if not draft.fits(gpus) and not draft.may_fit_without(placements[self._passed :], gpus):
            self._hopeless.add(gpus)
            return False
        return True

    def _without_spared(self, victims: Sequence[_Victim], job: JobView) -> list[_Victim]:
        """The victims without those that go on. The first of the order first, each goes on beside which `job`
        still has a place, unless it is on a node of one before it that does not: that one has the first
        choice of what is free there, when its rank is reached.
        """
        evicted = [victims[-1]]  # without its GPUs the job had no place
        nodes = {node for node, _ in victims[-1][1]}
        for victim, held in victims[-2::-1]:
            if all(node not in nodes for node, _ in held) and self._has_place_beside(job, victim[2], held):
                self._order.put_back(victim)
                continue
            evicted.append((victim, held))
            nodes.update([node for node, _ in held])
        return evicted

    def _has_place_beside(self, job: JobView, victim: JobView, held: Placement) -> bool:
        """Let a victim run on where it did, if `job` has a place beside it."""
        draft = self._draft
        if held is active_of(victim).placement and draft.keep(victim):
            return True
        placement = draft.placement(job)
        assert placement is not None
        draft.stop(job)
        draft.start(victim, _gpus(held), on=held)
        if draft.start(job) is not None:
            return True
        draft.stop(victim)
        draft.start(job, _gpus(placement), on=placement)
        return False

    def _pass(self, rank: Rank) -> None:
        """Running jobs that are no longer behind `rank` keep their GPUs."""
        end = bisect_left(self._behind, rank, self._passed)
        if end > self._passed:
            self._held -= sum(self._counts[self._passed : end])
            self._passed = end

    def _forget(self, job: JobView) -> None:
        """A running job has stopped, most likely one of the last of the order."""
        i = len(self._behind) - 1
        while self._behind[i][2] is not job:
            i -= 1
        self._held -= self._counts[i]
        self._placements[i], self._counts[i] = (), 0


def _gpus(placement: Placement) -> int:
    return placement[0][1] if len(placement) == 1 else sum([count for _, count in placement])


def _move_back(draft: Draft, evicted_jobs: Sequence[JobView], policy_changes: Collection[JobView]) -> None:
    """Return jobs that were stopped and then placed elsewhere to their own GPUs, if the jobs that took these
    fit elsewhere too. Jobs of `policy_changes`, which the policy placed itself, stay where they are.
    """
    if any(job.gpus != job.requested for job in evicted_jobs):
        return  # a job that stopped would need other GPUs than those that it held
    changes = draft.changes
    movers = [job for job in evicted_jobs if job in changes and draft.placement(job)]
    new_jobs = [job for job in changes if not job.running]
    if not movers or any(job in policy_changes or job.needs < 1 for job in (*movers, *new_jobs)):
        return  # a part of a GPU is none of the GPUs that are counted
    gpus = {job: draft.gpus(job) for job in new_jobs}
    copy = draft.copy()
    for job in (*movers, *new_jobs):
        copy.stop(job)
    if all(copy.keep(job) for job in movers) and all(copy.start(job, gpus[job]) for job in new_jobs):
        take_over(draft, copy)
