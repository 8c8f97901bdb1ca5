"""Placers: which free GPUs a job gets.

A placer is a pair of functions: `fits(capacity, gpus)` answers quickly whether there is room,
`place(capacity, gpus, prefer)` says where, or None. `prefer` lists nodes to use first (those a job already
holds), so that a resize moves as little as possible. All choices are deterministic: ties go to the lowest
node number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from itertime.errors import UnknownName

from .cluster import Capacity, Placement, bits, mask_of

__all__ = ["PLACERS", "Placer", "placer"]


@dataclass(frozen=True)
class Placer:
    name: str
    summary: str
    fits: Callable[[Capacity, int], bool]
    place: Callable[[Capacity, int, Iterable[int]], Placement | None]


def _fullest(capacity: Capacity, gpus: int, prefer: int, avoid: int = 0) -> int | None:
    """Best fit: the node with the fewest free GPUs that has room for `gpus`; a preferred node before all
    others.
    """
    best = None
    for free in range(gpus, capacity.gpus_per_node + 1):
        nodes = capacity.nodes_with(free) & ~avoid
        if nodes & prefer:
            return next(bits(nodes & prefer))
        if best is None and nodes:
            best = next(bits(nodes))
            if not prefer:
                break
    return best


def _pack_fits(capacity: Capacity, gpus: int) -> bool:
    whole, rest = divmod(gpus, capacity.gpus_per_node)
    if gpus > capacity.free or whole > capacity.empty_nodes():
        return False
    if not rest:
        return True
    if whole < capacity.empty_nodes():
        return True
    return any(capacity.nodes_with(free) for free in range(rest, capacity.gpus_per_node))


def _pack(capacity: Capacity, gpus: int, prefer: Iterable[int] = ()) -> Placement | None:
    if not _pack_fits(capacity, gpus):
        return None
    liked = mask_of(prefer)
    whole, rest = divmod(gpus, capacity.gpus_per_node)
    spots: list[tuple[int, int]] = []
    if whole:
        empty = capacity.nodes_with(capacity.gpus_per_node)
        for mask in (empty & liked, empty & ~liked):
            for node in bits(mask):
                if len(spots) == whole:
                    break
                spots.append((node, capacity.gpus_per_node))
    if rest:
        last = _fullest(capacity, rest, liked, avoid=mask_of(node for node, _ in spots))
        assert last is not None, "_pack_fits said that there is room"
        spots.append((last, rest))
    return tuple(sorted(spots))


def _any_fits(capacity: Capacity, gpus: int) -> bool:
    return gpus <= capacity.free


def _any(capacity: Capacity, gpus: int, prefer: Iterable[int] = ()) -> Placement | None:
    if gpus > capacity.free:
        return None
    liked, left = mask_of(prefer), gpus
    spots: list[tuple[int, int]] = []
    for wanted in (True, False):
        for free in range(1, capacity.gpus_per_node + 1):
            nodes = capacity.nodes_with(free)
            for node in bits(nodes & liked if wanted else nodes & ~liked):
                if not left:
                    return tuple(sorted(spots))
                count = min(free, left)
                spots.append((node, count))
                left -= count
    return tuple(sorted(spots))


def _spread(capacity: Capacity, gpus: int, prefer: Iterable[int] = ()) -> Placement | None:
    if gpus > capacity.free:
        return None
    liked, size = mask_of(prefer), capacity.gpus_per_node
    level = next(  # the smallest number of GPUs per node with which the job fits
        k
        for k in range(1, size + 1)
        if sum(min(free, k) * capacity.nodes_with(free).bit_count() for free in range(1, size + 1)) >= gpus
    )
    spots: list[tuple[int, int]] = []
    left = gpus
    for free in range(size, 0, -1):
        nodes = capacity.nodes_with(free)
        for mask in (nodes & liked, nodes & ~liked):
            for node in bits(mask):
                if not left:
                    return tuple(sorted(spots))
                count = min(free, level, left)
                spots.append((node, count))
                left -= count
    return tuple(sorted(spots))


PLACERS = {
    p.name: p
    for p in (
        Placer(
            "pack",
            "whole nodes, and for the rest or a small job the fullest node with room, never two",
            _pack_fits,
            _pack,
        ),
        Placer("spread", "as few GPUs per node as possible, emptiest nodes first", _any_fits, _spread),
        Placer("any", "any free GPUs wherever they are, fullest nodes first", _any_fits, _any),
    )
}


def placer(name: str) -> Placer:
    """The placer of that name; UnknownName with suggestions if there is none."""
    try:
        return PLACERS[name]
    except KeyError:
        raise UnknownName("placement", name, PLACERS) from None
