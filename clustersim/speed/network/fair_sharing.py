"""Max-min fair shares of links, updated as jobs come and go.

An unhindered job sends `demand[link]` bytes/s over some links at once. Its *share* is the fraction of that
demand which it gets. The share is the same on all of its links, and at most 1: a collective is as fast as its
slowest hop. Shares are max-min fair: every job has a share of 1, or a link that is full and on which no job
has a larger share (Bertsekas and Gallager, Data Networks, 2nd edition, 1992, section 6.5.2).

Each NIC has an equal part in the demand of its job, so equal shares are equal bandwidths per NIC.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from heapq import heappop, heappush
from math import fsum, inf, isclose, nextafter
from typing import Generic, TypeVar

__all__ = ["MaxMinLinks"]

AnyJob = TypeVar("AnyJob", bound=Hashable)
Demand = Mapping[int, float]
_FULL = 1.0 - 1e-12  # a level above this one is 1, but for rounding
_MARGIN = 1e-9  # of a link's capacity: far above the rounding error of the running sum of its room


class MaxMinLinks(Generic[AnyJob]):
    """Links of `capacity` bytes/s each, and the jobs that send over them. A link that is not in `capacity`
    limits no job. After some changes, `settle` returns the new shares.

    >>> links = MaxMinLinks({0: 6.0, 1: 6.0})
    >>> links.add("a", {0: 6.0}), links.add("b", {0: 6.0, 1: 6.0}), links.add("c", {1: 2.0})
    (None, None, None)
    >>> links.settle()
    [('a', 0.5), ('b', 0.5), ('c', 1.0)]
    >>> links.remove("a")
    >>> links.settle()
    [('b', 0.75), ('c', 0.75)]

    A link's *level* is the share at which it is full, 1 if it never is. A job's share is the lowest level of
    its links. The level of a link follows from the limits that other links set to its jobs (`_full_at`), and
    depends only on limits below it. So exactly one set of levels is consistent, and it can be found in
    ascending order.

    After a change, the levels that are no longer consistent wait in a queue, ordered by the lower of the
    present and the right level, like the distances of incremental shortest paths (Ramalingam and Reps,
    Journal of Algorithms 21, 1996; Koenig, Likhachev and Furcy, Artificial Intelligence 155, 2004). Only
    links that the change reaches are visited, and each level changes at most three times. The levels do not
    depend on the order of the changes that led to them, to the last bit.
    """

    def __init__(self, capacity: Mapping[int, float]):
        self._capacity = dict(capacity)
        self._flows: dict[AnyJob, _Flow[AnyJob]] = {}
        self._on_link: dict[int, dict[_Flow[AnyJob], float]] = {}
        self._level = dict.fromkeys(capacity, 1.0)
        self._due = dict.fromkeys(capacity, 1.0)  # the right level
        self._room = dict(capacity)  # spare bytes/s, or less; of links whose level and right level are 1
        self._touched: dict[int, None] = {}
        self._fresh: dict[_Flow[AnyJob], None] = {}
        self._count = 0
        self.levels_computed = 0  # a measure of the work so far

    def share(self, job: AnyJob) -> float:
        """The job's share as of the last `settle`; 1 for a job that sends over no link."""
        flow = self._flows.get(job)
        return flow.reported if flow is not None and flow.reported else 1.0

    def add(self, job: AnyJob, demand: Demand) -> None:
        """Let `job`, which must be new, send `demand` bytes/s by link."""
        assert job not in self._flows
        link_demand = {
            link: amount for link, amount in demand.items() if link in self._capacity and amount > 0
        }
        flow = self._flows[job] = _Flow(job, self._count, link_demand, self._level)
        self._count += 1
        self._fresh[flow] = None
        for link, amount in link_demand.items():
            self._on_link.setdefault(link, {})[flow] = amount
            self._touched[link] = None

    def remove(self, job: AnyJob) -> None:
        """Forget `job`. Nothing happens if it is unknown."""
        flow = self._flows.pop(job, None)
        if flow is None:
            return
        self._fresh.pop(flow, None)
        for link in flow.demand:
            del self._on_link[link][flow]
            self._touched[link] = None

    def settle(self) -> list[tuple[AnyJob, float]]:
        """The new and the changed shares since the last call, by job, in the order in which the jobs were
        added.
        """
        moved = self._fresh
        self._make_consistent(self._touched, moved)
        self._touched, self._fresh = {}, {}
        changed = []
        for flow in sorted(moved, key=lambda flow: flow.number):
            if not isclose(flow.reported, flow.lowest, rel_tol=1e-12):
                flow.reported = flow.lowest
                changed.append((flow.job, flow.reported))
        return changed

    def _make_consistent(self, doubtful: Iterable[int], moved: dict[_Flow[AnyJob], None]) -> None:
        """Correct the levels, of which only those of `doubtful` links may be wrong. Adds the jobs whose share
        may have changed to `moved`.
        """
        level, due = self._level, self._due
        queue: list[tuple[float, int]] = []
        guessed: dict[int, None] = {}
        while True:
            for link in doubtful:
                due[link] = self._full_at(link)
                if due[link] != level[link]:
                    heappush(queue, (min(due[link], level[link]), link))
            while queue:
                key, link = heappop(queue)
                if due[link] != level[link] and key == min(due[link], level[link]):
                    break
            else:
                return
            new = due[link]
            if new > level[link]:
                # The level was too low. How high it gets is a guess, which later steps may find too high or
                # too low. The second time it is set to 1, so that the loop ends.
                if link in guessed:
                    new = 1.0
                guessed[link] = None
            doubtful = self._move(link, new, moved)
            if new != due[link]:
                doubtful[link] = None

    def _move(self, link: int, new: float, moved: dict[_Flow[AnyJob], None]) -> dict[int, None]:
        """Set the level of `link`. Returns the links whose level may be wrong because of that."""
        level, due, room = self._level, self._due, self._room
        old, level[link] = level[link], new
        doubtful: dict[int, None] = {}
        for flow in self._on_link[link]:
            before, where = flow.lowest, flow.where
            if not flow.has_changed(link, old, level):
                continue
            # Limits below `low` do not change, so a link that is full at `low` or below keeps its level.
            low = min(before, flow.lowest)
            if flow.lowest == before:
                for other in (where, flow.where):
                    if other is not None and due[other] > low:
                        doubtful[other] = None
                continue
            moved[flow] = None
            for other, amount in flow.demand.items():
                if due[other] <= low:
                    continue
                if due[other] == 1.0 == level[other]:
                    room[other] -= amount * (flow.lowest - before)
                    if room[other] > 0.0:
                        continue
                doubtful[other] = None
        doubtful.pop(link, None)
        return doubtful

    def _full_at(self, link: int) -> float:
        """The share at which `link` is full, if all its jobs get that share or less where another link limits
        them; 1 if the link is not full then.
        """
        self.levels_computed += 1
        flows = self._on_link[link]
        # One flow after the other in the order of their limits: so the level does not depend on the limits
        # above it, to the last bit.
        rows = [
            (flow.second if flow.where == link else flow.lowest, amount) for flow, amount in flows.items()
        ]
        rows.sort()
        remaining, demand, below = self._capacity[link], fsum(flows.values()), 0.0
        for limit, amount in rows:
            level = remaining / demand if demand > 0.0 else 1.0
            if level <= below:
                level = nextafter(below, inf)
            if limit >= level:
                self._room[link] = 0.0
                return level if level < _FULL else 1.0
            remaining -= limit * amount
            demand -= amount
            below = limit
        self._room[link] = remaining - _MARGIN * self._capacity[link]
        return 1.0


class _Flow(Generic[AnyJob]):
    """The demand of one job, and its limit: `lowest`, the lowest level of its links, `where`, the link that
    has it, and `second`, the lowest level of the other links. `reported`: the share as of the last `settle`.
    """

    __slots__ = ("demand", "job", "lowest", "number", "reported", "second", "where")

    def __init__(self, job: AnyJob, number: int, demand: Demand, level: Mapping[int, float]):
        self.job, self.number, self.demand = job, number, demand
        self.reported = 0.0
        self.where: int | None = None
        self.look(level)

    def look(self, level: Mapping[int, float]) -> None:
        """Find the limit among the levels of all links."""
        levels = [level[link] for link in self.demand]
        self.lowest, self.second, self.where = min(levels, default=1.0), 1.0, None
        if self.lowest < 1.0:
            place = levels.index(self.lowest)
            self.where = list(self.demand)[place]
            levels[place] = 1.0
            self.second = min(levels)

    def has_changed(self, link: int, old: float, level: Mapping[int, float]) -> bool:
        """Update the limit after the level of `link` changed from `old`. False: it stays the same."""
        new = level[link]
        if self.where == link and new <= self.second:
            self.lowest = new
        elif self.where != link and new < self.lowest:
            self.lowest, self.where, self.second = new, link, self.lowest
        elif self.where != link and new < self.second:
            self.second = new
        elif self.where != link and old > self.second:
            return False
        else:
            self.look(level)
        return True
