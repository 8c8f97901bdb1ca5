"""Placers that look at nodes alone: `pack`, `spread`, `any` (see `clustersim.placement`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice, repeat

from clustersim.cluster import (
    FreeNodes,
    NodeSet,
    NodesOfSize,
    Placement,
    first_node,
    lowest_nodes,
    node_set,
    nodes_of,
)

__all__ = ["any_fits", "any_free", "fullest", "pack", "pack_fits", "spread", "views_by_size"]


def fullest(capacity: FreeNodes, gpus: int, preferred: NodeSet, candidates: NodeSet = -1) -> int | None:
    """Best fit: the candidate with the fewest free GPUs that has room for `gpus`. A preferred node comes
    before all others. `candidates`: all nodes by default.
    """
    best = None
    for free in range(gpus, capacity.gpus_per_node + 1):
        nodes = capacity.nodes_with(free) & candidates
        if nodes and not preferred:
            return first_node(nodes)
        if nodes & preferred:
            return first_node(nodes & preferred)
        if best is None and nodes:
            best = first_node(nodes)
    return best


def pack_fits(capacity: FreeNodes, gpus: int) -> bool:
    """Whether there are enough empty nodes, and room for the rest on one node more."""
    if gpus > capacity.free:
        return False
    if len(capacity.by_size) > 1:
        return _over_sizes(capacity, gpus, 0) is not None
    whole_nodes, remainder = divmod(gpus, capacity.gpus_per_node)
    empty = capacity.empty_nodes()
    if whole_nodes != empty or not remainder:
        return whole_nodes <= empty
    return any(capacity.count_with(free) for free in range(remainder, capacity.gpus_per_node))


def pack(capacity: FreeNodes, gpus: int, prefer: Iterable[int] = (), unit: int = 1) -> Placement | None:
    """Empty nodes, and the fullest node with room for the rest; a job smaller than a node is never split.

    Where nodes differ in size, empty nodes of the largest size are taken first. A job smaller than the
    largest node is split over smaller ones only where no node has room for it.
    """
    preferred, size = node_set(prefer) if prefer else 0, capacity.gpus_per_node
    if gpus < size:
        node = fullest(capacity, gpus, preferred)
        if node is not None:
            return ((node, gpus),)
        return _over_sizes(capacity, gpus, preferred) if len(capacity.by_size) > 1 else None
    if len(capacity.by_size) > 1:
        return _over_sizes(capacity, gpus, preferred)
    whole_nodes, remainder = divmod(gpus, size)
    empty = capacity.nodes_with(size)
    if whole_nodes > empty.bit_count():
        return None
    nodes = _whole_nodes(empty, whole_nodes, preferred)
    if not remainder:
        return tuple(zip(nodes, repeat(size)))
    last_node = fullest(capacity, remainder, preferred, candidates=~node_set(nodes))
    if last_node is None:
        return None
    return tuple(sorted((*zip(nodes, repeat(size)), (last_node, remainder))))


def _whole_nodes(empty: NodeSet, count: int, preferred: NodeSet) -> list[int]:
    """`count` of these empty nodes, ascending: preferred ones first, then those with the lowest numbers."""
    own_nodes = empty & preferred
    if not own_nodes:
        return lowest_nodes(empty, count)
    own_count = own_nodes.bit_count()
    if own_count >= count:
        return lowest_nodes(own_nodes, count)
    return sorted(lowest_nodes(own_nodes, own_count) + lowest_nodes(empty & ~preferred, count - own_count))


def _over_sizes(capacity: FreeNodes, gpus: int, preferred: NodeSet) -> Placement | None:
    """The placement of `pack` on nodes of several sizes."""
    spots: list[tuple[int, int]] = []
    remaining, used_nodes = gpus, 0
    for size, nodes in capacity.by_size:
        empty = capacity.nodes_with(size) & nodes
        whole_nodes = [
            *islice(chain(nodes_of(empty & preferred), nodes_of(empty & ~preferred)), remaining // size)
        ]
        spots += zip(whole_nodes, repeat(size))
        remaining -= size * len(whole_nodes)
        used_nodes |= node_set(whole_nodes)
        if not remaining:
            return tuple(sorted(spots))
        last_node = fullest(capacity, remaining, preferred, candidates=~used_nodes)
        if last_node is not None:
            return tuple(sorted((*spots, (last_node, remaining))))
    return None


def views_by_size(capacity: FreeNodes, gpus: int) -> list[NodesOfSize]:
    """The nodes of each size: first of those that hold `gpus` on one node, the smallest first, then of the
    others, the largest first.
    """
    sizes = sorted(capacity.by_size, key=lambda entry: (entry[0] < gpus, abs(entry[0] - gpus)))
    return [NodesOfSize(capacity, size, nodes) for size, nodes in sizes]


def any_fits(capacity: FreeNodes, gpus: int) -> bool:
    return gpus <= capacity.free


def any_free(capacity: FreeNodes, gpus: int, prefer: Iterable[int] = (), unit: int = 1) -> Placement | None:
    """Any free GPUs, fullest nodes first."""
    if gpus > capacity.free:
        return None
    preferred = node_set(prefer)
    order = (
        (node, free)
        for candidates in (preferred, ~preferred)
        for free in range(1, capacity.gpus_per_node + 1)
        for node in nodes_of(capacity.nodes_with(free) & candidates)
    )
    return _in_units(order, gpus, unit)


def spread(capacity: FreeNodes, gpus: int, prefer: Iterable[int] = (), unit: int = 1) -> Placement | None:
    """As few GPUs per node as possible, emptiest nodes first."""
    if gpus > capacity.free:
        return None
    preferred = node_set(prefer)
    order = (
        (node, free)
        for free in range(capacity.gpus_per_node, 0, -1)
        for candidates in (preferred, ~preferred)
        for node in nodes_of(capacity.nodes_with(free) & candidates)
    )
    return _in_units(order, gpus, unit, _spread_level(capacity, gpus, unit))


def _spread_level(capacity: FreeNodes, gpus: int, unit: int) -> int:
    """The smallest number of GPUs per node with which the whole units of the job fit."""
    size = capacity.gpus_per_node
    for level in range(unit, size + 1, unit):
        room = sum(min(free - free % unit, level) * capacity.count_with(free) for free in range(1, size + 1))
        if room >= gpus - gpus % unit:
            return level
    return size


def _in_units(
    order: Iterator[tuple[int, int]], gpus: int, unit: int, limit: int | None = None
) -> Placement | None:
    """`gpus` GPUs from (node, free GPUs) pairs in their order: whole units per node, and at most `limit` GPUs
    per node. A last part of less than a unit goes to any of these nodes with room.
    """
    spots: dict[int, int] = {}
    remaining, seen = gpus, []
    for node, free in order:
        count = min(free, remaining, limit or free)
        count -= count % unit
        if count:
            spots[node] = count
            remaining -= count
        if not remaining:
            break
        seen.append((node, free - count))
    if remaining >= unit:
        return None
    for node, free in seen:
        count = min(free, remaining)
        if count:
            spots[node] = spots.get(node, 0) + count
            remaining -= count
    return None if remaining else tuple(sorted(spots.items()))
