"""What runs if jobs are served strictly by a key and those whose turn comes later make room
(`Proposal.run_by`).
"""

from __future__ import annotations

from bisect import bisect_left
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from .capacity import Vacated
from .ranking import Entry, Key, Line, Turn

if TYPE_CHECKING:
    from .cluster import Placement
    from .job_view import JobView
    from .proposal import Proposal

__all__ = ["run_by"]


def run_by(draft: Proposal, key: Key, falling: bool) -> None:
    """See `Proposal.run_by`."""
    state = draft._state
    held = state.in_service - state.free  # by jobs whose turn has not come
    service: _Service | None = None

    def may_fit(gpus: int) -> bool:
        return gpus <= draft.free + held if service is None else service.may_fit(gpus)

    walk = state.pending_by(key).walk(may_fit)
    waiting = next(walk, None)
    while waiting is not None and draft.start(waiting) is not None:
        waiting = next(walk, None)  # as long as there is room nobody need be compared with those who run
    if waiting is None:
        return
    turn = (key(waiting), waiting.order)
    service = _Service(draft, state._line(key, falling), turn)
    evicted = service.evicted
    while waiting is not None or evicted:
        if evicted and (waiting is None or evicted[0] < turn):
            again = heappop(evicted)
            service.serve(again[2], again[:2])
        else:
            assert waiting is not None
            service.serve(waiting, turn)
            waiting = next(walk, None)
            turn = turn if waiting is None else (key(waiting), waiting.order)
    _move_back(draft, service.all_evicted)


class _Service:
    """Serves jobs in the order of their turns.

    `evicted`: whom that cost their GPUs and whose turn is still to come, as a heap; `all_evicted`: also
    those whose turn has come, in the order in which they lost their GPUs.

    `_held_by`: the places of those who run and may still have to go: of all whose turn is to come, maybe of
    others; `_held`: their GPUs.
    """

    def __init__(self, draft: Proposal, line: Line, first: Turn):
        self._draft, self._line = draft, line
        self._behind, self._passed, self._held = line.behind(first), 0, 0
        self._held_by: dict[JobView, Placement] = {}
        for _, _, job in self._behind:
            place = draft._changes.get(job, job._job.placement)
            if place and job._job.placement:
                self._held_by[job] = place
                self._held += _gpus(place)
        self._hopeless: set[int] = set()  # GPU counts for which there was no room; there will not be more
        self.evicted: list[Entry] = []
        self.all_evicted: dict[JobView, None] = {}

    def may_fit(self, gpus: int) -> bool:
        """False only if there is no room for `gpus` GPUs even if all who come later gave theirs."""
        return gpus <= self._draft.free + self._held and gpus not in self._hopeless

    def serve(self, job: JobView, turn: Turn) -> None:
        """Start `job`, stopping the last in line until it fits; if it never does, stop nobody."""
        draft, gpus = self._draft, job.requested
        self._pass(turn)
        if not self.may_fit(gpus):
            return
        if not draft.fits(gpus) and not self._could_fit(gpus):
            self._hopeless.add(gpus)
            return
        placement = draft.start(job)
        victims: list[tuple[Entry, Placement]] = []
        while placement is None and (last := self._line.take_last(turn)) is not None:
            held = draft.placement(last[2])
            if not held:
                continue  # the policy stopped it before
            draft.stop(last[2])
            victims.append((last, held))
            placement = draft.start(job) if draft.fits(gpus) else None
        if placement is None:
            for last, held in victims:
                draft._put_back(last[2], held)
                self._line.put_back(last)
            return
        for last, _ in victims:
            self._held -= _gpus(self._held_by.pop(last[2]))
            self.all_evicted[last[2]] = None
            heappush(self.evicted, last)

    def _pass(self, turn: Turn) -> None:
        """Who runs and is not behind `turn` any more keeps what it holds."""
        end = bisect_left(self._behind, turn, self._passed)
        for _, _, job in self._behind[self._passed : end]:
            if job in self._held_by:
                self._held -= _gpus(self._held_by.pop(job))
        self._passed = end

    def _could_fit(self, gpus: int) -> bool:
        """Whether there may be room for `gpus` GPUs if all who come later gave theirs."""
        draft, state = self._draft, self._draft._state
        if len(state.cluster.pools) > 1:
            return True  # of GPUs there are enough
        return state._placer.fits(Vacated(draft._capacity, self._held_by.values()), gpus)


def _gpus(place: Placement) -> int:
    return place[0][1] if len(place) == 1 else sum([count for _, count in place])


def _move_back(draft: Proposal, evicted: dict[JobView, None]) -> None:
    """Give jobs that were stopped and then found room elsewhere their own GPUs again, if those who took them
    fit elsewhere too.
    """
    moved = [job for job in evicted if draft.gpus(job) == job.gpus and job in draft._changes]
    if not moved:
        return
    taken = [(job, draft.gpus(job)) for job in draft._changes if not job.running]
    other = draft.copy()
    for job in [*moved, *(job for job, _ in taken)]:
        other.stop(job)
    back = all(other.start(job, job.gpus) == job._job.placement for job in moved)
    if back and all(other.start(job, gpus) is not None for job, gpus in taken):
        draft._capacity, draft._changes, draft._owns_capacity = other._capacity, other._changes, True
