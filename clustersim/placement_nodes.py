"""Placers that look at nodes alone: `pack`, `spread`, `any` (see `clustersim.placement`)."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, islice

from .capacity import AnyRoom, Room, bits, lowest, mask_of
from .cluster import Placement

__all__ = ["any_fits", "any_free", "fullest", "pack", "pack_fits", "spread"]


def fullest(capacity: Room, gpus: int, prefer: int, among: int = -1) -> int | None:
    """Best fit: of the nodes `among` (a set of bits; all), the one with the fewest free GPUs that has room
    for `gpus`; a preferred node before all others.
    """
    best = None
    for free in range(gpus, capacity.gpus_per_node + 1):
        nodes = capacity.nodes_with(free) & among
        if nodes and not prefer:
            return lowest(nodes)
        if nodes & prefer:
            return lowest(nodes & prefer)
        if best is None and nodes:
            best = lowest(nodes)
    return best


def pack_fits(capacity: AnyRoom, gpus: int) -> bool:
    if gpus > capacity.free:
        return False
    whole, rest = divmod(gpus, capacity.gpus_per_node)
    empty = capacity.empty_nodes()
    if whole != empty or not rest:
        return whole <= empty
    return any(capacity.nodes_with(free) for free in range(rest, capacity.gpus_per_node))


def pack(capacity: Room, gpus: int, prefer: Iterable[int] = (), unit: int = 1) -> Placement | None:
    liked, size = mask_of(prefer) if prefer else 0, capacity.gpus_per_node
    if gpus < size:
        node = fullest(capacity, gpus, liked)
        return None if node is None else ((node, gpus),)
    if not pack_fits(capacity, gpus):
        return None
    whole, rest = divmod(gpus, size)
    empty = capacity.nodes_with(size)
    nodes = chain(bits(empty & liked), bits(empty & ~liked)) if liked else bits(empty)
    spots = [(node, size) for node in islice(nodes, whole)]
    if rest:
        last = fullest(capacity, rest, liked, among=~mask_of(node for node, _ in spots))
        assert last is not None, "pack_fits said that there is room"
        spots.append((last, rest))
    return tuple(sorted(spots)) if liked or rest else tuple(spots)


def any_fits(capacity: AnyRoom, gpus: int) -> bool:
    return gpus <= capacity.free


def any_free(capacity: Room, gpus: int, prefer: Iterable[int] = (), unit: int = 1) -> Placement | None:
    if gpus > capacity.free:
        return None
    liked = mask_of(prefer)
    order = (
        (node, free)
        for wanted in (True, False)
        for free in range(1, capacity.gpus_per_node + 1)
        for node in bits(capacity.nodes_with(free) & (liked if wanted else ~liked))
    )
    return _in_units(order, gpus, unit)


def spread(capacity: Room, gpus: int, prefer: Iterable[int] = (), unit: int = 1) -> Placement | None:
    if gpus > capacity.free:
        return None
    liked, size = mask_of(prefer), capacity.gpus_per_node
    whole = gpus - gpus % unit
    level = next(  # the smallest number of GPUs per node with which the job fits
        (
            k
            for k in range(unit, size + 1, unit)
            if sum(
                min(free - free % unit, k) * capacity.nodes_with(free).bit_count()
                for free in range(1, size + 1)
            )
            >= whole
        ),
        size,
    )
    order = (
        (node, free)
        for free in range(size, 0, -1)
        for mask in (capacity.nodes_with(free) & liked, capacity.nodes_with(free) & ~liked)
        for node in bits(mask)
    )
    return _in_units(order, gpus, unit, level)


def _in_units(
    order: Iterable[tuple[int, int]], gpus: int, unit: int, most: int | None = None
) -> Placement | None:
    """`gpus` GPUs from (node, room) pairs in their order, `unit` of them together on a node at a time and at
    most `most` per node; what is less than a unit at the end goes wherever there is room.
    """
    spots: dict[int, int] = {}
    left, seen = gpus, []
    for node, room in order:
        count = min(room, left, most or room)
        count -= count % unit
        if count:
            spots[node] = count
            left -= count
        if not left:
            break
        seen.append((node, room - count))
    if left >= unit:
        return None
    for node, room in seen:
        count = min(room, left)
        if count:
            spots[node] = spots.get(node, 0) + count
            left -= count
    return None if left else tuple(sorted(spots.items()))
