"""Where reservations have room: whole nodes, and nodes that jobs smaller than a node share.

A reservation has an address. Jobs of a node or more take *whole* nodes, which are all alike and only counted.
A smaller one takes GPUs of one *virtual node*, which has a calendar of its own. A virtual node takes one of
the nodes of the cluster as long as anything is reserved on it; which one is decided when its first job begins
(`seating.py`). So whatever is reserved together has places of its own, and nobody ever has to move for
somebody else.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import NamedTuple

from clustersim.scheduler import Cluster
from policies.toolkit.gpu_calendar import FreeGpus

__all__ = ["WHOLE", "Claims", "Piece", "Place", "Room"]

WHOLE = -1
"""The address of whole nodes."""


class Piece(NamedTuple):
    """A stretch of a job's reservation: `gpus` GPUs from `start` to `end`, on the virtual node `node` or on
    whole nodes (`WHOLE`).
    """

    start: float
    end: float
    gpus: int
    node: int = WHOLE


class Room:
    """What is free on `nodes` nodes of `gpus_per_node` GPUs.

    `whole`: nodes that are neither reserved whole nor shared, over time. `shared[v]`: free GPUs of virtual
    node v over time; those beyond the list have never been used.
    """

    __slots__ = ("gpus_per_node", "nodes", "shared", "whole")

    def __init__(self, now: float, nodes: int, gpus_per_node: int):
        self.nodes, self.gpus_per_node = nodes, gpus_per_node
        self.whole = FreeGpus(now, nodes)
        self.shared: list[FreeGpus] = []

    def copy(self) -> Room:
        twin = object.__new__(Room)
        twin.nodes, twin.gpus_per_node, twin.whole = self.nodes, self.gpus_per_node, self.whole.copy()
        twin.shared = [calendar.copy() for calendar in self.shared]
        return twin

    def advance(self, now: float) -> None:
        """Forget what lies before `now`."""
        self.whole.advance(now)
        for calendar in self.shared:
            calendar.advance(now)
        while self.shared and self.shared[-1].free == [self.gpus_per_node]:
            self.shared.pop()

    def reserve(self, pieces: Iterable[Piece]) -> None:
        for start, end, gpus, node in pieces:
            if node == WHOLE:
                self.whole.take(start, end, -(-gpus // self.gpus_per_node))
                continue
            calendar = self._calendar(node)
            for opened in calendar.stretches(self.gpus_per_node, start, end):
                self.whole.take(*opened, 1)
            calendar.take(start, end, gpus)

    def give_back(self, pieces: Iterable[Piece]) -> None:
        for start, end, gpus, node in pieces:
            if node == WHOLE:
                self.whole.give_back(start, end, -(-gpus // self.gpus_per_node))
                continue
            calendar = self._calendar(node)
            calendar.give_back(start, end, gpus)
            for closed in calendar.stretches(self.gpus_per_node, start, end):
                self.whole.give_back(*closed, 1)

    # Looking backwards from a time, as reservations are filled

    def largest(self, sizes: Sequence[int], level: int, end: float) -> int:
        """The largest of `sizes` up to `level` for which there is room right before `end`, 0 if none."""
        nodes, node = self.whole.before(end), self.gpus_per_node
        limit = node if nodes else 0
        if not nodes:
            counts = (calendar.before(end) for calendar in self.shared)
            limit = max((count for count in counts if count < node), default=0)
        for size in reversed(sizes):
            if size <= level and (-(-size // node) <= nodes if size >= node else size <= limit):
                return size
        return 0

    def last(self, gpus: int, end: float) -> float:
        """The last time not after `end` right before which there is room for `gpus`; -inf if none."""
        node = self.gpus_per_node
        latest = self.whole.last(-(-gpus // node), end)
        if gpus < node:
            for calendar in self.shared:
                time = calendar.last(gpus, end)
                while time > latest and calendar.before(time) == node:  # idle: room only where a node is free
                    time = calendar.last(gpus, calendar.since(node, time))
                latest = max(latest, time)
        return latest

    def stay(self, gpus: int, end: float, goal: float, home: int | None) -> tuple[int, float]:
        """The address at which to reserve `gpus` GPUs backwards from `end`, and from when on there is room;
        (WHOLE, inf) if there is none.

        Of the virtual nodes with room since `goal` the address `home`, else the fullest; if there are none,
        that with room for longest.
        """
        node = self.gpus_per_node
        if gpus >= node:
            since = self.whole.since(-(-gpus // node), end)
            return WHOLE, since if since < end else inf
        opened = self.whole.since(1, end)  # since when a node could be opened
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
        """From when on there is room for `gpus` GPUs on virtual node `v` until `end`; it need not look beyond
        `goal`.
        """
        if v >= len(self.shared):
            return self.whole.since(1, end)
        calendar, node = self.shared[v], self.gpus_per_node
        i = bisect_left(calendar.times, end)
        while i and end > goal and calendar.free[i - 1] >= gpus:
            i -= 1
            start = calendar.times[i]
            if calendar.free[i] == node:
                opened = self.whole.since(1, end)
                if opened > start:
                    return opened
            end = start
        return end

    def _calendar(self, v: int) -> FreeGpus:
        while v >= len(self.shared):
            self.shared.append(FreeGpus(self.whole.times[0], self.gpus_per_node))
        return self.shared[v]


Place = tuple[tuple[int, int], ...]
"""(node, GPUs there) pairs."""


class Claims:
    """The nodes that jobs hold at the addresses of their reservations: each serves one virtual node, or is
    whole the job's.
    """

    def __init__(self, cluster: Cluster):
        self.node = cluster.gpus_per_node
        self.address: dict[int, int] = {}  # by node of the cluster: a virtual node, or WHOLE
        self.serving: dict[int, int] = {}  # by virtual node: the node of the cluster

    def fits(self, place: Place, gpus: int, address: int) -> bool:
        """Whether a job that holds `gpus` GPUs at `place` may be taken to hold them at `address`."""
        if sum(count for _, count in place) != gpus:
            return False
        if address == WHOLE:
            return len(place) == -(-gpus // self.node) and all(at not in self.address for at, _ in place)
        if len(place) > 1:
            return False
        at = place[0][0]
        return self.serving.get(address, at) == at and self.address.get(at, address) == address

    def add(self, place: Place, address: int) -> None:
        for at, _ in place:
            self.address[at] = address
            if address != WHOLE:
                self.serving[address] = at

    def drop(self, place: Place) -> None:
        """Give up whole nodes."""
        for at, _ in place:
            assert self.address.pop(at) == WHOLE

    def home(self, place: Place, former: Mapping[int, int]) -> int | None:
        """The address at which a job that runs at `place` could go on, None if there is none. `former`: the
        virtual node to prefer for a node that serves none yet.
        """
        gpus = sum(count for _, count in place)
        if gpus >= self.node:
            return WHOLE if self.fits(place, gpus, WHOLE) else None
        if len(place) > 1:
            return None
        at = place[0][0]
        if at in self.address:
            return None if self.address[at] == WHOLE else self.address[at]
        if at in former and former[at] not in self.serving:
            return former[at]
        return next(v for v in range(len(self.serving) + 1) if v not in self.serving)
