"""Reads cluster files: groups of nodes, their GPU types, and the switches above them (YAML or JSON).

    network: contention
    groups:
      - name: new
        gpu_type: h100
        nodes: 32
        nodes_per_leaf: 16
        leaf_oversubscription: 2
      - name: old
        gpu_type: a100
        nodes: 96

A fleet has `clusters` instead of `groups`, each with a name and groups of its own:

    clusters:
      - name: east
        groups: [{name: new, gpu_type: h100, nodes: 32}]
      - name: west
        groups: [{name: new, gpu_type: h100, nodes: 16}, {name: old, gpu_type: a100, nodes: 96}]

A file is untrusted input. Unknown keys, impossible numbers and unknown names are refused; the error names the
file, the key, its value and a remedy. Fields and units: `docs/clusters.md`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field
from pydantic.dataclasses import dataclass

from itertime.errors import UnknownName, UserError
from itertime.io import CONFIG, Name, Positive, Ratio, construct, names_file, quoted, read_mapping
from itertime.spec import SHIPPED_SYSTEMS, System, is_system_file, load_system

from .cluster import SHAPE, Cluster
from .networks import IDEAL, NETWORKS
from .topology import Cpus, Gpus, HostGb, NodeGroup, Nodes

__all__ = ["GPU_TYPES", "ClusterEntry", "ClusterFile", "GroupEntry", "cluster_of", "load_cluster"]

GPU_TYPES: Mapping[str, str | None] = {
    "a100": "dgx-a100-80gb",
    "h100": "dgx-h100",
    "h200": "dgx-h200",
    "b200": "dgx-b200",
    "b300": "dgx-b300",
    "gb200": "gb200-nvl72",
    "gb300": "gb300-nvl72",
    "v100": None,
}
"""GPU type -> its system, for the types that need no `system` in a cluster file. None: a known type
that has speeds only where the file names its system."""

DEFAULT_SYSTEM = "dgx-a100-80gb"
_V100_GPUS_PER_NODE = 8
Gbps = Annotated[Positive, Field(le=1e9)]
Groups = Annotated[list[Any], Field(max_length=1000)]


@dataclass(frozen=True, config=CONFIG)
class ClusterFile:
    """What a file states."""

    groups: Groups | None = None
    clusters: Annotated[list[Any], Field(max_length=100)] = Field(default_factory=list)
    network: Name = IDEAL.name
    name: Name = "cluster"


@dataclass(frozen=True, config=CONFIG)
class ClusterEntry:
    """A cluster of a fleet as a file states it."""

    name: Name
    groups: Groups


@dataclass(frozen=True, config=CONFIG)
class GroupEntry:
    """A group as a file states it. Bandwidths in Gb/s, one direction."""

    name: Name
    nodes: Nodes
    gpu_type: Name | None = None
    system: Name | None = None
    gpus_per_node: Gpus | None = None
    nic_gbps: Gbps | None = None
    nodes_per_leaf: Nodes | None = None
    leaf_oversubscription: Ratio | None = None
    leaf_uplink_gbps: Gbps | None = None
    nodes_per_spine: Nodes | None = None
    spine_oversubscription: Ratio | None = None
    spine_uplink_gbps: Gbps | None = None
    usd_per_gpu_hour: Positive | None = None
    spot: bool = False
    cpus_per_node: Cpus | None = None
    host_memory_gb_per_node: HostGb | None = None


def load_cluster(text: str, system: str | None = None, network: str | None = None) -> Cluster:
    """A cluster by its shape (`n128g8`, nodes of `system`) or from a file (a path, or a name that ends in
    .yaml, .yml or .json). `network` overrides that of the file.

    UserError for anything that cannot be used. A file states the systems of its groups itself, so `system`
    must then have its default.
    """
    if network is not None and network not in NETWORKS:
        raise UnknownName("network", network, NETWORKS)
    if not SHAPE.fullmatch(text) and ("/" in text or names_file(text)):
        if system not in (None, DEFAULT_SYSTEM):
            raise UserError(
                f"system={system}: the cluster file {text} states the systems of its groups; leave system out"
            )
        return _from_file(Path(text), network)
    system = system or DEFAULT_SYSTEM
    if system in SHIPPED_SYSTEMS:
        return _shipped_nodes(text, system, network)
    return _equal_nodes(text, system, network)


def _equal_nodes(shape: str, system: str, network: str | None) -> Cluster:
    """The cluster of a shape."""
    cluster = Cluster.parse(shape, system)
    if network is None or network == cluster.network:
        return cluster
    group = NodeGroup.of_system("nodes", cluster.nodes, cluster.gpus_per_node, cluster.system)
    return Cluster.of([group], network)


_shipped_nodes = lru_cache(maxsize=64)(_equal_nodes)
"""The same, kept for later runs: what ships with the program does not change, as the file of a user may."""


def cluster_of(document: Mapping[str, Any]) -> Cluster:
    """The cluster that `Cluster.document` describes, as it is stored in a manifest. UserError for anything
    else.
    """
    groups, network = document.get("groups", []), document.get("network", IDEAL.name)
    if not isinstance(groups, list) or len(groups) > 1000 or not isinstance(network, str):
        raise UserError("groups must be a list, and network a name")
    if not groups:
        nodes, gpus_per_node, system = (document.get(key) for key in ("nodes", "gpus_per_node", "system"))
        if type(nodes) is not int or type(gpus_per_node) is not int or not isinstance(system, str):
            raise UserError("must state nodes and gpus_per_node (whole numbers) and system (text)")
        return Cluster(nodes, gpus_per_node, system, network=network)
    if not all(isinstance(group, dict) for group in groups):
        raise UserError("groups must be a list of objects")
    node_groups = [construct(NodeGroup, group, f"groups[{i}]") for i, group in enumerate(groups)]
    return Cluster.of(node_groups, network)


def _from_file(path: Path, network: str | None) -> Cluster:
    content = construct(ClusterFile, read_mapping(path), path)
    if content.network not in NETWORKS:
        raise UserError(f"{path}: {UnknownName('network', content.network, NETWORKS)}")
    if content.groups is not None and content.clusters:
        raise UserError(f"{path}: states groups and clusters; keep one of the two")
    if content.groups is None and not content.clusters:
        raise UserError(f"{path}: key 'groups' is missing; list the groups of nodes, or clusters with groups")
    if content.groups == []:
        raise UserError(f"{path}: groups=[]: states no nodes; list the groups of nodes")
    groups = _groups(content.groups or [], str(path), path.parent)
    for part in _parts(content.clusters, path):
        for group in _groups(part.groups, f"{path}: cluster {part.name}", path.parent):
            if "/" in group.gpu_type:
                raise UserError(
                    f"{path}: cluster {part.name}: gpu_type={quoted(group.gpu_type)}: {_NO_SLASH}"
                )
            groups.append(replace(group, cluster=part.name))
    try:
        return Cluster.of(groups, network or content.network)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


_NO_SLASH = "must not contain /, which stands between a cluster and a GPU type; choose another name"


def _parts(stated: list[Any], path: Path) -> list[ClusterEntry]:
    """The clusters of a fleet, with names that differ."""
    parts: list[ClusterEntry] = []
    for i, entry in enumerate(stated):
        where = f"{path}: clusters[{i}]"
        if not isinstance(entry, dict):
            raise UserError(f"{where}: is {type(entry).__name__}; write a mapping with name and groups")
        part = construct(ClusterEntry, {str(key): value for key, value in entry.items()}, where)
        if not part.groups:
            raise UserError(f"{where}: groups is empty; list the groups of its nodes")
        if "/" in part.name:
            raise UserError(f"{where}: name={quoted(part.name)}: {_NO_SLASH}")
        if part.name in [other.name for other in parts]:
            raise UserError(
                f"{where}: name={quoted(part.name)}: another cluster has this name; choose a new one"
            )
        parts.append(part)
    return parts


def _groups(stated_groups: list[Any], at: str, folder: Path) -> list[NodeGroup]:
    """The groups of a cluster. `at`: where they stand, for messages."""
    names: list[str] = []
    groups = []
    for i, stated in enumerate(stated_groups):
        where = f"{at}: groups[{i}]"
        if not isinstance(stated, dict):
            raise UserError(
                f"{where}: is {type(stated).__name__}; write a mapping with name, gpu_type, nodes"
            )
        group = construct(GroupEntry, {str(key): value for key, value in stated.items()}, where)
        if group.name in names:
            raise UserError(
                f"{where}: name={quoted(group.name)}: another group has this name; choose a new one"
            )
        names.append(group.name)
        groups.append(_resolved(group, where, folder))
    return groups


def _resolved(group: GroupEntry, where: str, folder: Path) -> NodeGroup:
    """The group, with the figures of its system where it states none of its own."""
    _check_tiers(group, where)
    reference, system = _system(group, where, folder)
    gpus = group.gpus_per_node or (system.gpus_per_node if system else _V100_GPUS_PER_NODE)
    if system is not None and gpus > system.gpus_per_node:
        raise UserError(
            f"{where}: gpus_per_node={gpus}: nodes of system {system.name} have {system.gpus_per_node} GPUs"
        )
    nic = None if group.nic_gbps is None else group.nic_gbps * 1e9 / 8
    full = nic or (system.nic_bytes_per_s * gpus / system.gpus_per_node if system else None)
    leaf, leaf_up = group.nodes_per_leaf, group.leaf_oversubscription
    spine, spine_up = group.nodes_per_spine, group.spine_oversubscription
    if system is not None and leaf is None:
        leaf, leaf_up = system.nodes_per_leaf, leaf_up or system.leaf_oversubscription
        spine, spine_up = spine or system.nodes_per_spine, spine_up or system.spine_oversubscription
    leaf, spine = (None if n is None else min(n, group.nodes) for n in (leaf, spine))
    leaf_uplink = _uplink(where, "leaf", leaf or group.nodes, full, leaf_up, group.leaf_uplink_gbps)
    spine_uplink = _uplink(where, "spine", spine or group.nodes, full, spine_up, group.spine_uplink_gbps)
    return NodeGroup(
        name=group.name,
        nodes=group.nodes,
        gpus_per_node=gpus,
        gpu_type=group.gpu_type or (system.profile.partition("-")[0] if system else ""),
        system=reference,
        nic_bytes_per_s=nic,
        nodes_per_leaf=leaf,
        leaf_uplink_bytes_per_s=leaf_uplink,
        nodes_per_spine=spine,
        spine_uplink_bytes_per_s=spine_uplink,
        usd_per_gpu_hour=group.usd_per_gpu_hour or (system.usd_per_gpu_hour if system else None),
        spot=group.spot,
        cpus_per_node=group.cpus_per_node,
        host_memory_gb_per_node=group.host_memory_gb_per_node,
    )


def _system(group: GroupEntry, where: str, folder: Path) -> tuple[str | None, System | None]:
    """The system of the group's nodes: its name or path, and the system itself."""
    reference = group.system
    if reference is None:
        if group.gpu_type is None:
            raise UserError(
                f"{where}: key 'gpu_type' is missing; name one of {', '.join(GPU_TYPES)}, or a system"
            )
        if group.gpu_type not in GPU_TYPES:
            unknown = UnknownName("gpu_type", group.gpu_type, GPU_TYPES)
            raise UserError(f"{where}: {unknown}; a type of your own needs a system")
        reference = GPU_TYPES[group.gpu_type]
    elif is_system_file(reference) and not Path(reference).is_absolute():
        reference = str(folder / reference)
    if reference is None:
        return None, None
    try:
        return reference, load_system(reference)
    except UserError as error:
        raise UserError(f"{where}: system={group.system}: {error}") from None


def _check_tiers(group: GroupEntry, where: str) -> None:
    for tier in ("leaf", "spine"):
        ratio, gbps = (getattr(group, f"{tier}_{key}") for key in ("oversubscription", "uplink_gbps"))
        if ratio is not None and gbps is not None:
            keys = f"{tier}_oversubscription and {tier}_uplink_gbps"
            raise UserError(f"{where}: {keys} state the same quantity; keep one")
    per_leaf, per_spine = group.nodes_per_leaf, group.nodes_per_spine
    if per_spine is not None and per_spine % (per_leaf or per_spine):
        raise UserError(
            f"{where}: nodes_per_spine={per_spine}: must be a multiple of nodes_per_leaf={per_leaf}"
        )


def _uplink(
    where: str, tier: str, nodes: int, nic: float | None, oversubscription: float | None, gbps: float | None
) -> float | None:
    """Bytes/s up from `nodes` nodes with NICs of `nic` bytes/s; None if the uplinks carry all of that."""
    if gbps is not None:
        return gbps * 1e9 / 8
    if oversubscription is None or oversubscription == 1.0:
        return None
    if nic is None:
        key = f"{tier}_oversubscription={oversubscription:g}"
        what = "the NICs of this GPU type are unknown, because it has no system; state nic_gbps as well"
        raise UserError(f"{where}: {key}: {what}")
    return nodes * nic / oversubscription
