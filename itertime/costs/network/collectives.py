"""Seconds of the collectives of one process group, within a node and across nodes.

Arguments. A group of P ranks sits in N nodes (`Group`). `nbytes` (S below) is nccl-tests' size: the buffer of
one rank, and for all-gather and reduce-scatter the gathered whole. A single rank, or no bytes, takes no time.
All arguments broadcast.

Algorithms. Within a node the times are the profile's NCCL tables. Across nodes NCCL runs one ring through all
P ranks, so that a node's NICs carry (P-1)/P S bytes of an all-gather or a reduce-scatter and twice that of an
all-reduce (Patarasuk and Yuan 2009). For an all-reduce NCCL may instead use a double binary tree of 2 S bytes
and logarithmic depth, where that is faster (Sanders, Speck, Traeff 2009). Where a system's
`collective_algorithms` say so, an all-reduce may be hierarchical: it reduces in the node first, and
2 (N-1)/N S bytes cross (Cho et al., BlueConnect, MLSys 2019; NCCL's trees between two nodes amount to the
same). The part in the nodes runs at the same time, so the slower of the two counts; the latency of the hops
between nodes is added.

In-network reduction. With `sharp` the switches of an InfiniBand fabric sum (Graham et al., SHArP, COMHPC
2016; its streaming aggregation for large messages: Graham et al., ISC 2020). A node sends each byte once, up
the tree of switches, and receives each sum once. So its NICs carry S bytes in each direction, where a ring
has 2 (P-1)/P S. The depth L is that of the tree: the leaves, and the tiers above that the group spans. Where
the system does not state how many nodes a switch joins, it has 40 ports, half of them down (NVIDIA QM8700).
Only all-reduces use it: NCCL's CollNet algorithms are all-reduces (NCCL User Guide, `NCCL_ALGO`).

NICs. A ring enters and leaves a node through one NIC, so two of its GPUs should be beside that NIC, or one
GPU that does both. Where GPUs share NICs, a group may have several GPUs in the node that are not neighbours,
because others of a tensor-parallel group lie between them. The ring of such a group leaves across the CPUs:
all such groups together get both directions of `cpu_link_bytes_per_s`. NVIDIA describes the case in "Doubling
all2all Performance with NVIDIA Collective Communication Library 2.12" (2022); that release can avoid it.

Latency. Large messages of all-reduces, all-gathers and reduce-scatters are delayed at every hop, where NCCL's
proxies stage them. The delay (b below) is the system's `network_bulk_latency_s` x S/(S + 4 MB), in addition
to the latency of a small message. nccl-tests over EFA show this shape (two nodes of A100,
awsome-distributed-training): an all-reduce of 8 bytes takes 0.16 ms, one of 1 GB 0.8 ms more than its bytes
need, and between them the surplus grows like S/(S + 4 MB), to 6 %. Sends and all-to-alls have no b, since no
table measures theirs.

Switches. Machines are numbered through the switches: `nodes_per_leaf` share a leaf, `nodes_per_spine` a spine
(a fat tree, Al-Fares et al., SIGCOMM 2008). Uplinks carry the traffic that leaves the machines below, in
equal shares. Groups of equal shape run side by side and all communicate at once. So a tier of oversubscribed
switches leaves a group only a share of its NICs.

Seconds of an all-reduce between sites, each of which all others reach over one link.

The link of a site is shared by all of its GPUs, so what counts is the sum of what they exchange. Site by
site, an all-reduce of S bytes is a ring, whose links carry 2 (W-1)/W S bytes in 2 (W-1) messages one after
the other (Patarasuk and Yuan 2009), or a double tree of 2 S bytes in 2 ceil(log2 W) messages (Sanders, Speck,
Traeff 2009). The tree pays where the bytes are few and the sites many and far apart.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike

from itertime.arrays import Array, any_of
from itertime.spec import Collective, System

from .group import Fabric, Group, Ranks

BULK_BYTES = 4e6
"""Size of the message that a hop delays by half of its bulk latency (`benchmarks/network_hops.py`)."""
SWITCH_PORTS_DOWN = 20
"""Nodes below a leaf switch that sums, and leaves below one above it, where the system states neither."""


def all_reduce_s(nbytes: ArrayLike, group: Group, fabric: Fabric) -> Array:
    """Seconds to all-reduce a buffer of `nbytes` bytes on each rank.

    The time is that of the fastest of the system's `collective_algorithms`, with S bytes, P ranks in N nodes,
    a the latency of a hop, b its delay of a message of S bytes, B the group's share of the NICs times the
    network efficiency:

    - ring: max(in-node all-reduce, 2 (P-1)/P S/B) + 2 (N-1) a + 2 C b, where C is N - 1, or N with several
      ranks in a node;
    - tree: max(in-node, 2 S/B) + 2 ceil(log2 N) (a + b);
    - nvls-tree, a tree of nodes within which NVSwitches sum: the tree's time, but max(in-node, S/B) between
      two nodes, where each of the two trees has one link;
    - hierarchical: max(in-node, 2 (N-1)/N S/B) + 2 ceil(log2 N) (a + b);
    - sharp: max(in-node, S/B) + 2 L a + 2 b, with L levels of switches; b is that of the nodes' proxies,
      which send once and receive once.
    """
    system = fabric.system
    size, nodes, local = _layout(nbytes, group)
    in_node = _inside_s("all_reduce", size, local, fabric)
    if not any_of(nodes > 1):
        return system.site.all_reduce_multiplier * np.where(size > 0, in_node, 0.0)
    through_nics = 2 * size / _ring_bytes_per_s(nodes, local, group, system)
    bulk = _bulk_latency_s(size, system)
    both_ways_s = 2 * system.network_latency_s
    seconds = []
    if "ring" in system.collective_algorithms:
        moved = np.maximum(in_node, _passed_on(nodes * local) * through_nics)
        seconds.append(_ring_s(moved, 2, nodes, local, size, system))
    depth = np.ceil(np.log2(nodes)) * (both_ways_s + 2 * bulk)
    if "tree" in system.collective_algorithms:
        seconds.append(np.maximum(in_node, through_nics) + depth)
    if "nvls-tree" in system.collective_algorithms:
        through_tree = np.where(nodes > 2, through_nics, through_nics / 2)
        seconds.append(np.maximum(in_node, through_tree) + depth)
    if "hierarchical" in system.collective_algorithms:
        seconds.append(np.maximum(in_node, _passed_on(nodes) * through_nics) + depth)
    if "sharp" in system.collective_algorithms:
        levels = _switch_levels(nodes, group.stride, system)
        seconds.append(np.maximum(in_node, through_nics / 2) + levels * both_ways_s + 2 * bulk)
    return system.site.all_reduce_multiplier * _by_reach(in_node, np.minimum.reduce(seconds), size, nodes)


def reduce_scatter_s(nbytes: ArrayLike, group: Group, fabric: Fabric) -> Array:
    """Seconds to reduce a buffer of `nbytes` bytes on each rank; each keeps `nbytes / ranks` of the result.

    max(in-node reduce-scatter, (P-1)/P S/B) + (N-1) a + C b, in the terms of `all_reduce_s`.
    """
    return _half_of_all_reduce("reduce_scatter", nbytes, group, fabric)


def all_gather_s(nbytes: ArrayLike, group: Group, fabric: Fabric) -> Array:
    """Seconds to gather a total of `nbytes` bytes onto each rank, of which each contributes `nbytes / ranks`.

    max(in-node all-gather, (P-1)/P S/B) + (N-1) a + C b, in the terms of `all_reduce_s`.
    """
    return _half_of_all_reduce("all_gather", nbytes, group, fabric)


def all_to_all_s(nbytes: ArrayLike, group: Group, fabric: Fabric) -> Array:
    """Seconds for each rank to send `nbytes / ranks` bytes to every rank.

    Of P ranks, r in a node: a node's NICs carry r (P - r)/P S bytes, inside it runs an all-to-all of r/P S
    bytes, and messages to the N - 1 other nodes leave one after the other: max(in-node, r (P - r)/P S/B) +
    (N-1) a.
    """
    system = fabric.system
    size, nodes, local = _layout(nbytes, group)
    total = nodes * local
    in_node = _inside_s("all_to_all", size * local / total, local, fabric)
    share = _nic_bytes_per_s(local, group.nic_sharers, system) * all_to_all_share(nodes, group.stride, system)
    through_nics = local * (total - local) / total * size / share
    across = np.maximum(in_node, through_nics) + (nodes - 1) * system.network_latency_s
    return _by_reach(in_node, across, size, nodes)


def p2p_s(
    nbytes: ArrayLike,
    crosses_node: ArrayLike,
    fabric: Fabric,
    nic_sharers: Ranks = 1,
    stride: Ranks = 1,
) -> Array:
    """Seconds for one GPU to send `nbytes` bytes to another one, in the same node or (`crosses_node`) in a
    different one.

    Between nodes `nic_sharers` such sends leave the node at the same time; inside a node NVLink serves each
    at full speed.
    """
    system, size = fabric.system, np.asarray(nbytes, dtype=float)
    share = _nic_bytes_per_s(1, nic_sharers, system) * ring_share(2, stride, system)
    between_nodes = system.network_latency_s + size / share
    seconds = np.where(crosses_node, between_nodes, _inside_s("send_recv", size, 2, fabric))
    return np.where(size > 0, seconds, 0.0)


def _half_of_all_reduce(operation: str, nbytes: ArrayLike, group: Group, fabric: Fabric) -> Array:
    system = fabric.system
    size, nodes, local = _layout(nbytes, group)
    in_node = _inside_s(operation, size, local, fabric)
    if not any_of(nodes > 1):
        return system.site.all_reduce_multiplier * np.where(size > 0, in_node, 0.0)
    through_nics = _passed_on(nodes * local) * size / _ring_bytes_per_s(nodes, local, group, system)
    across = _ring_s(np.maximum(in_node, through_nics), 1, nodes, local, size, system)
    return system.site.all_reduce_multiplier * _by_reach(in_node, across, size, nodes)


def _inside_s(operation: str, size: Array, ranks: ArrayLike, fabric: Fabric) -> Array:
    """Seconds of a collective in one node: the profile's, at the bytes that weigh as much on its links."""
    return fabric.profile.seconds(Collective(operation, size * fabric.nvlink_slowdown, ranks))


def _layout(nbytes: ArrayLike, group: Group) -> tuple[Array, Array, Array]:
    """Bytes, nodes, ranks of the group in one node."""
    ranks = np.asarray(group.ranks)
    local = np.minimum(np.maximum(group.ranks_per_node, 1), ranks)
    return np.asarray(nbytes, dtype=float), np.ceil(ranks / local), local


def _ring_s(moved: Array, rounds: int, nodes: Array, local: Array, size: Array, system: System) -> Array:
    """Seconds of a ring through all ranks, `rounds` times, from `moved`, those of its bytes alone.

    A piece of the buffer takes every step of the ring but one. Where a step within a node is known, the
    delay of all steps and the time of the bytes overlap, (moved^4 + delay^4)^(1/4): a rank sends one piece
    on while it receives the next. Otherwise the delay of the hops between nodes is added.
    """
    hops = (nodes - 1) * system.network_latency_s + _crossings(nodes, local) * _bulk_latency_s(size, system)
    if system.ring_step_s == 0:
        return moved + rounds * hops
    delay = rounds * (hops + nodes * (local - 1) * system.ring_step_s)
    return np.sqrt(np.sqrt(moved**4 + delay**4))


def _crossings(nodes: Array, local: Array) -> Array:
    """How often a piece of a ring's buffer changes nodes at most; it takes all links of the ring but one."""
    return np.where(local > 1, nodes, nodes - 1)


def _bulk_latency_s(size: Array, system: System) -> Array | float:
    """A hop's delay of a message of `size` bytes beyond the latency of a small one."""
    if system.network_bulk_latency_s == 0:
        return 0.0
    return system.network_bulk_latency_s * size / (size + BULK_BYTES)


def _passed_on(ranks: Array) -> Array:
    """The share of a buffer that each rank of a ring passes on."""
    return (ranks - 1) / ranks


def _nic_bytes_per_s(local: ArrayLike, nic_sharers: Ranks, system: System) -> Array:
    """Bytes/s of one group between nodes."""
    share = system.domain_nic_bytes_per_s / np.asarray(nic_sharers, dtype=float)
    return system.achieved_network * np.minimum(share, np.asarray(local) * system.gpu_nic_bytes_per_s)


def _ring_bytes_per_s(nodes: Array, local: Array, group: Group, system: System) -> Array:
    """Bytes/s of one group's ring between nodes, limited by NICs, the paths to them, and switches above."""
    share = _nic_bytes_per_s(local, group.nic_sharers, system)
    if (system.nics_per_node or system.gpus_per_node) < system.gpus_per_node:
        sharers = np.asarray(group.nic_sharers, dtype=float)
        across = system.achieved_network * 2 * system.cpu_link_bytes_per_s / sharers
        share = np.where((local > 1) & (sharers > 1), np.minimum(share, across), share)
    return share * ring_share(nodes, group.stride, system)


def _by_reach(in_node: Array, across: Array, size: Array, nodes: Array) -> Array:
    """Seconds `across` nodes for groups of several nodes, `in_node` for groups of one; 0 without bytes."""
    return np.where(size > 0, np.where(nodes > 1, across, in_node), 0.0)


def ring_share(nodes: ArrayLike, stride: ArrayLike, system: System) -> Array:
    """The share of its NICs, at most 1, that a ring through `nodes` nodes gets, each `stride` nodes from the
    next.

    Of K nodes below a switch, min(stride, K) rings leave it, each with one node's traffic; the uplinks hold
    K/o nodes' worth under an oversubscription of o. A group within one switch uses no uplink. A send to the
    next stage is a ring of two.
    """
    share = np.asarray(1.0)
    for below, oversubscription in _tiers(system):
        leaves = np.asarray(nodes) * stride > below
        uplink = np.maximum(below / np.asarray(stride, dtype=float), 1.0) / oversubscription
        share = np.where(leaves, np.minimum(share, uplink), share)
    return share


def all_to_all_share(nodes: ArrayLike, stride: ArrayLike, system: System) -> Array:
    """The share of its NICs, at most 1, that an all-to-all gets among `nodes` nodes, each `stride` from the
    next.

    Each of the K nodes of a group below a switch sends (N-K)/(N-1) of its traffic up.
    """
    share = np.asarray(1.0)
    count = np.asarray(nodes, dtype=float)
    for below, oversubscription in _tiers(system):
        together = np.minimum(np.maximum(below // np.asarray(stride), 1), count)
        up = (count - together) / np.maximum(count - 1, 1)
        share = np.minimum(share, 1 / np.maximum(oversubscription * up, 1.0))
    return share


def _switch_levels(nodes: Array, stride: ArrayLike, system: System) -> Array:
    """Tiers of switches from the nodes of a group up to the switch that joins all: 1, 2, 3 or more."""
    span = np.maximum(nodes * np.asarray(stride, dtype=float), 1.0)
    domain = system.domain_nodes
    leaf = max((system.nodes_per_leaf or SWITCH_PORTS_DOWN) // domain, 1)
    spine = max((system.nodes_per_spine or leaf * domain * SWITCH_PORTS_DOWN) // domain, leaf)
    above = np.ceil(np.log(np.maximum(span / spine, 1.0)) / np.log(SWITCH_PORTS_DOWN) - 1e-9)
    return np.where(span > leaf, np.where(span > spine, 2.0 + above, 2.0), 1.0)


def _tiers(system: System) -> Iterator[tuple[int, float]]:
    domain = system.domain_nodes
    if system.nodes_per_leaf and system.leaf_oversubscription > 1:
        yield max(system.nodes_per_leaf // domain, 1), system.leaf_oversubscription
    if system.nodes_per_spine and system.spine_oversubscription > 1:
        yield max(system.nodes_per_spine // domain, 1), system.spine_oversubscription


def all_reduce_between_sites_s(
    nbytes: ArrayLike, sites: ArrayLike, gpus_per_site: ArrayLike, system: System
) -> Array:
    """Seconds to all-reduce `nbytes` bytes of each of W = `sites` sites over the system's site link.

    min(2 (W-1)/W S/B + 2 (W-1) a, 2 S/B + 2 ceil(log2 W) a), with a the link's latency. B is the bandwidth
    of the link, or of the NICs of `gpus_per_site` GPUs where these carry less. No time for one site, or for
    no bytes. The system must have a site link. All arguments broadcast.
    """
    assert system.site_link_bytes_per_s is not None
    hop = system.site_link_latency_s
    size, count = np.asarray(nbytes, dtype=float), np.asarray(sites, dtype=float)
    of_a_gpu = min(system.nic_bytes_per_s / system.gpus_per_node, system.gpu_nic_bytes_per_s)
    nics = system.achieved_network * np.asarray(gpus_per_site) * of_a_gpu
    once = size / np.minimum(system.site_link_bytes_per_s, nics)
    ring = 2 * (count - 1) / count * once + 2 * (count - 1) * hop
    tree = 2 * once + 2 * np.ceil(np.log2(count)) * hop
    return np.where((size > 0) & (count > 1), np.minimum(ring, tree), 0.0)
