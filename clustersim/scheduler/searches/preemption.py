"""The allocation of a scheduler that serves jobs strictly by a key and preempts jobs that rank behind
(`Proposal.run_by`).
"""

from __future__ import annotations

from bisect import bisect_left
from heapq import heappop, heappush

from clustersim.cluster import HostDemand, Placement
from clustersim.scheduler.cluster_state import ClusterState
from clustersim.scheduler.draft import Draft
from clustersim.scheduler.internal import active_of, take_over
from clustersim.scheduler.job_view import JobView
from clustersim.scheduler.ranking import Entry, Key, Rank, RunningOrder

__all__ = ["run_by"]


def run_by(
    draft: Draft, facts: ClusterState[JobView], key: Key[JobView], *, non_increasing: bool, changing: bool
) -> None:
    """See `Proposal.run_by`."""
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
    service = _Service(draft, facts.running_order(key, non_increasing), rank)
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
    _move_back(draft, service.all_evicted)


class _Service:
    """Serves jobs in the order of their ranks.

    `evicted`: jobs that lost their GPUs and whose rank has not been reached yet (a heap). `all_evicted`: all
    jobs that lost their GPUs, in that order.

    `_held_by`: the placements of running jobs that may still have to stop: all jobs behind the present rank,
    possibly others. `_held`: their GPUs.
    """

    def __init__(self, draft: Draft, order: RunningOrder[JobView], first_rank: Rank):
        self._draft, self._order = draft, order
        self._behind, self._passed, self._held = order.behind(first_rank), 0, 0
        self._held_by: dict[JobView, Placement] = {}
        changes = draft.changes
        for _, _, job in self._behind:
            active = active_of(job)
            placement = changes.get(job, active.placement)
            if placement and active.placement:
                self._held_by[job] = placement
                self._held += active.gpus if placement is active.placement else _gpus(placement)
        self._hopeless: set[float] = set()  # GPU counts without room; room only shrinks
        self._too_much: set[tuple[float, HostDemand]] = set()  # the same with cores and memory
        self.evicted: list[Entry[JobView]] = []
        self.all_evicted: dict[JobView, None] = {}

    def may_fit(self, gpus: float) -> bool:
        """False only if there is no room for `gpus` GPUs even if all jobs of later rank stopped."""
        if gpus > self._draft.free + self._held:
            return gpus < 1 and self._draft.fits(gpus)
        return gpus not in self._hopeless

    def serve(self, job: JobView, rank: Rank) -> None:
        """Start `job`, stopping the last running jobs until it fits. If it never fits, stop none."""
        draft, gpus = self._draft, job.needs
        self._pass(rank)
        demand = active_of(job).demand
        if not self.may_fit(gpus) or (demand is not None and (gpus, demand) in self._too_much):
            return
        if not draft.fits(gpus) and not draft.may_fit_without(self._held_by.values(), gpus):
            self._hopeless.add(gpus)
            return
        placement = draft.start(job)
        victims: list[tuple[Entry[JobView], Placement]] = []
        while placement is None and (victim := self._order.take_last(rank)) is not None:
            held = draft.placement(victim[2])
            if not held:
                continue  # the policy stopped it before
            draft.stop(victim[2])
            victims.append((victim, held))
            placement = draft.start(job) if draft.fits(gpus) else None
        if placement is None:
            if demand is not None:
                self._too_much.add((gpus, demand))
            for victim, held in victims:
                draft.start(victim[2], _gpus(held), on=held)
                self._order.put_back(victim)
            return
        for victim, _ in victims:
            self._held -= _gpus(self._held_by.pop(victim[2]))
            self.all_evicted[victim[2]] = None
            heappush(self.evicted, victim)

    def _pass(self, rank: Rank) -> None:
        """Running jobs that are no longer behind `rank` keep their GPUs."""
        end = bisect_left(self._behind, rank, self._passed)
        for _, _, job in self._behind[self._passed : end]:
            if job in self._held_by:
                self._held -= _gpus(self._held_by.pop(job))
        self._passed = end


def _gpus(placement: Placement) -> int:
    return placement[0][1] if len(placement) == 1 else sum([count for _, count in placement])


def _move_back(draft: Draft, evicted: dict[JobView, None]) -> None:
    """Return jobs that were stopped and then placed elsewhere to their own GPUs, if the jobs that took these
    fit elsewhere too.
    """
    moved = [job for job in evicted if draft.gpus(job) == job.gpus and job in draft.changes]
    if not moved:
        return
    started = [(job, draft.gpus(job)) for job in draft.changes if not job.running]
    copy = draft.copy()
    for job in [*moved, *(job for job, _ in started)]:
        copy.stop(job)
    back = all(copy.start(job, job.gpus) == active_of(job).placement for job in moved)
    if back and all(copy.start(job, gpus) is not None for job, gpus in started):
        take_over(draft, copy)
