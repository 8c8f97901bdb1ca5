"""The machines of a cluster.

Nodes are numbered from 0 through all groups, in the order of the groups. GPUs are counted per node: no rule
depends on which GPU of a node a job holds. `clustersim.cluster.capacity` keeps track of the free GPUs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple

from itertime.errors import UnknownName, UserError, quoted

from .host import HostDemand, HostResources
from .networks import IDEAL, NETWORKS, NetworkModel
from .node_set import NodeSet, node_range
from .topology import Leaf, NodeGroup, Pool, leaves_of, pools_of

__all__ = ["SHAPE", "Cluster", "FleetMember", "Placement"]

Placement = tuple[tuple[int, int], ...]
"""Where a job runs: (node, GPUs there) pairs, by node."""


class FleetMember(NamedTuple):
    """A cluster of a fleet by itself: node 0 of `cluster` is node `first` of the fleet."""

    name: str
    first: int
    cluster: Cluster

    @property
    def nodes(self) -> range:
        """The nodes of the fleet that belong to it."""
        return range(self.first, self.first + self.cluster.nodes)


SHAPE = re.compile(r"n(-?[0-9]{1,30})g(-?[0-9]{1,30})|(-?[0-9]{1,30})x(-?[0-9]{1,30})")
_MAX_NODES, _MAX_GPUS_PER_NODE = 1_000_000, 64
NO_SYSTEM = "none"
"""The system of nodes whose GPUs are of no known type."""


@dataclass(frozen=True)
class Cluster:
    """`nodes` equal nodes of `gpus_per_node` GPUs, built from the `itertime` system that `system` names. Or
    `groups` of nodes (`Cluster.of`): then `nodes` counts all of them, `gpus_per_node` is that of the largest
    node, and `system` that of the first group.

    `network`: the name of a network model (`NETWORKS`): how the speed of a job depends on its placement.
    """

    nodes: int = 128
    gpus_per_node: int = 8
    system: str = "dgx-a100-80gb"
    groups: tuple[NodeGroup, ...] = ()
    network: str = IDEAL.name

    def __post_init__(self) -> None:
        if not 1 <= self.nodes <= _MAX_NODES:
            raise UserError(f"cluster: nodes={self.nodes}: must be between 1 and {_MAX_NODES}")
        if not 1 <= self.gpus_per_node <= _MAX_GPUS_PER_NODE:
            raise UserError(
                f"cluster: gpus_per_node={self.gpus_per_node}: must be between 1 and {_MAX_GPUS_PER_NODE}"
            )
        if self.network not in NETWORKS:
            raise UnknownName("network", self.network, NETWORKS)

    @classmethod
    def of(cls, groups: Iterable[NodeGroup], network: str = IDEAL.name) -> Cluster:
        """The cluster of these groups, with nodes numbered in this order."""
        groups = tuple(groups)
        pools_of(groups)  # raises if groups of one GPU type differ
        return cls(
            nodes=sum(group.nodes for group in groups),
            gpus_per_node=max((group.gpus_per_node for group in groups), default=0),
            system=(groups[0].system or NO_SYSTEM) if groups else NO_SYSTEM,
            groups=groups,
            network=network,
        )

    @cached_property
    def network_model(self) -> NetworkModel:
        """What the network says of the speeds of jobs."""
        return NETWORKS[self.network]

    @cached_property
    def gpus(self) -> int:
        if self.groups:
            return sum(group.nodes * group.gpus_per_node for group in self.groups)
        return self.nodes * self.gpus_per_node

    @cached_property
    def host(self) -> HostResources:
        """The cores and the memory of each node, where all nodes are equal."""
        return self.pools[0].host if self.groups else HostResources(None, None)

    @cached_property
    def states_host(self) -> bool:
        """Whether any nodes state their cores or their memory."""
        return any(group.host != (None, None) for group in self.groups)

    @cached_property
    def states_prices(self) -> bool:
        """Whether any GPU type has a price of its own."""
        return any(group.usd_per_gpu_hour is not None for group in self.groups)

    def demand_of(self, cpus: float | None, memory_gb: float | None, gpus: int | None) -> HostDemand | None:
        """What a job needs for each of its GPUs; None where that sets no limit here. See `HostDemand.of`."""
        return HostDemand.of(cpus, memory_gb, gpus) if self.states_host else None

    @cached_property
    def shape(self) -> str:
        """`n128g8`; the shapes of several groups are joined by `+`."""
        return "+".join(f"n{g.nodes}g{g.gpus_per_node}" for g in self.groups or (self,))

    def document(self) -> dict[str, Any]:
        """The cluster as JSON; `clustersim.cluster.clusterfile.cluster_of` reads it."""
        document: dict[str, Any] = {"shape": self.shape, "nodes": self.nodes}
        document |= {"gpus_per_node": self.gpus_per_node, "system": self.system}
        if not self.groups:
            return document
        return {**document, "network": self.network, "groups": [group.document() for group in self.groups]}

    @cached_property
    def pools(self) -> tuple[Pool, ...]:
        """The nodes by GPU type (and cluster), in the order of the groups. A job runs within one pool."""
        if not self.groups and self.system == NO_SYSTEM:
            return pools_of([NodeGroup("nodes", self.nodes, self.gpus_per_node, NO_SYSTEM)])
        groups = self.groups or (NodeGroup.of_system("nodes", self.nodes, self.gpus_per_node, self.system),)
        return pools_of(groups)

    @cached_property
    def unequal(self) -> bool:
        """Whether nodes of one pool differ in the number of their GPUs."""
        return self.node_sizes > 1 and any(len(pool.by_size) > 1 for pool in self.pools)

    def of_pool(self, pool: Pool) -> Cluster:
        """The nodes of a pool as a cluster of their own."""
        if len(pool.by_size) == 1:
            return Cluster(pool.nodes, pool.gpus_per_node, pool.system or NO_SYSTEM)
        return Cluster.of(
            replace(group, cluster=None) for group in self.groups if group.pool == pool.gpu_type
        )

    @cached_property
    def mixed(self) -> bool:
        """Whether the GPUs form several pools: they are of several types, or in several clusters of a
        fleet.
        """
        return len({group.pool for group in self.groups}) > 1

    @cached_property
    def members(self) -> tuple[FleetMember, ...]:
        """The clusters of a fleet, in the order of their nodes; empty outside a fleet."""
        names = dict.fromkeys(group.cluster for group in self.groups if group.cluster is not None)
        members: list[FleetMember] = []
        first_of_member = 0
        for name in names:
            member_groups = [replace(group, cluster=None) for group in self.groups if group.cluster == name]
            member = FleetMember(name, first_of_member, Cluster.of(member_groups, self.network))
            members.append(member)
            first_of_member += member.cluster.nodes
        return tuple(members)

    def prices(self, default: float) -> dict[str, float] | None:
        """US dollars per GPU-hour by GPU type, `default` for types without a price; None if none has one."""
        if not self.states_prices:
            return None
        price_of = {pool.gpu_type: pool.usd_per_gpu_hour for pool in self.pools}
        return {name: default if price is None else price for name, price in price_of.items()}

    @cached_property
    def gpu_types(self) -> tuple[str, ...]:
        return tuple(pool.gpu_type for pool in self.pools)

    @cached_property
    def spot_nodes(self) -> tuple[int, ...]:
        """The nodes of spot groups."""
        ends = list(accumulate(group.nodes for group in self.groups))
        spots = [(end - group.nodes, end) for group, end in zip(self.groups, ends, strict=True) if group.spot]
        return tuple(node for first_of_group, end in spots for node in range(first_of_group, end))

    def pool(self, gpu_type: str) -> Pool:
        """The nodes of a GPU type. UnknownName for a type that the cluster does not have."""
        for pool in self.pools:
            if pool.gpu_type == gpu_type:
                return pool
        raise UnknownName("GPU type", gpu_type, self.gpu_types)

    def type_of(self, node: int) -> str:
        """GPU type of a node."""
        for pool in self.pools:
            if node < pool.first + pool.nodes:
                return pool.gpu_type
        raise ValueError(f"node {node}: the cluster has {self.nodes} nodes")

    def size_of(self, node: int) -> int:
        """GPUs of a node."""
        return self.sizes[node] if self.groups else self.gpus_per_node

    @cached_property
    def sizes(self) -> bytes:
        """GPUs of each node."""
        groups = self.groups or (self,)
        return b"".join(bytes([group.gpus_per_node]) * group.nodes for group in groups)

    @cached_property
    def node_sizes(self) -> int:
        """How many different sizes the nodes have."""
        return len({group.gpus_per_node for group in self.groups}) if self.groups else 1

    @cached_property
    def by_size(self) -> tuple[tuple[int, NodeSet], ...]:
        """The sizes of the nodes of the only pool, the largest first, and the nodes of each; of several pools
        the largest size alone.
        """
        if self.mixed or self.node_sizes == 1:
            return ((self.gpus_per_node, node_range(0, self.nodes)),)
        return self.pools[0].by_size

    @cached_property
    def leaves(self) -> tuple[Leaf, ...]:
        """The leaf switches, in the order of their nodes; a single one unless the groups state more."""
        return leaves_of(self.groups) if self.groups else (Leaf(0, self.nodes),)

    @cached_property
    def leaf_of(self) -> tuple[int, ...]:
        """The leaf of each node, as its position in `leaves`."""
        return tuple(i for i, leaf in enumerate(self.leaves) for _ in range(leaf.nodes))

    @classmethod
    def parse(cls, shape: str, system: str = "dgx-a100-80gb") -> Cluster:
        """Read a shape: `n128g8` or `128x8`, 128 nodes of 8 GPUs.

        >>> Cluster.parse("n128g8").gpus
        1024
        """
        match = SHAPE.fullmatch(shape.strip().lower())
        if not match:
            fault = "not a shape; write n128g8 for 128 nodes of 8 GPUs, or name a .yaml file"
            raise UserError(f"cluster {quoted(shape)}: {fault}")
        nodes, gpus = (int(x) for x in match.groups() if x is not None)
        return cls(nodes, gpus, system)
