"""Which GPUs are free: the one mutable model of a cluster.

The engine owns the real one; a `Proposal` works on a copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Protocol, cast

import numpy as np

from .cluster import Cluster, Placement
from .host import HostDemand, HostUse
from .node_set import NodeSet, node_range, nodes_of
from .sharing import SharedGpus, SharedPlacement, in_use
from .topology import Leaf, Pool

__all__ = [
    "Capacity",
    "CapacityIfStopped",
    "FreeNodes",
    "FreeNodesByLeaf",
    "PoolCapacity",
    "SomeNodes",
]


_FEW_NODES = 2  # so many are moved one by one


class FreeNodes(Protocol):
    """The free GPUs of some nodes: enough to tell whether a job fits."""

    @property
    def free(self) -> int:
        """Free GPUs in all."""

    @property
    def gpus_per_node(self) -> int:
        """GPUs of the largest node."""

    @property
    def by_size(self) -> Sequence[tuple[int, NodeSet]]:
        """The sizes of the nodes, the largest first, and the nodes of each."""

    @property
    def span(self) -> tuple[int, int]:
        """First node and number of nodes."""

    def nodes_with(self, free: int) -> NodeSet:
        """The nodes with exactly `free` free GPUs."""

    def count_with(self, free: int) -> int:
        """How many nodes have exactly `free` free GPUs."""

    def empty_nodes(self) -> int:
        """How many nodes of the full size, `gpus_per_node`, run nothing."""


class FreeNodesByLeaf(FreeNodes, Protocol):
    """The free GPUs of a cluster, or of its nodes of one type: what a placer chooses from."""

    @property
    def nodes(self) -> int:
        """Number of nodes."""

    @property
    def leaves(self) -> Sequence[Leaf]:
        """The leaf switches above the nodes."""

    def empty_by_leaf(self) -> list[int]:
        """How many nodes of each leaf run nothing and are in service."""

    def free_on(self, node: int) -> int:
        """Free GPUs of one node."""


class Capacity:
    """Free GPUs by node.

    For each count f there is the set of the nodes with exactly f free GPUs. So "the fullest node with room
    for 3" and "how many nodes are empty" cost a few machine operations, and a copy costs some ten references.
    A node out of service (`close`) is in none of these sets. `shared`: the GPUs that jobs share,
    which are not free; None until there is one. `host`: the cores and the memory that no job holds; None
    until a job that states a demand holds some.
    """

    __slots__ = (
        "_closed",
        "_cluster",
        "_empty_by_leaf",
        "_free",
        "_leaf_of",
        "_sizes",
        "_uniform",
        "_with",
        "by_size",
        "free",
        "gpus_per_node",
        "host",
        "nodes",
        "shared",
    )

    def __init__(self, cluster: Cluster):
        self._cluster, self._sizes = cluster, cluster.sizes
        self.nodes, self.gpus_per_node = cluster.nodes, cluster.gpus_per_node
        self.by_size = cluster.by_size
        self.free = cluster.gpus
        self._free = bytearray(self._sizes)
        self._uniform = cluster.node_sizes == 1
        self._closed = 0
        self.shared: SharedGpus | None = None
        self.host: HostUse | None = None
        self._with = [0] * (self.gpus_per_node + 1)
        first_of_group = 0
        for group in cluster.groups or (cluster,):
            self._with[group.gpus_per_node] |= node_range(first_of_group, group.nodes)
            first_of_group += group.nodes
        leaves = cluster.leaves
        self._leaf_of = cluster.leaf_of if len(leaves) > 1 else ()
        self._empty_by_leaf = list(map(attrgetter("nodes"), leaves))

    def copy(self) -> Capacity:
        twin = object.__new__(Capacity)
        twin._cluster, twin._sizes, twin._leaf_of = self._cluster, self._sizes, self._leaf_of
        twin.nodes, twin.gpus_per_node, twin.free = self.nodes, self.gpus_per_node, self.free
        twin.by_size, twin._uniform = self.by_size, self._uniform
        twin._free, twin._with, twin._closed = self._free[:], self._with[:], self._closed
        twin._empty_by_leaf = self._empty_by_leaf[:]
        twin.shared = self.shared and self.shared.copy()
        twin.host = self.host and self.host.copy()
        return twin

    def pool(self, gpu_type: str) -> Capacity | PoolCapacity:
        """The free GPUs of one type. UnknownName for a type that the cluster does not have."""
        pool = self._cluster.pool(gpu_type)
        return PoolCapacity(self, pool) if self._cluster.mixed else self

    @property
    def span(self) -> tuple[int, int]:
        """First node and number of nodes."""
        return 0, self.nodes

    @property
    def leaves(self) -> Sequence[Leaf]:
        return self._cluster.leaves

    def empty_by_leaf(self) -> list[int]:
        """How many nodes of each leaf run nothing and are in service."""
        return self._empty_by_leaf[:] if self._leaf_of else [self.empty_nodes()]

    def free_on(self, node: int) -> int:
        return 0 if self._closed and self._closed >> node & 1 else self._free[node]

    def nodes_with(self, free: int) -> NodeSet:
        """The nodes with exactly `free` free GPUs."""
        return self._with[free]

    def count_with(self, free: int) -> int:
        """How many nodes have exactly `free` free GPUs."""
        return self._with[free].bit_count()

    def empty_nodes(self) -> int:
        """How many nodes of the full size, `gpus_per_node`, run nothing."""
        return self._with[self.gpus_per_node].bit_count()

    @property
    def stranded(self) -> int:
        """Free GPUs on nodes that also run something."""
        if self._uniform:
            return self.free - self._with[-1].bit_count() * self.gpus_per_node
        by_size = (size for pool in self._cluster.pools for size in pool.by_size)
        return self.free - sum((self._with[size] & nodes).bit_count() * size for size, nodes in by_size)

    def host_use(self) -> HostUse:
        """The cores and the memory that no job holds."""
        if self.host is None:
            self.host = HostUse(self._cluster.groups or (self._cluster,))
        return self.host

    def take(self, placement: Placement, demand: HostDemand | None = None) -> None:
        """Occupy the GPUs of `placement`, and what the job needs beside them. ValueError, and no change, if
        something of that is not free.
        """
        if demand is not None:
            self.host_use().check(placement, demand)
            self.take(placement)
            self.host_use().take(placement, demand)
            return
        if placement.__class__ is SharedPlacement:
            self._take_share(placement)
            return
        if len(placement) > _FEW_NODES and self._move_whole(placement, -1):
            return
        free, nodes, closed = self._free, self.nodes, self._closed
        for node, count in placement:
            if not 0 <= node < nodes or not 0 < count <= free[node] or (closed and closed >> node & 1):
                raise ValueError(f"node {node}: {count} GPUs are not free there")
        if len(placement) > 1 and len(dict(placement)) != len(placement):
            raise ValueError(f"placement names a node twice: {placement}")
        self._move(placement, -1)

    def release(self, placement: Placement, demand: HostDemand | None = None) -> None:
        """Free the GPUs of `placement`, and what `take` occupied beside them. ValueError if more GPUs of a
        node would be free than it has.
        """
        if demand is not None:
            self.host_use().release(placement, demand)
        if placement.__class__ is SharedPlacement:
            if self.shared is None or self.shared.remove(placement):
                self._move(placement, 1)
            return
        self._move(placement, 1)

    def _take_share(self, placement: SharedPlacement) -> None:
        """Occupy a share of some GPUs, which are taken from the free ones if they were not shared yet."""
        shared = self.shared or SharedGpus()
        if placement.key not in shared:
            self.take(tuple(placement))
        shared.add(placement)
        self.shared = shared

    def has_room(self, placement: Placement, demand: HostDemand | None = None) -> bool:
        """Whether the GPUs of `placement`, or that share of them, and what is needed beside them are free."""
        if demand is not None and not self.host_use().room(placement, demand):
            return False
        shared = self.shared
        if isinstance(placement, SharedPlacement) and shared is not None and placement.key in shared:
            open_ = not any(self._closed >> node & 1 for node, _ in placement)
            return open_ and shared.room(placement) >= placement.millionths
        return all(self.free_on(node) >= count for node, count in placement)

    def unshared(self, placement: SharedPlacement) -> bool:
        """Whether no job holds a share of these GPUs."""
        return self.shared is None or placement.key not in self.shared

    def shared_with_room(
        self, millionths: int, span: tuple[int, int], closed: NodeSet = 0
    ) -> SharedPlacement | None:
        """Where a job of so many millionths of a GPU fits best beside others, on the nodes of `span` that are
        not `closed`; None if no shared GPU has room.
        """
        if self.shared is None:
            return None
        return self.shared.fullest(millionths, *span, self._closed | closed)

    def first_share(self, millionths: int, node_counts: Placement) -> SharedPlacement:
        """The placement of the first job to share the GPUs of `spots`, which are free."""
        number = 0 if self.shared is None else self.shared.unused_number(node_counts)
        return SharedPlacement(node_counts, number, millionths)

    @property
    def idle_millionths(self) -> int:
        """Millionths of shared GPUs that no job holds."""
        return 0 if self.shared is None else self.shared.idle

    def in_use(self, in_service: int) -> tuple[float, float]:
        """The GPUs that jobs hold of those `in_service`; the free ones on nodes that also run something."""
        if self.shared is None:
            return in_service - self.free, self.stranded
        return in_use(in_service, self.free, self.stranded, self.shared.idle)

    def close(self, node: int) -> None:
        """Take a node out of service: GPUs that are free there, or become free, count again after `open`.
        ValueError if the node is out of service already.
        """
        if self._closed >> node & 1:
            raise ValueError(f"node {node}: is out of service already")
        self._count(node, self._free[node], -1)
        self._closed |= 1 << node

    def open(self, node: int) -> None:
        """Put a closed node back into service. ValueError if it is in service."""
        if not self._closed >> node & 1:
            raise ValueError(f"node {node}: is in service")
        self._closed ^= 1 << node
        self._count(node, self._free[node], 1)

    @property
    def closed(self) -> NodeSet:
        """The nodes out of service."""
        return self._closed

    def _count(self, node: int, free: int, sign: int) -> None:
        """Add (`sign` 1) or remove (-1) a node with `free` free GPUs."""
        self._with[free] ^= 1 << node
        self.free += sign * free
        if self._leaf_of and free == self._sizes[node]:
            self._empty_by_leaf[self._leaf_of[node]] += sign

    def _move_whole(self, placement: Placement, sign: int) -> bool:
        """As `_move`, all nodes at once. False, and no change, unless the placement has whole nodes alone, in
        service, each once, whose GPUs are all taken or all free as `sign` needs.
        """
        size, nodes = self.gpus_per_node, 0
        if not self._uniform or not 0 <= placement[0][0] <= placement[-1][0] < self.nodes:
            return False
        for node, count in placement:
            if count != size:
                return False
            nodes |= 1 << node
        free_before = 0 if sign > 0 else size
        nodes_with, count = self._with, len(placement)
        if nodes & nodes_with[free_before] != nodes or nodes.bit_count() != count:
            return False
        nodes_with[0] ^= nodes
        nodes_with[size] ^= nodes
        free, free_after = self._free, size - free_before
        for node, _ in placement:
            free[node] = free_after
        if self._leaf_of:
            for node, _ in placement:
                self._empty_by_leaf[self._leaf_of[node]] += sign
        self.free += sign * size * count
        return True

    def _move(self, placement: Placement, sign: int) -> None:
        """`sign`: 1 if the GPUs become free, -1 if they are taken."""
        if sign > 0 and len(placement) > _FEW_NODES and self._move_whole(placement, sign):
            return
        free, nodes_with, sizes = self._free, self._with, self._sizes
        closed, leaf_of, moved = self._closed, self._leaf_of, 0
        for node, count in placement:
            free_before = free[node]
            free_after = free_before + sign * count
            if free_after > sizes[node]:
                raise ValueError(f"node {node}: {count} GPUs were not taken there")
            free[node] = free_after
            if closed and closed >> node & 1:
                continue
            bit = 1 << node
            nodes_with[free_before] ^= bit
            nodes_with[free_after] ^= bit
            moved += count
            if leaf_of:
                size = sizes[node]
                self._empty_by_leaf[leaf_of[node]] += (free_after == size) - (free_before == size)
        self.free += sign * moved


class CapacityIfStopped:
    """The GPUs that would be free if the jobs at some placements stopped. Nodes are counted on demand."""

    __slots__ = ("_free", "by_size", "free", "gpus_per_node", "span")

    def __init__(self, capacity: Capacity, placements: Iterable[Placement]):
        self.gpus_per_node, self.span = capacity.gpus_per_node, capacity.span
        self.by_size = capacity.by_size
        self._free = free = capacity._free[:]
        self.free = capacity.free
        for placement in placements if capacity.shared is None else _whole(capacity.shared, placements):
            for node, count in placement:
                free[node] += count
                self.free += count
        if capacity.closed:
            for node in nodes_of(capacity.closed):
                free[node] = 0
            self.free = sum(free)

    def nodes_with(self, free: int) -> NodeSet:
        """The nodes with exactly `free` free GPUs."""
        matches = np.frombuffer(self._free, np.uint8) == free
        return int.from_bytes(np.packbits(matches, bitorder="little").tobytes(), "little")

    def count_with(self, free: int) -> int:
        """How many nodes have exactly `free` free GPUs."""
        return self._free.count(free)

    def empty_nodes(self) -> int:
        """How many nodes of the full size, `gpus_per_node`, run nothing."""
        return self._free.count(self.gpus_per_node)


def _whole(shared: SharedGpus, placements: Iterable[Placement]) -> Iterator[Placement]:
    """The placements; of shared GPUs only those of which no share stays held."""
    held = shared.held()
    for placement in placements:
        if not isinstance(placement, SharedPlacement):
            yield placement
            continue
        held[placement.key] -= placement.millionths
        if not held[placement.key]:
            yield placement


class SomeNodes:
    """The free GPUs of the nodes `own`: a view of a cluster, or of another view. The members mean the same as
    there.
    """

    __slots__ = ("_all", "_own", "by_size", "gpus_per_node", "nodes", "span")

    def __init__(
        self,
        capacity: FreeNodes,
        own: NodeSet,
        by_size: Sequence[tuple[int, NodeSet]],
        nodes: int,
        span: tuple[int, int],
    ):
        self._all, self._own, self.nodes, self.span = capacity, own, nodes, span
        self.by_size, self.gpus_per_node = by_size, by_size[0][0]

    @property
    def leaves(self) -> Sequence[Leaf]:
        return cast("FreeNodesByLeaf", self._all).leaves

    @property
    def free(self) -> int:
        return sum(n * self.count_with(n) for n in range(1, self.gpus_per_node + 1))

    def empty_by_leaf(self) -> list[int]:
        empty = self.nodes_with(self.gpus_per_node)
        return [(empty & node_range(leaf.first, leaf.nodes)).bit_count() for leaf in self.leaves]

    def free_on(self, node: int) -> int:
        return cast("FreeNodesByLeaf", self._all).free_on(node) if self._own >> node & 1 else 0

    def nodes_with(self, free: int) -> NodeSet:
        return self._all.nodes_with(free) & self._own

    def count_with(self, free: int) -> int:
        return self.nodes_with(free).bit_count()

    def empty_nodes(self) -> int:
        return self.count_with(self.gpus_per_node)


class PoolCapacity(SomeNodes):
    """The free GPUs of one type."""

    __slots__ = ("_pool",)

    def __init__(self, capacity: Capacity, pool: Pool):
        own = node_range(pool.first, pool.nodes)
        super().__init__(capacity, own, pool.by_size, pool.nodes, (pool.first, pool.nodes))
        self._pool = pool

    @property
    def leaves(self) -> Sequence[Leaf]:
        first_leaf = self._pool.first_leaf
        return super().leaves[first_leaf : first_leaf + self._pool.leaves]
