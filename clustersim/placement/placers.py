"""Placers: which free GPUs a job gets.

A placer is a pair of functions. `fits(capacity, gpus)` tells quickly whether there is room.
`place(capacity, gpus, prefer, unit)` returns the placement, or None. `prefer` lists nodes to use first (those
that the job already holds), so that a resize moves as little as possible. `unit` GPUs stay together on a node
(a tensor-parallel group); for a unit above 1 `fits` may be true although `place` finds nothing. All choices
are deterministic: ties go to the lowest node number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from clustersim.cluster import FreeNodes, FreeNodesByLeaf, Placement
from itertime.errors import UnknownName

from .buddy import buddy, buddy_fits
from .by_node import any_fits, any_free, pack, pack_fits, spread
from .by_switch import topology

__all__ = ["PLACERS", "Placer", "placer", "unit_of"]


class Place(Protocol):
    """Chooses the placement of a job; None if there is no room."""

    def __call__(
        self, capacity: FreeNodesByLeaf, gpus: int, prefer: Iterable[int] = (), unit: int = 1
    ) -> Placement | None: ...


@dataclass(frozen=True)
class Placer:
    """A rule of placement: `fits` is a quick test for room, `place` chooses the nodes.

    `by_count`: whether any free GPUs will do, so that their number alone tells whether there is room.
    """

    name: str
    summary: str
    fits: Callable[[FreeNodes, int], bool]
    place: Place
    by_count: bool = False


PLACERS = {
    p.name: p
    for p in (
        Placer(
            "pack",
            "whole nodes, and for the rest or a small job the fullest node with room, never two",
            pack_fits,
            pack,
        ),
        Placer("spread", "as few GPUs per node as possible, emptiest nodes first", any_fits, spread, True),
        Placer(
            "topology",
            "as pack, under as few leaf switches as possible, in the leaf where least is left over",
            pack_fits,
            topology,
        ),
        Placer(
            "buddy",
            "whole nodes in aligned blocks of a power of two, small jobs on the fullest node with room",
            buddy_fits,
            buddy,
        ),
        Placer("any", "any free GPUs wherever they are, fullest nodes first", any_fits, any_free, True),
    )
}


def placer(name: str) -> Placer:
    """The placer of that name; UnknownName with suggestions if there is none."""
    try:
        return PLACERS[name]
    except KeyError:
        raise UnknownName("placement", name, PLACERS) from None


def unit_of(tensor_parallel: int, gpus: int, room: FreeNodesByLeaf) -> int:
    """The GPUs of a job that must share a node: a tensor-parallel group, as far as the nodes can hold it."""
    unit = min(tensor_parallel, room.gpus_per_node)
    fits = gpus // unit <= sum(nodes.bit_count() * (size // unit) for size, nodes in room.by_size)
    return unit if fits else 1  # groups of 2 on nodes of 3: some must be split, or the job would never run
