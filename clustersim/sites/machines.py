"""The nodes of a site as a cluster: which node has which number, and which GPUs have a known system."""

from __future__ import annotations

import re
from itertools import groupby

from clustersim.cluster import Cluster
from clustersim.cluster.clusterfile import GPU_TYPES
from clustersim.cluster.topology import NodeGroup
from itertime.errors import UserError
from itertime.spec import load_system

from .slurm import SiteNode, SlurmSite

__all__ = ["UP", "closed_numbers", "cluster_of_site", "gpu_type_of", "node_numbers"]

UP = "up"
"""The state of a node that runs jobs. In any other it is out of service."""

PLAIN_GPU = "gpu"
"""The type of GPUs for which a site states none."""

_WORD = re.compile(r"[^a-z0-9]+")


def gpu_type_of(node: SiteNode) -> str:
    """The name of the node's GPUs in the cluster: that of the site, which its logs state as well."""
    return node.gpu_type or PLAIN_GPU


def system_of(node: SiteNode) -> str | None:
    """The `itertime` system whose GPUs the node has; None for an unknown type, and for nodes with more GPUs
    than the system has. The type is one of the words of the site's name for it: `nvidia_a100_80gb` is a100.
    """
    words = _WORD.split(node.gpu_type.lower())
    system = next((GPU_TYPES[word] for word in words if word in GPU_TYPES), None)
    return system if system is not None and node.gpus <= load_system(system).gpus_per_node else None


def _in_numbered_order(site: SlurmSite) -> list[SiteNode]:
    """The nodes with GPUs, so that those of one type follow one another."""
    nodes = [node for node in site.nodes if node.gpus]
    types = {gpu_type: place for place, gpu_type in enumerate(dict.fromkeys(map(gpu_type_of, nodes)))}
    return sorted(nodes, key=lambda node: types[gpu_type_of(node)])


def node_numbers(site: SlurmSite) -> dict[str, int]:
    """The number in the cluster of each node with GPUs, by its name.

    It is the node's place in `site.nodes` where all nodes have GPUs of one type. Otherwise the types are
    numbered one after the other, in the order in which they appear; within a type the order stays. Nodes
    without GPUs have no number, since no simulated job runs on them.
    """
    return {node.name: number for number, node in enumerate(_in_numbered_order(site))}


def closed_numbers(site: SlurmSite) -> list[int]:
    """The numbers of the nodes that are down."""
    numbers = node_numbers(site)
    return [numbers[node.name] for node in site.nodes if node.gpus and node.state != UP]


def cluster_of_site(site: SlurmSite) -> Cluster:
    """The nodes with GPUs as a cluster, numbered as `node_numbers` says. Nodes that are down are among them.

    Cores and host memory count where SelectTypeParameters lets Slurm allocate them. Nodes of one type and
    size must be equal in a cluster, so they get the least cores and memory among them. UserError for a site
    without GPUs.
    """
    nodes = _in_numbered_order(site)
    if not nodes:
        raise UserError(f"site {site.name}: no node has GPUs; check Gres= of the nodes")
    consumed = "_".join(site.settings.SelectTypeParameters).upper()
    cores = any(word in consumed for word in ("CR_CPU", "CR_CORE", "CR_SOCKET"))
    memory = "MEMORY" in consumed
    groups: list[NodeGroup] = []
    for (gpu_type, gpus), stretch in groupby(nodes, lambda node: (gpu_type_of(node), node.gpus)):
        count = len(list(stretch))
        equal_nodes = [node for node in nodes if (gpu_type_of(node), node.gpus) == (gpu_type, gpus)]
        memories_gb = [node.memory_gb for node in equal_nodes if node.memory_gb]
        group = NodeGroup(
            name=f"{gpu_type}-{len(groups)}",
            nodes=count,
            gpus_per_node=gpus,
            gpu_type=gpu_type,
            system=system_of(equal_nodes[0]),
            cpus_per_node=min(node.cpus for node in equal_nodes) or None if cores else None,
            host_memory_gb_per_node=min(memories_gb) if memory and memories_gb else None,
        )
        groups.append(group)
    return Cluster.of(groups)
