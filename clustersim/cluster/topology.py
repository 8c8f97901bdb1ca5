"""Groups of equal nodes, and the leaf and spine switches that connect them.

A group is a stretch of equal nodes. Its nodes are numbered through its leaf switches, and its leaves through
its spine blocks (a folded Clos network or fat tree, Al-Fares et al., SIGCOMM 2008). The uplinks of a leaf,
and those of a spine block towards the core, have a bandwidth in bytes/s each way. None means that they carry
all that the nodes below can send. Groups share no leaf. Groups of the same GPU type form a pool; a job runs
within one pool. The groups of a pool may differ in the size of their nodes. In a fleet, groups of different
clusters are in different pools.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Annotated, Any, NamedTuple

from pydantic import Field
from pydantic.dataclasses import dataclass as checked_dataclass

from itertime.errors import UserError
from itertime.io import CONFIG, Count, Name, Positive
from itertime.spec import load_system

from .host import HostResources
from .node_set import NodeSet, node_range

__all__ = [
    "Cpus",
    "Gpus",
    "HostGb",
    "Leaf",
    "NodeGroup",
    "Nodes",
    "Pool",
    "Stretch",
    "leaves_of",
    "pools_of",
]

Nodes = Annotated[Count, Field(le=1_000_000)]
Gpus = Annotated[Count, Field(le=64)]
Cpus = Annotated[Count, Field(le=10_000)]
HostGb = Annotated[Positive, Field(ge=1e-3, le=1e6)]


@checked_dataclass(frozen=True, config=CONFIG)
class NodeGroup:
    """`nodes` equal nodes of `gpus_per_node` GPUs of one type.

    `system`: the `itertime` system of the nodes, by name or path; None for a type without a profile.
    `nic_bytes_per_s`: of a node, one direction; None: that of the system. `nodes_per_leaf`,
    `nodes_per_spine`: nodes of a leaf, and of a spine block; None: one for the whole group. The last leaf and
    the last block may have fewer nodes. `usd_per_gpu_hour`: None: the price that the run states. `cluster`:
    the cluster of a fleet that the nodes belong to; None outside a fleet. `spot`: whether the nodes may be
    reclaimed (`clustersim.failures.Spot`); spot nodes are a pool of their own. `cpus_per_node`: cores;
    `host_memory_gb_per_node`: 1e9 bytes; None: as much as jobs ask for.
    """

    name: Name
    nodes: Nodes
    gpus_per_node: Gpus
    gpu_type: Name
    system: Name | None = None
    nic_bytes_per_s: Positive | None = None
    nodes_per_leaf: Nodes | None = None
    leaf_uplink_bytes_per_s: Positive | None = None
    nodes_per_spine: Nodes | None = None
    spine_uplink_bytes_per_s: Positive | None = None
    usd_per_gpu_hour: Positive | None = None
    cluster: Name | None = None
    spot: bool = False
    cpus_per_node: Cpus | None = None
    host_memory_gb_per_node: HostGb | None = None

    @property
    def host(self) -> HostResources:
        """What each node has beside its GPUs."""
        return HostResources.of(self.cpus_per_node, self.host_memory_gb_per_node)

    @property
    def pool(self) -> str:
        """The name of the group's pool: its GPU type; in a fleet behind the name of its cluster. `-spot`
        follows for spot nodes.
        """
        name = self.gpu_type if self.cluster is None else f"{self.cluster}/{self.gpu_type}"
        return f"{name}-spot" if self.spot else name

    def document(self) -> dict[str, Any]:
        """The group as JSON; `NodeGroup(**document)` reads it. `cluster`, `spot`, cores and host memory only
        where they say something.
        """
        document, optional = asdict(self), ("cluster", "spot", "cpus_per_node", "host_memory_gb_per_node")
        return {name: value for name, value in document.items() if name not in optional or value}

    @classmethod
    def of_system(cls, name: str, nodes: int, gpus_per_node: int, system: str) -> NodeGroup:
        """Nodes of an `itertime` system with its switches. The GPU type is the first word of the name of the
        system's profile. UserError for a system that cannot be loaded.
        """
        machine = load_system(system)
        nic = machine.nic_bytes_per_s * gpus_per_node / machine.gpus_per_node
        leaf, spine = machine.nodes_per_leaf, machine.nodes_per_spine
        return cls(
            name=name,
            nodes=nodes,
            gpus_per_node=gpus_per_node,
            gpu_type=machine.profile.partition("-")[0],
            system=system,
            nodes_per_leaf=leaf,
            leaf_uplink_bytes_per_s=leaf * nic / machine.leaf_oversubscription if leaf else None,
            nodes_per_spine=spine,
            spine_uplink_bytes_per_s=spine * nic / machine.spine_oversubscription if spine else None,
        )


@dataclass(frozen=True)
class Leaf:
    """A leaf switch with the nodes `first` to `first + nodes - 1`, and its spine block (a number that is
    unique in the cluster). The uplinks of both are in bytes/s.
    """

    first: int
    nodes: int
    uplink_bytes_per_s: float | None = None
    spine: int = 0
    spine_uplink_bytes_per_s: float | None = None


class Stretch(NamedTuple):
    """The equal nodes `first` to `first + nodes - 1` of a pool. `host`: what each has beside its GPUs."""

    first: int
    nodes: int
    gpus_per_node: int
    host: HostResources


@dataclass(frozen=True)
class Pool:
    """All nodes of one GPU type, in a fleet those of one cluster: `first` to `first + nodes - 1`, on the
    leaves from `first_leaf` on. `gpu_type`: the name of the pool, as in `NodeGroup.pool`. `chip`: the GPU
    type that the groups state. `gpus_per_node`: of the largest nodes, whose NICs, cores and memory the other
    fields state; `stretches` has all nodes.
    """

    gpu_type: str
    first: int
    nodes: int
    gpus_per_node: int
    system: str | None
    nic_bytes_per_s: float | None
    first_leaf: int
    leaves: int
    usd_per_gpu_hour: float | None = None
    chip: str = ""
    cluster: str | None = None
    cpus_per_node: int | None = None
    host_memory_gb_per_node: float | None = None
    stretches: tuple[Stretch, ...] = ()

    @cached_property
    def host(self) -> HostResources:
        """What each of the largest nodes has beside its GPUs."""
        return HostResources.of(self.cpus_per_node, self.host_memory_gb_per_node)

    @cached_property
    def gpus(self) -> int:
        return sum(stretch.nodes * stretch.gpus_per_node for stretch in self.stretches)

    @cached_property
    def by_size(self) -> tuple[tuple[int, NodeSet], ...]:
        """The sizes of the nodes, the largest first, and the nodes of each."""
        nodes_by_size: dict[int, NodeSet] = {}
        for stretch in self.stretches:
            nodes = node_range(stretch.first, stretch.nodes)
            nodes_by_size[stretch.gpus_per_node] = nodes_by_size.get(stretch.gpus_per_node, 0) | nodes
        return tuple(sorted(nodes_by_size.items(), reverse=True))

    @property
    def names(self) -> tuple[str, ...]:
        """The names by which a job may ask for these GPUs: pool, GPU type, cluster."""
        if self.cluster is None:
            return (self.gpu_type, self.chip)
        return (self.gpu_type, self.chip, self.cluster, f"{self.cluster}/{self.chip}")


def leaves_of(groups: Sequence[NodeGroup]) -> tuple[Leaf, ...]:
    """The leaf switches of all groups, in the order of their nodes."""
    leaves: list[Leaf] = []
    node = spine = 0
    for group in groups:
        last = node + group.nodes
        per_leaf, per_spine = group.nodes_per_leaf or group.nodes, group.nodes_per_spine or group.nodes
        for first in range(node, last, per_leaf):
            block = spine + (first - node) // per_spine
            size = min(per_leaf, last - first)
            leaves.append(
                Leaf(first, size, group.leaf_uplink_bytes_per_s, block, group.spine_uplink_bytes_per_s)
            )
        spine = leaves[-1].spine + 1
        node = last
    return tuple(leaves)


def pools_of(groups: Sequence[NodeGroup]) -> tuple[Pool, ...]:
    """The groups of each GPU type as one pool.

    UserError if groups of one type do not follow one another, or if they differ in the system or the price.
    Those with as many GPUs per node must also be alike in NICs, cores and host memory.
    """
    pools: list[Pool] = []
    node = leaf = 0
    for group in groups:
        leaves = -(-group.nodes // (group.nodes_per_leaf or group.nodes))
        stretch = Stretch(node, group.nodes, group.gpus_per_node, group.host)
        same = next((pool for pool in pools if pool.gpu_type == group.pool), None)
        if same is None:
            pool = Pool(
                gpu_type=group.pool,
                first=node,
                nodes=group.nodes,
                gpus_per_node=group.gpus_per_node,
                system=group.system,
                nic_bytes_per_s=group.nic_bytes_per_s,
                first_leaf=leaf,
                leaves=leaves,
                usd_per_gpu_hour=group.usd_per_gpu_hour,
                chip=group.gpu_type,
                cluster=group.cluster,
                cpus_per_node=group.cpus_per_node,
                host_memory_gb_per_node=group.host_memory_gb_per_node,
                stretches=(stretch,),
            )
            pools.append(pool)
        else:
            _check_alike(group, same, pools[-1], groups)
            pools[-1] = _larger(same, group, stretch, leaves)
        node += group.nodes
        leaf += leaves
    return tuple(pools)


def _larger(pool: Pool, group: NodeGroup, stretch: Stretch, leaves: int) -> Pool:
    """The pool with the nodes of one more group."""
    pool = replace(
        pool,
        nodes=pool.nodes + group.nodes,
        leaves=pool.leaves + leaves,
        stretches=(*pool.stretches, stretch),
    )
    if group.gpus_per_node <= pool.gpus_per_node:
        return pool
    return replace(pool, **{field: getattr(group, field) for field in _OF_LARGEST})


_ALIKE = ("system", "usd_per_gpu_hour")
_OF_LARGEST = ("gpus_per_node", "nic_bytes_per_s", "cpus_per_node", "host_memory_gb_per_node")


def _check_alike(group: NodeGroup, pool: Pool, last: Pool, groups: Sequence[NodeGroup]) -> None:
    if pool is not last:
        raise UserError(
            f"group {group.name}: gpu_type={group.gpu_type}: groups of one GPU type must follow one another; "
            "reorder the groups"
        )
    same_size = (
        other for other in groups if (other.pool, other.gpus_per_node) == (group.pool, group.gpus_per_node)
    )
    first_of_size = next(same_size)
    for field in (*_ALIKE, *_OF_LARGEST):
        ours, theirs = getattr(group, field), getattr(pool if field in _ALIKE else first_of_size, field)
        if ours != theirs:
            raise UserError(
                f"group {group.name}: {field}={ours}: another group of gpu_type {group.gpu_type} has "
                f"{theirs}; make them alike, or give this one a gpu_type of its own"
            )
