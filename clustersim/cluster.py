"""The machines: what a cluster is made of, and which of its GPUs are free.

A `Cluster` is a frozen description. `Capacity` is the one mutable model of free GPUs: the engine owns the
real one, a `Proposal` works on a copy. Both are counted per node; which GPU of a node a job holds makes no
difference to any rule.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from itertime.errors import UserError

__all__ = ["Capacity", "Cluster", "Placement"]

Placement = tuple[tuple[int, int], ...]
"""Where a job runs: (node, GPUs there) pairs, by node."""

_SHAPE = re.compile(r"n([0-9]{1,9})g([0-9]{1,9})|([0-9]{1,9})x([0-9]{1,9})")
_MAX_NODES, _MAX_GPUS_PER_NODE = 1_000_000, 64


@dataclass(frozen=True)
class Cluster:
    """`nodes` equal nodes of `gpus_per_node` GPUs; `system` names the `itertime` system they are built
    from.
    """

    nodes: int = 128
    gpus_per_node: int = 8
    system: str = "dgx-a100-80gb"

    def __post_init__(self) -> None:
        if not 1 <= self.nodes <= _MAX_NODES:
            raise UserError(f"cluster: nodes={self.nodes}: must be between 1 and {_MAX_NODES}")
        if not 1 <= self.gpus_per_node <= _MAX_GPUS_PER_NODE:
            raise UserError(
                f"cluster: gpus_per_node={self.gpus_per_node}: must be between 1 and {_MAX_GPUS_PER_NODE}"
            )

    @property
    def gpus(self) -> int:
        return self.nodes * self.gpus_per_node

    @property
    def shape(self) -> str:
        return f"n{self.nodes}g{self.gpus_per_node}"

    @classmethod
    def parse(cls, shape: str, system: str = "dgx-a100-80gb") -> Cluster:
        """Read a shape: `n128g8` or `128x8`, 128 nodes of 8 GPUs.

        >>> Cluster.parse("n128g8").gpus
        1024
        """
        match = _SHAPE.fullmatch(shape.strip().lower())
        if not match:
            raise UserError(f"cluster {shape!r}: not a shape; write n128g8 for 128 nodes of 8 GPUs")
        nodes, gpus = (int(x) for x in match.groups() if x is not None)
        return cls(nodes, gpus, system)


class Capacity:
    """Free GPUs by node.

    For each count f the nodes with exactly f free GPUs are the bits of one integer, so that "the fullest
    node with room for 3" and "how many nodes are empty" cost a few machine operations, and a copy costs
    nine references.
    """

    __slots__ = ("_free", "_with", "free", "gpus_per_node", "nodes")

    def __init__(self, cluster: Cluster):
        self.nodes, self.gpus_per_node = cluster.nodes, cluster.gpus_per_node
        self.free = cluster.gpus
        self._free = bytearray([self.gpus_per_node]) * self.nodes
        self._with = [0] * self.gpus_per_node + [(1 << self.nodes) - 1]

    def copy(self) -> Capacity:
        twin = object.__new__(Capacity)
        twin.nodes, twin.gpus_per_node, twin.free = self.nodes, self.gpus_per_node, self.free
        twin._free, twin._with = self._free[:], self._with[:]
        return twin

    def free_on(self, node: int) -> int:
        return self._free[node]

    def nodes_with(self, free: int) -> int:
        """The nodes with exactly `free` free GPUs, as a set of bits."""
        return self._with[free]

    def empty_nodes(self) -> int:
        """How many nodes run nothing."""
        return self._with[self.gpus_per_node].bit_count()

    def most_free_on_one(self) -> int:
        """The largest number of free GPUs on a single node."""
        for free in range(self.gpus_per_node, 0, -1):
            if self._with[free]:
                return free
        return 0

    def take(self, placement: Placement) -> None:
        """Occupy the GPUs of `placement`; ValueError (and no change) if one of them is not free."""
        for node, count in placement:
            if not 0 <= node < self.nodes or not 0 < count <= self._free[node]:
                raise ValueError(f"node {node}: {count} GPUs are not free there")
        if len({node for node, _ in placement}) != len(placement):
            raise ValueError(f"placement names a node twice: {placement}")
        for node, count in placement:
            self._move(node, -count)

    def release(self, placement: Placement) -> None:
        """Give the GPUs of `placement` back; ValueError if a node would have more free than it has."""
        for node, count in placement:
            if self._free[node] + count > self.gpus_per_node:
                raise ValueError(f"node {node}: {count} GPUs were not taken there")
            self._move(node, count)

    def _move(self, node: int, count: int) -> None:
        before, bit = self._free[node], 1 << node
        self._with[before] ^= bit
        self._with[before + count] ^= bit
        self._free[node] = before + count
        self.free += count


def bits(mask: int) -> Iterator[int]:
    """The positions of the set bits, lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def mask_of(nodes: Iterable[int]) -> int:
    mask = 0
    for node in nodes:
        mask |= 1 << node
    return mask
