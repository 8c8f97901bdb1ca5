"""What reservations leave free, by address, and which node of the cluster serves which address.

Every reservation has an address. A job of a node or more reserves *whole* nodes, which are all alike and only
counted. A smaller job reserves GPUs of a *virtual node*, which has a calendar of its own. While anything is
reserved on a virtual node, it occupies one node of the cluster; which one is decided when its first job
begins (`seating.py`). Jobs that are due at the same time therefore always fit, and none of them ever has to
move for another.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import NamedTuple

from policies.toolkit.gpu_calendar import FreeGpus

__all__ = ["WHOLE", "Addresses", "NodeCalendar", "Placement", "Slot"]

WHOLE = -1
"""The address of whole nodes."""

Placement = tuple[tuple[int, int], ...]
"""(node, GPUs there) pairs."""


class Slot(NamedTuple):
    """A part of a job's reservation: `gpus` GPUs from `start` to `end`, on the virtual node `node` or on
    whole nodes (`WHOLE`).
    """

    start: float
    end: float
    gpus: int
    node: int = WHOLE


class NodeCalendar:
    """What is free on `nodes` nodes of `gpus_per_node` GPUs each.

    `whole`: nodes that are neither reserved whole nor occupied by a virtual node, over time. `shared[v]`:
    free GPUs of virtual node v over time; virtual nodes beyond the list have never been used.
    """

    __slots__ = ("gpus_per_node", "nodes", "shared", "whole")

    def __init__(self, now: float, nodes: int, gpus_per_node: int):
        self.nodes, self.gpus_per_node = nodes, gpus_per_node
        self.whole = FreeGpus(now, nodes)
        self.shared: list[FreeGpus] = []

    @classmethod
    def beside(cls, now: float, nodes: int, gpus_per_node: int, slots: Sequence[Slot]) -> NodeCalendar:
        """The calendar from `now` on, after `reserve` of `slots`."""
        calendar = cls(now, nodes, gpus_per_node)
        whole = [(start, end, -(-gpus // gpus_per_node)) for start, end, gpus, node in slots if node == WHOLE]
        calendar.whole = FreeGpus.beside(now, nodes, whole)
        calendar.reserve([slot for slot in slots if slot.node != WHOLE])
        calendar.advance(now)
        return calendar

    def copy(self) -> NodeCalendar:
        twin = object.__new__(NodeCalendar)
        twin.nodes, twin.gpus_per_node, twin.whole = self.nodes, self.gpus_per_node, self.whole.copy()
        twin.shared = [shared.copy() for shared in self.shared]
        return twin

    def advance(self, now: float) -> None:
        """Drop the time before `now`."""
        self.whole.advance(now)
        for shared in self.shared:
            shared.advance(now)
        while self.shared and self.shared[-1].free == [self.gpus_per_node]:
            self.shared.pop()

    def reserve(self, slots: Iterable[Slot]) -> None:
        """Take the GPUs of `slots`."""
        for start, end, gpus, node in slots:
            if node == WHOLE:
                self.whole.take(start, end, -(-gpus // self.gpus_per_node))
                continue
            shared = self._shared(node)
            for opened in shared.stretches(self.gpus_per_node, start, end):
                self.whole.take(*opened, 1)
            shared.take(start, end, gpus)

    def give_back(self, slots: Iterable[Slot]) -> None:
        """Undo `reserve`."""
        for start, end, gpus, node in slots:
            if node == WHOLE:
                self.whole.give_back(start, end, -(-gpus // self.gpus_per_node))
                continue
            shared = self._shared(node)
            shared.give_back(start, end, gpus)
            for closed in shared.stretches(self.gpus_per_node, start, end):
                self.whole.give_back(*closed, 1)

    # Looking backwards from a time, as reservations are filled backwards

    def largest(self, sizes: Sequence[int], level: int, end: float) -> int:
        """The largest of `sizes` up to `level` that is free right before `end`; 0 if none is."""
        nodes, node = self.whole.before(end), self.gpus_per_node
        limit = node if nodes else 0
        if not nodes:
            counts = (shared.before(end) for shared in self.shared)
            limit = max((count for count in counts if count < node), default=0)
        for size in reversed(sizes):
            if size <= level and (-(-size // node) <= nodes if size >= node else size <= limit):
                return size
        return 0

    def last(self, gpus: int, end: float) -> float:
        """The last time not after `end` right before which `gpus` GPUs are free; -inf if there is none."""
        node = self.gpus_per_node
        latest = self.whole.last(-(-gpus // node), end)
        if gpus < node:
            for shared in self.shared:
                time = shared.last(gpus, end)
                while time > latest and shared.before(time) == node:  # unoccupied: needs a free node
                    time = shared.last(gpus, shared.since(node, time))
                latest = max(latest, time)
        return latest

    def address_before(self, gpus: int, end: float, goal: float, home: int | None) -> tuple[int, float]:
        """The address at which to reserve `gpus` GPUs backwards from `end`, and the time since which they are
        free there; (WHOLE, inf) if there is no such address.

        Of the virtual nodes on which they are free since `goal`, this is `home`, else the fullest. If there
        are none, it is the one on which they are free for longest.
        """
        node = self.gpus_per_node
        if gpus >= node:
            since = self.whole.since(-(-gpus // node), end)
            return WHOLE, since if since < end else inf
        opened = self.whole.since(1, end)  # since when another virtual node can occupy a node
        best: tuple[float, bool, int, int] | None = None
        for v in range(min(max(len(self.shared), home or 0) + 1, self.nodes)):
            free = self.shared[v].before(end) if v < len(self.shared) else node
            if free < gpus or (free == node and opened >= end):
                continue
            key = (max(goal, self._since(v, gpus, end, goal)), v != home, free, v)
            if best is None or key < best:
                best = key
        if best is None:
            return WHOLE, inf
        return best[3], self._since(best[3], gpus, end, goal)

    def _since(self, v: int, gpus: int, end: float, goal: float) -> float:
        """The time since which `gpus` GPUs are free on virtual node `v` until `end`. The search may stop at
        `goal`.
        """
        if v >= len(self.shared):
            return self.whole.since(1, end)
        shared, node = self.shared[v], self.gpus_per_node
        i = bisect_left(shared.times, end)
        while i and end > goal and shared.free[i - 1] >= gpus:
            i -= 1
            start = shared.times[i]
            if shared.free[i] == node:
                opened = self.whole.since(1, end)
                if opened > start:
                    return opened
            end = start
        return end

    def _shared(self, v: int) -> FreeGpus:
        while v >= len(self.shared):
            self.shared.append(FreeGpus(self.whole.times[0], self.gpus_per_node))
        return self.shared[v]


class Addresses:
    """Which node of a GPU type serves which address: the nodes of jobs that run at their reserved addresses.

    A node serves one virtual node, or one job that has reserved whole nodes.
    """

    def __init__(self, gpus_per_node: int):
        self.gpus_per_node = gpus_per_node
        self.address: dict[int, int] = {}  # by node of the cluster: a virtual node, or WHOLE
        self.serving: dict[int, int] = {}  # by virtual node: the node of the cluster

    def fits(self, placement: Placement, gpus: int, address: int) -> bool:
        """Whether a job with `gpus` reserved GPUs at `address` may be counted as running there when it runs
        on `placement`.
        """
        at, held = placement[0]
        if address == WHOLE:
            if len(placement) != -(-gpus // self.gpus_per_node):
                return False
            for other, count in placement[1:]:
                held += count
                if other in self.address:
                    return False
            return held == gpus and at not in self.address
        if len(placement) > 1 or held != gpus:
            return False
        return self.serving.get(address, at) == at and self.address.get(at, address) == address

    def add(self, placement: Placement, address: int) -> None:
        """Let the nodes of `placement` serve `address`."""
        for at, _ in placement:
            self.address[at] = address
            if address != WHOLE:
                self.serving[address] = at

    def drop(self, placement: Placement) -> None:
        """Undo `add` for whole nodes."""
        for at, _ in placement:
            assert self.address.pop(at) == WHOLE

    def home(self, placement: Placement, former: Mapping[int, int]) -> int | None:
        """The address at which a job that runs on `placement` could go on; None if there is none. `former`:
        by node, the virtual node to prefer if the node serves none.
        """
        gpus = sum(count for _, count in placement)
        if gpus >= self.gpus_per_node:
            return WHOLE if self.fits(placement, gpus, WHOLE) else None
        if len(placement) > 1:
            return None
        at = placement[0][0]
        if at in self.address:
            return None if self.address[at] == WHOLE else self.address[at]
        if at in former and former[at] not in self.serving:
            return former[at]
        return next(v for v in range(len(self.serving) + 1) if v not in self.serving)
