"""GPUs that several jobs share, and the share of them that each job holds.

Shares are counted in millionths of a GPU, as whole numbers. So shares that add up to a GPU do so exactly.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "MILLION",
    "Joins",
    "NodeCounts",
    "SharedGpus",
    "SharedPlacement",
    "gpus_held",
    "in_use",
    "millionths_of",
    "moved",
]

MILLION = 1_000_000
"""Millionths of a whole GPU."""

NodeCounts = tuple[tuple[int, int], ...]
"""(node, GPUs there) pairs, by node."""


def millionths_of(fraction: float) -> int:
    """A fraction of a GPU in millionths, rounded down, so that rounded fractions fit where true ones do.

    >>> millionths_of(0.25), millionths_of(0.29), 3 * millionths_of(1 / 3)
    (250000, 290000, 999999)
    """
    return int(fraction * MILLION + 1e-4)  # 0.29 x 1e6 is a bit less than 290000 in floating point


class SharedPlacement(NodeCounts):
    """Where a job runs that holds a share of its GPUs: (node, GPUs there) pairs like any placement, and

    | attribute | |
    |---|---|
    | `number` | tells apart the shared GPUs of the same node, from 0 |
    | `millionths` | what the job holds of each of the GPUs |

    Jobs whose pairs and numbers are equal run on the same GPUs.
    """

    number: int
    millionths: int

    def __new__(cls, node_counts: NodeCounts, number: int, millionths: int) -> SharedPlacement:
        placement = super().__new__(cls, node_counts)
        placement.number, placement.millionths = number, millionths
        return placement

    def __reduce__(self) -> tuple[Any, ...]:
        return SharedPlacement, (tuple(self), self.number, self.millionths)

    @property
    def key(self) -> tuple[NodeCounts, int]:
        """What tells the shared GPUs apart from all others."""
        return tuple(self), self.number

    @property
    def share(self) -> float:
        """The share of each GPU that the job holds, below 1."""
        return self.millionths / MILLION

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SharedPlacement):
            return False
        return (self.number, self.millionths) == (other.number, other.millionths) and super().__eq__(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((tuple(self), self.number, self.millionths))

    def __repr__(self) -> str:
        return f"{tuple(self)}#{self.number}:{self.share:g}"


def moved(placement: NodeCounts, by: int) -> NodeCounts:
    """The placement on nodes with numbers larger by `by`, with the same share of their GPUs."""
    node_counts = tuple((node + by, count) for node, count in placement)
    if isinstance(placement, SharedPlacement):
        return SharedPlacement(node_counts, placement.number, placement.millionths)
    return node_counts


def in_use(in_service: int, free: int, stranded: int, idle_millionths: int) -> tuple[float, float]:
    """The GPUs that jobs hold of those `in_service`, and the free ones on nodes that also run something, from
    whole GPUs that are `free` or `stranded` and from the millionths of shared ones that no job holds. A share
    of a GPU counts as that share.
    """
    held = in_service - free
    if not idle_millionths:
        return held, stranded
    return (held * MILLION - idle_millionths) / MILLION, (stranded * MILLION + idle_millionths) / MILLION


def gpus_held(placement: NodeCounts) -> float:
    """The GPUs that a job holds in a placement. A share of a GPU counts as that share."""
    count = sum([gpus for _, gpus in placement])
    return count * placement.millionths / MILLION if isinstance(placement, SharedPlacement) else count


class SharedGpus:
    """The shared GPUs of a cluster, and how much of each is held. A shared GPU is taken from the free ones
    while any share of it is held.

    `idle`: millionths of shared GPUs that no job holds.
    """

    __slots__ = ("_held", "_rooms", "idle")

    def __init__(self) -> None:
        self._held: dict[tuple[NodeCounts, int], int] = {}
        self._rooms: dict[int, int] = {}  # how many single shared GPUs have exactly that much room
        self.idle = 0

    def copy(self) -> SharedGpus:
        twin = object.__new__(SharedGpus)
        twin._held, twin._rooms, twin.idle = self._held.copy(), self._rooms.copy(), self.idle
        return twin

    def __contains__(self, key: object) -> bool:
        return key in self._held

    def held(self) -> dict[tuple[NodeCounts, int], int]:
        """The millionths held, by the key of the shared GPUs."""
        return self._held.copy()

    def room(self, placement: SharedPlacement) -> int:
        """Millionths that are free there; a whole GPU's where nothing is shared yet."""
        return MILLION - self._held.get(placement.key, 0)

    def fullest(self, millionths: int, start: int, nodes: int, closed: int = 0) -> SharedPlacement | None:
        """Best fit: a share of the shared GPU with the least room that is enough, on one of `nodes` nodes
        from `start` on that is not `closed` (a set of bits). Ties: the lowest node, then the lowest number.
        """
        for room in sorted(room for room in self._rooms if room >= millionths):
            held = MILLION - room
            fitting = [
                key
                for key, share in self._held.items()
                if share == held and start <= key[0][0][0] < start + nodes and not closed >> key[0][0][0] & 1
            ]
            single = [key for key in fitting if len(key[0]) == 1 and key[0][0][1] == 1]
            if single:
                return SharedPlacement(*min(single), millionths)
        return None

    def unused_number(self, node_counts: NodeCounts) -> int:
        """The lowest number that no shared GPUs at `node_counts` have."""
        number = 0
        while (node_counts, number) in self._held:
            number += 1
        return number

    def add(self, placement: SharedPlacement) -> None:
        """A job takes its share. ValueError, and no change, if there is not so much room."""
        key = placement.key
        held_before = self._held.get(key, 0)
        held_after = held_before + placement.millionths
        if not 0 < placement.millionths <= MILLION or held_after > MILLION:
            node = placement[0][0]
            fault = f"{placement.share:g} of shared GPU {placement.number} is not free there"
            raise ValueError(f"node {node}: {fault}; {held_before / MILLION:g} of it is held")
        self._held[key] = held_after
        self._count(key[0], held_before, held_after)

    def remove(self, placement: SharedPlacement) -> bool:
        """A job releases its share. Returns whether no job holds any other share. ValueError if so much is
        not held.
        """
        key = placement.key
        held_before = self._held.get(key, 0)
        held_after = held_before - placement.millionths
        if held_after < 0:
            raise ValueError(
                f"node {placement[0][0]}: {placement.share:g} of a shared GPU was not taken there"
            )
        if held_after:
            self._held[key] = held_after
        else:
            del self._held[key]
        self._count(key[0], held_before, held_after)
        return not held_after

    def _count(self, node_counts: NodeCounts, held_before: int, held_after: int) -> None:
        """Count that `held_after` millionths of each GPU at `node_counts` are held instead of `held_before`.
        With 0 held, the GPUs are not shared.
        """
        gpus = sum([count for _, count in node_counts])
        idle = (MILLION - held_after if held_after else 0) - (MILLION - held_before if held_before else 0)
        self.idle += gpus * idle
        if gpus > 1:
            return
        rooms = self._rooms
        if held_before:
            room = MILLION - held_before
            rooms[room] -= 1
            if not rooms[room]:
                del rooms[room]
        if held_after:
            room = MILLION - held_after
            rooms[room] = rooms.get(room, 0) + 1


class Joins:
    """Counts how often a job joins others on GPUs that they share, in the order of the log.

    `count`: the joins so far of jobs that their policy packs; those whose trace states a part do not count,
    but others that come to them do.
    """

    __slots__ = ("_holders", "count")

    def __init__(self) -> None:
        self._holders: dict[tuple[NodeCounts, int], int] = {}
        self.count = 0

    def begin(self, placement: NodeCounts, packed: bool) -> None:
        """A job gets GPUs; `packed`: its policy chose the share of them."""
        if isinstance(placement, SharedPlacement):
            holders = self._holders[placement.key] = self._holders.get(placement.key, 0) + 1
            self.count += packed and holders > 1

    def end(self, placement: NodeCounts) -> None:
        """A job releases its GPUs."""
        if isinstance(placement, SharedPlacement):
            self._holders[placement.key] -= 1
            if not self._holders[placement.key]:
                del self._holders[placement.key]
