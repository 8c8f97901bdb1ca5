"""Who gets how much of shared links: max-min fair shares, kept up to date as jobs come and go.

A job sends over some links at once, `demand[link]` bytes/s over each when nothing holds it back. Its *share*
is the fraction of that which it gets, the same on all of its links, at most 1: a collective is as fast as
its slowest hop. Shares are max-min fair: every job has either all it asks for, or a link that is full and on
which nobody has a larger share (Bertsekas and Gallager, Data Networks, 2nd edition, 1992, section 6.5.2).

As each NIC has an equal part in its job's demand, equal shares are equal bandwidths per NIC.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from heapq import heappop, heappush
from math import fsum, inf, isclose, nextafter
from typing import Generic, TypeVar

__all__ = ["Links"]

Job = TypeVar("Job", bound=Hashable)
Demand = Mapping[int, float]
_FULL = 1.0 - 1e-12  # rounding of the sums aside
_MARGIN = 1e-9  # of a link's capacity: far above what rounding makes of the running sum of its room


class Links(Generic[Job]):
    """The links, of `capacity` bytes/s each, and who sends over them. A link that is not in `capacity` holds
    nobody back. After some changes, `settle` gives the new shares.

    >>> links = Links({0: 6.0, 1: 6.0})
    >>> links.add("a", {0: 6.0}), links.add("b", {0: 6.0, 1: 6.0}), links.add("c", {1: 2.0})
    (None, None, None)
    >>> links.settle()
    [('a', 0.5), ('b', 0.5), ('c', 1.0)]
    >>> links.remove("a")
    >>> links.settle()
    [('b', 0.75), ('c', 0.75)]

    A link's *level* is the share at which it is full, 1 if it never is; a job's share is the lowest level of
    its links. Given what the other links leave to the jobs on it, a link has one level (`_full_at`), and that
    depends only on what is below it. So there is one set of levels that agree with each other, and it can be
    found in ascending order. After a change the levels that no longer agree wait in a queue, by the lower of
    what they are and what they should be, as distances do in incremental shortest paths (Ramalingam and Reps,
    Journal of Algorithms 21, 1996; Koenig, Likhachev and Furcy, Artificial Intelligence 155, 2004): only what
    the change reaches is looked at, each level changes at most three times, and the levels do not depend on
    how they came about, to the last bit.
    """

    def __init__(self, capacity: Mapping[int, float]):
        self._capacity = dict(capacity)
        self._flows: dict[Job, _Flow[Job]] = {}
        self._on_link: dict[int, dict[_Flow[Job], float]] = {}
        self._level = dict.fromkeys(capacity, 1.0)
        self._due = dict.fromkeys(capacity, 1.0)  # what the level should be
        self._room = dict(capacity)  # bytes/s, or less; of links whose level is 1, and should be
        self._touched: dict[int, None] = {}
        self._fresh: dict[_Flow[Job], None] = {}
        self._count = 0
        self.levels_computed = 0  # a measure of the work done so far

    def share(self, job: Job) -> float:
        """The job's share as of the last `settle`; 1 for one that sends over no link."""
        flow = self._flows.get(job)
        return flow.told if flow is not None and flow.told else 1.0

    def add(self, job: Job, demand: Demand) -> None:
        """Let `job`, which must not be here yet, send `demand` bytes/s by link."""
        assert job not in self._flows
        known = {link: amount for link, amount in demand.items() if link in self._capacity and amount > 0}
        flow = self._flows[job] = _Flow(job, self._count, known, self._level)
        self._count += 1
        self._fresh[flow] = None
        for link, amount in known.items():
            self._on_link.setdefault(link, {})[flow] = amount
            self._touched[link] = None

    def remove(self, job: Job) -> None:
        """Forget `job`; nothing happens if it is not here."""
        flow = self._flows.pop(job, None)
        if flow is None:
            return
        self._fresh.pop(flow, None)
        for link in flow.demand:
            del self._on_link[link][flow]
            self._touched[link] = None

    def settle(self) -> list[tuple[Job, float]]:
        """The jobs whose share is new or has changed since the last call, with it, in the order in which they
        were added.
        """
        moved = self._fresh
        self._agree(self._touched, moved)
        self._touched, self._fresh = {}, {}
        changed = []
        for flow in sorted(moved, key=lambda flow: flow.number):
            if not isclose(flow.told, flow.lowest, rel_tol=1e-12):
                flow.told = flow.lowest
                changed.append((flow.job, flow.told))
        return changed

    def _agree(self, doubtful: Iterable[int], moved: dict[_Flow[Job], None]) -> None:
        """Bring the levels into agreement; all but the `doubtful` ones are. Adds the jobs concerned to
        `moved`.
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
                # It was too low; how high it will be is a guess, which what follows may make too high, or too
                # low again. The second time it is left open, so that this comes to an end.
                if link in guessed:
                    new = 1.0
                guessed[link] = None
            doubtful = self._move(link, new, moved)
            if new != due[link]:
                doubtful[link] = None

    def _move(self, link: int, new: float, moved: dict[_Flow[Job], None]) -> dict[int, None]:
        """Give `link` another level. Returns the links that have to be looked at because of it."""
        level, due, room = self._level, self._due, self._room
        old, level[link] = level[link], new
        doubtful: dict[int, None] = {}
        for flow in self._on_link[link]:
            before, where = flow.lowest, flow.where
            if not flow.has_changed(link, old, level):
                continue
            # Nothing below `low` changes for other links: those that are full at it or below stay so.
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
        """The share at which `link` is full if all on it get as much, but nobody more than other links leave
        to it; 1 if it is not full then.
        """
        self.levels_computed += 1
        flows = self._on_link[link]
        rows = sorted([
            (flow.second if flow.where == link else flow.lowest, amount) for flow, amount in flows.items()
        ])  # fmt: skip
        # By running sums in this order, and above all limits that it rests on, the level is the same to the
        # last bit whatever the limits above it are.
        left, asked, below = self._capacity[link], fsum(flows.values()), 0.0
        for limit, amount in rows:
            level = left / asked if asked > 0.0 else 1.0
            if level <= below:
                level = nextafter(below, inf)
            if limit >= level:
                self._room[link] = 0.0
                return level if level < _FULL else 1.0
            left -= limit * amount
            asked -= amount
            below = limit
        self._room[link] = left - _MARGIN * self._capacity[link]
        return 1.0


class _Flow(Generic[Job]):
    """What one job sends, and what holds it back: the lowest level of its links, at which of them, and the
    lowest of the others. `told`: its share as of the last `settle`.
    """

    __slots__ = ("demand", "job", "lowest", "number", "second", "told", "where")

    def __init__(self, job: Job, number: int, demand: Demand, level: Mapping[int, float]):
        self.job, self.number, self.demand = job, number, demand
        self.told = 0.0
        self.where: int | None = None
        self.look(level)

    def look(self, level: Mapping[int, float]) -> None:
        """Find what holds it back among the levels of all its links."""
        levels = [level[link] for link in self.demand]
        self.lowest, self.second, self.where = min(levels, default=1.0), 1.0, None
        if self.lowest < 1.0:
            place = levels.index(self.lowest)
            self.where = list(self.demand)[place]
            levels[place] = 1.0
            self.second = min(levels)

    def has_changed(self, link: int, old: float, level: Mapping[int, float]) -> bool:
        """Take note that `link` has gone from level `old` to another; whether that can concern this job."""
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
