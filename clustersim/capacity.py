"""Which GPUs are free: the one mutable model of a cluster.

The engine owns the real one, a `Proposal` works on a copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from .cluster import Cluster, Placement
from .topology import Leaf, Pool

__all__ = ["AnyRoom", "Capacity", "PoolCapacity", "Room", "Vacated", "bits", "lowest", "mask_of"]


class Capacity:
    """Free GPUs by node.

    For each count f the nodes with exactly f free GPUs are the bits of one integer, so that "the fullest
    node with room for 3" and "how many nodes are empty" cost a few machine operations, and a copy costs
    some ten references. A node out of service (`close`) is in none of these sets.
    """

    __slots__ = (
        "_closed",
        "_cluster",
        "_empty_by_leaf",
        "_free",
        "_leaf_of",
        "_sizes",
        "_with",
        "free",
        "gpus_per_node",
        "nodes",
    )  # fmt: skip

    def __init__(self, cluster: Cluster):
        self._cluster, self._sizes = cluster, cluster.sizes
        self.nodes, self.gpus_per_node = cluster.nodes, cluster.gpus_per_node
        self.free = cluster.gpus
        self._free = bytearray(self._sizes)
        self._closed = 0
        self._with = [0] * (self.gpus_per_node + 1)
        first = 0
        for group in cluster.groups or (cluster,):
            self._with[group.gpus_per_node] |= ((1 << group.nodes) - 1) << first
            first += group.nodes
        leaves = cluster.leaves
        self._leaf_of = cluster.leaf_of if len(leaves) > 1 else ()
        self._empty_by_leaf = [leaf.nodes for leaf in leaves]

    def copy(self) -> Capacity:
        twin = object.__new__(Capacity)
        twin._cluster, twin._sizes, twin._leaf_of = self._cluster, self._sizes, self._leaf_of
        twin.nodes, twin.gpus_per_node, twin.free = self.nodes, self.gpus_per_node, self.free
        twin._free, twin._with, twin._closed = self._free[:], self._with[:], self._closed
        twin._empty_by_leaf = self._empty_by_leaf[:]
        return twin

    def pool(self, gpu_type: str) -> Capacity | PoolCapacity:
        """The free GPUs of one type. UnknownName for one that the cluster does not have."""
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

    def nodes_with(self, free: int) -> int:
        """The nodes with exactly `free` free GPUs, as a set of bits."""
        return self._with[free]

    def empty_nodes(self) -> int:
        """How many nodes of the full size, `gpus_per_node`, run nothing."""
        return self._with[self.gpus_per_node].bit_count()

    @property
    def stranded(self) -> int:
        """Free GPUs on nodes that also run something."""
        if self._cluster.node_sizes == 1:
            return self.free - self._with[-1].bit_count() * self.gpus_per_node
        pools = (PoolCapacity(self, pool) for pool in self._cluster.pools)
        return sum(pool.free - pool.empty_nodes() * pool.gpus_per_node for pool in pools)

    def most_free_on_one(self) -> int:
        """The largest number of free GPUs on a single node."""
        for free in range(self.gpus_per_node, 0, -1):
            if self._with[free]:
                return free
        return 0

    def take(self, placement: Placement) -> None:
        """Occupy the GPUs of `placement`; ValueError (and no change) if one of them is not free."""
        free, nodes, closed = self._free, self.nodes, self._closed
        for node, count in placement:
            if not 0 <= node < nodes or not 0 < count <= free[node] or (closed and closed >> node & 1):
                raise ValueError(f"node {node}: {count} GPUs are not free there")
        if len(placement) > 1 and len(dict(placement)) != len(placement):
            raise ValueError(f"placement names a node twice: {placement}")
        self._move(placement, -1)

    def release(self, placement: Placement) -> None:
        """Give the GPUs of `placement` back; ValueError if a node would have more free than it has."""
        self._move(placement, 1)

    def close(self, node: int) -> None:
        """Take a node out of service: what is free there, and what jobs on it give back from now on, is
        nobody's until `open`. ValueError if it is out of service already.
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
    def closed(self) -> int:
        """The nodes out of service, as a set of bits."""
        return self._closed

    def _count(self, node: int, free: int, sign: int) -> None:
        self._with[free] ^= 1 << node
        self.free += sign * free
        if self._leaf_of and free == self._sizes[node]:
            self._empty_by_leaf[self._leaf_of[node]] += sign

    def _move(self, placement: Placement, sign: int) -> None:
        """`sign`: 1 for GPUs that become free, -1 for those that are taken."""
        free, nodes_with, sizes = self._free, self._with, self._sizes
        closed, leaf_of, moved = self._closed, self._leaf_of, 0
        for node, count in placement:
            before = free[node]
            after = before + sign * count
            if after > sizes[node]:
                raise ValueError(f"node {node}: {count} GPUs were not taken there")
            free[node] = after
            if closed and closed >> node & 1:
                continue
            bit = 1 << node
            nodes_with[before] ^= bit
            nodes_with[after] ^= bit
            moved += count
            if leaf_of:
                size = sizes[node]
                self._empty_by_leaf[leaf_of[node]] += (after == size) - (before == size)
        self.free += sign * moved


class Vacated:
    """What is free, and what would be if the jobs in some places gave it back: as much of it as tells whether
    there is room. Nodes are counted when they are asked for.
    """

    __slots__ = ("_free", "free", "gpus_per_node", "span")

    def __init__(self, capacity: Capacity, placements: Iterable[Placement]):
        self.gpus_per_node, self.span = capacity.gpus_per_node, capacity.span
        self._free = free = capacity._free[:]
        self.free = capacity.free
        for placement in placements:
            for node, count in placement:
                free[node] += count
                self.free += count
        if capacity.closed:
            for node in bits(capacity.closed):
                free[node] = 0
            self.free = sum(free)

    def nodes_with(self, free: int) -> int:
        table = bytearray(b"0") * 256
        table[free] = ord("1")
        return int(self._free.translate(table)[::-1], 2)

    def empty_nodes(self) -> int:
        return self._free.count(self.gpus_per_node)


class PoolCapacity:
    """The free GPUs of one type: what a placer may look at, with the same names as in `Capacity`."""

    __slots__ = ("_all", "_mask", "_pool", "gpus_per_node", "leaves", "nodes")

    def __init__(self, capacity: Capacity, pool: Pool):
        self._all, self._pool = capacity, pool
        self._mask = ((1 << pool.nodes) - 1) << pool.first
        self.nodes, self.gpus_per_node = pool.nodes, pool.gpus_per_node
        self.leaves: Sequence[Leaf] = capacity.leaves[pool.first_leaf : pool.first_leaf + pool.leaves]

    @property
    def free(self) -> int:
        return sum(n * self.nodes_with(n).bit_count() for n in range(1, self.gpus_per_node + 1))

    @property
    def span(self) -> tuple[int, int]:
        return self._pool.first, self._pool.nodes

    def empty_by_leaf(self) -> list[int]:
        first = self._pool.first_leaf
        return self._all.empty_by_leaf()[first : first + self._pool.leaves]

    def free_on(self, node: int) -> int:
        first = self._pool.first
        return self._all.free_on(node) if first <= node < first + self.nodes else 0

    def nodes_with(self, free: int) -> int:
        return self._all.nodes_with(free) & self._mask

    def empty_nodes(self) -> int:
        return self.nodes_with(self.gpus_per_node).bit_count()


Room = Capacity | PoolCapacity
"""What a placer looks at: the free GPUs of a cluster, or of its nodes of one GPU type."""
AnyRoom = Room | Vacated
"""What it looks at to say whether there is room."""


def lowest(mask: int) -> int:
    """The position of the lowest set bit."""
    return (mask & -mask).bit_length() - 1


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
