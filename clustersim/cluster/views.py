"""What a placer may look at: the free GPUs of a cluster without those that a job cannot have."""

from __future__ import annotations

from .capacity import Capacity, FreeNodes, FreeNodesByLeaf, SomeNodes
from .host import HostDemand, HostUse
from .node_set import NodeSet, first_node, node_range

__all__ = ["NodesForDemand", "NodesOfSize", "OpenNodes", "open_nodes"]


def open_nodes(
    nodes: FreeNodesByLeaf, closed: NodeSet, capacity: Capacity, demand: HostDemand | None
) -> FreeNodesByLeaf:
    """The free GPUs of `nodes`, which are all or some of `capacity`, that a job can have: not on nodes that
    are `closed` to it, and only where it has the cores and the memory that it needs.
    """
    if closed:
        nodes = OpenNodes(nodes, closed)
    return nodes if demand is None else NodesForDemand(nodes, capacity.host_use(), demand)


class OpenNodes(SomeNodes):
    """The free GPUs without those of some nodes that are closed to a job: a view of a cluster or of its nodes
    of one type.
    """

    __slots__ = ()

    def __init__(self, capacity: FreeNodesByLeaf, closed: NodeSet):
        super().__init__(capacity, ~closed, capacity.by_size, capacity.nodes, capacity.span)


class NodesOfSize(SomeNodes):
    """The free GPUs of the nodes of one size: a view of nodes of several sizes."""

    __slots__ = ()

    def __init__(self, capacity: FreeNodes, size: int, nodes: NodeSet):
        first = first_node(nodes)
        span = first, nodes.bit_length() - first
        super().__init__(capacity, nodes, ((size, nodes),), nodes.bit_count(), span)


class NodesForDemand:
    """The free GPUs beside which a job has the cores and the memory that it needs: a view of a cluster or of
    its nodes of one type. The members mean the same as there, of nodes with as many GPUs as the job could
    have on an idle one. So a node of 8 GPUs with cores for 6 is as one of 6.
    """

    __slots__ = (
        "_all",
        "_demand",
        "_use",
        "_with",
        "by_size",
        "free",
        "gpus_per_node",
        "leaves",
        "nodes",
        "span",
    )

    def __init__(self, capacity: FreeNodesByLeaf, use: HostUse, demand: HostDemand):
        self._all, self._use, self._demand = capacity, use, demand
        self.nodes, self.span, self.leaves = capacity.nodes, capacity.span, capacity.leaves
        self.gpus_per_node = use.most_on_one(capacity.span, demand)
        self.by_size = capacity.by_size
        if len(self.by_size) > 1:
            self.by_size = use.by_size(capacity.span, demand)
        self._with = [0] * (self.gpus_per_node + 1)
        for free in range(1, capacity.gpus_per_node + 1):
            if nodes := capacity.nodes_with(free):
                use.add_by_count(nodes, min(free, self.gpus_per_node), demand, self._with)
        self.free = sum([count * nodes.bit_count() for count, nodes in enumerate(self._with)])

    def empty_by_leaf(self) -> list[int]:
        empty = self._with[self.gpus_per_node]
        return [(empty & node_range(leaf.first, leaf.nodes)).bit_count() for leaf in self.leaves]

    def free_on(self, node: int) -> int:
        return min(self._all.free_on(node), self._use.gpus_on(node, self._demand), self.gpus_per_node)

    def nodes_with(self, free: int) -> NodeSet:
        return self._with[free]

    def count_with(self, free: int) -> int:
        return self._with[free].bit_count()

    def empty_nodes(self) -> int:
        return self.count_with(self.gpus_per_node)
