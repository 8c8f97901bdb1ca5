"""CPU cores and host memory: what a job needs beside each of its GPUs, and what the nodes have left.

Amounts are whole millionths of a core and of a gigabyte, as parts of GPUs are. So demands that add up to a
node do so exactly.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from .node_set import NodeSet, node_range
from .sharing import MILLION, NodeCounts

__all__ = ["HostDemand", "HostResources", "HostUse"]

_UNLIMITED = 1 << 62


class HostResources(NamedTuple):
    """What a node has, in millionths; None: as much as jobs ask for."""

    cpus: int | None
    memory: int | None

    @classmethod
    def of(cls, cpus: float | None, memory_gb: float | None) -> HostResources:
        """From cores and gigabytes (1e9 bytes)."""
        cores, memory = (None if x is None else round(x * MILLION) for x in (cpus, memory_gb))
        return cls(cores, memory)

    def shortage(self, cpus: float | None, memory_gb: float | None, gpus: int) -> str:
        """Why no node can hold a job that asks for so much, with a remedy."""
        wishes = [f"cpus={cpus:g}"] if cpus is not None else []
        wishes += [f"host_memory_gb={memory_gb:g}"] if memory_gb is not None else []
        has = [] if self.cpus is None else [f"{self.cpus / MILLION:g} cores"]
        has += [] if self.memory is None else [f"{self.memory / MILLION:g} GB of host memory"]
        demand = HostDemand.of(cpus, memory_gb, gpus)
        enough = gpus if demand is None else demand.gpus_on(*self)
        comparison = f"asks for {' and '.join(wishes)} on {gpus} GPUs, and a node has {' and '.join(has)}"
        return f"{comparison}, enough for {enough} of them; lower the demand, or state larger nodes"


class HostDemand(NamedTuple):
    """What a job needs on a node for each of its GPUs there, in millionths of a core and of a gigabyte. A job
    on part of a GPU counts as one of 1 GPU.
    """

    cpus: int
    memory: int

    @classmethod
    def of(cls, cpus: float | None, memory_gb: float | None, gpus: int | None) -> HostDemand | None:
        """The demand of a job that asks for so many cores and gigabytes on `gpus` GPUs in all; None if it
        asks for neither. A part of a millionth is left out, so that jobs which fill a node exactly fit.

        >>> HostDemand.of(16, None, 3)
        HostDemand(cpus=5333333, memory=0)
        """
        if cpus is None and memory_gb is None:
            return None
        amounts = [0 if x is None else round(x * MILLION) // (gpus or 1) for x in (cpus, memory_gb)]
        return cls(*amounts) if any(amounts) else None

    @property
    def cpus_per_gpu(self) -> float | None:
        """Cores for each GPU; None if the job states none."""
        return self.cpus / MILLION if self.cpus else None

    @property
    def gb_per_gpu(self) -> float | None:
        """Gigabytes of host memory for each GPU; None if the job states none."""
        return self.memory / MILLION if self.memory else None

    def gpus_on(self, cpus: int | None, memory: int | None) -> int:
        """For how many GPUs of the job these resources are enough."""
        limit = _UNLIMITED
        if self.cpus and cpus is not None:
            limit = cpus // self.cpus
        if self.memory and memory is not None:
            limit = min(limit, memory // self.memory)
        return limit


class _Nodes(Protocol):
    """Equal nodes."""

    @property
    def nodes(self) -> int: ...

    @property
    def gpus_per_node(self) -> int: ...

    @property
    def host(self) -> HostResources: ...


class HostUse:
    """The cores and the memory that no job holds, by node. `groups`: all nodes, in their order."""

    __slots__ = ("_cpus", "_memory", "_sizes")

    def __init__(self, groups: Iterable[_Nodes]):
        self._cpus: list[int] = []
        self._memory: list[int] = []
        self._sizes: list[tuple[NodeSet, int, HostResources]] = []  # nodes, their GPUs, what they have
        for group in groups:
            resources = group.host
            self._sizes.append((node_range(len(self._cpus), group.nodes), group.gpus_per_node, resources))
            self._cpus += [_UNLIMITED if resources.cpus is None else resources.cpus] * group.nodes
            self._memory += [_UNLIMITED if resources.memory is None else resources.memory] * group.nodes

    def copy(self) -> HostUse:
        twin = object.__new__(HostUse)
        twin._cpus, twin._memory, twin._sizes = self._cpus[:], self._memory[:], self._sizes
        return twin

    def gpus_on(self, node: int, demand: HostDemand) -> int:
        """For how many GPUs of a job a node has cores and memory left."""
        return demand.gpus_on(self._cpus[node], self._memory[node])

    def add_by_count(self, nodes: NodeSet, limit: int, demand: HostDemand, sets: list[NodeSet]) -> None:
        """Add each of `nodes` to the set in `sets` at the number of GPUs, at most `limit`, for which it has
        cores and memory left.
        """
        cpus, memory = demand
        while nodes:  # one loop without calls: a start in a full cluster asks for little else
            bit = nodes & -nodes
            nodes ^= bit
            node, count = bit.bit_length() - 1, limit
            if cpus and self._cpus[node] < count * cpus:
                count = self._cpus[node] // cpus
            if memory and self._memory[node] < count * memory:
                count = self._memory[node] // memory
            sets[count] |= bit

    def most_on_one(self, span: tuple[int, int], demand: HostDemand) -> int:
        """The most GPUs that a job could have on one idle node of these; at least 1."""
        nodes = node_range(*span)
        sizes = [
            min(gpus, demand.gpus_on(*host)) for group_nodes, gpus, host in self._sizes if group_nodes & nodes
        ]
        return max(1, *sizes)

    def by_size(self, span: tuple[int, int], demand: HostDemand) -> tuple[tuple[int, NodeSet], ...]:
        """The most GPUs that a job could have on an idle node of these, the largest number first, and the
        nodes of each.
        """
        nodes, nodes_by_size = node_range(*span), dict[int, NodeSet]()
        for group_nodes, gpus, host in self._sizes:
            size = min(gpus, demand.gpus_on(*host))
            if size and group_nodes & nodes:
                nodes_by_size[size] = nodes_by_size.get(size, 0) | group_nodes & nodes
        return tuple(sorted(nodes_by_size.items(), reverse=True)) or ((1, nodes),)

    def short(self, demand: HostDemand) -> NodeSet:
        """The nodes without cores or memory for one GPU of the job."""
        short = 0
        for node, (cpus, memory) in enumerate(zip(self._cpus, self._memory, strict=True)):
            if cpus < demand.cpus or memory < demand.memory:
                short |= 1 << node
        return short

    def room(self, placement: NodeCounts, demand: HostDemand) -> bool:
        """Whether the job fits there with its cores and its memory."""
        return all(self.gpus_on(node, demand) >= count for node, count in placement)

    def check(self, placement: NodeCounts, demand: HostDemand) -> None:
        """ValueError if a node has too little left for the job."""
        for node, count in placement:
            if not 0 <= node < len(self._cpus):
                raise ValueError(f"node {node}: the cluster has {len(self._cpus)} nodes")
            if self.gpus_on(node, demand) < count:
                raise ValueError(f"node {node}: {self._lacks(node, count, demand)}")

    def take(self, placement: NodeCounts, demand: HostDemand) -> None:
        """Occupy what a job needs there."""
        self._move(placement, demand, -1)

    def release(self, placement: NodeCounts, demand: HostDemand) -> None:
        """Free what a job held there."""
        self._move(placement, demand, 1)

    def _move(self, placement: NodeCounts, demand: HostDemand, sign: int) -> None:
        for node, count in placement:
            self._cpus[node] += sign * count * demand.cpus
            self._memory[node] += sign * count * demand.memory

    def _lacks(self, node: int, count: int, demand: HostDemand) -> str:
        cpus, memory = count * demand.cpus, count * demand.memory
        if cpus > self._cpus[node]:
            return f"{cpus / MILLION:g} cores are needed, {self._cpus[node] / MILLION:g} are free there"
        free = self._memory[node]
        return f"{memory / MILLION:g} GB of memory are needed, {free / MILLION:g} are free there"
