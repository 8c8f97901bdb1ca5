"""Time of the collectives of one process group, within a node and across nodes, in seconds; all broadcast.

A group of `ranks` GPUs sits in N = ceil(ranks / ranks_per_node) nodes. Within a node the times are the
profile's NCCL tables. Across nodes a collective runs hierarchically and pipelined, so the slower of its two
parts counts:

- inside each node, the same collective among the group's `ranks_per_node` GPUs;
- between nodes, a ring over the N nodes on the node's NICs, or for an all-reduce a double binary tree where
  that is faster (Sanders, Speck, Traeff 2009, as in NCCL: 2 S bytes per node, logarithmic depth);

and the latency of the hops between nodes comes on top. `nic_sharers` groups that communicate at the same
time share a node's NICs equally, and a group moves at most `ranks_per_node` times what one GPU can.

`nbytes` is nccl-tests' size: the buffer of one rank, and for all-gather and reduce-scatter the gathered
whole. A single rank, or no bytes, takes no time.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from itertime.profile import Profile
from itertime.profiling.models import Array
from itertime.system import System

__all__ = ["all_gather_s", "all_reduce_s", "all_to_all_s", "p2p_s", "reduce_scatter_s"]


def all_reduce_s(
    nbytes: ArrayLike,
    ranks: ArrayLike,
    ranks_per_node: ArrayLike,
    system: System,
    profile: Profile,
    nic_sharers: ArrayLike = 1,
) -> Array:
    """Seconds to all-reduce a buffer of `nbytes` bytes on each rank.

    With S bytes, N nodes, a the latency of a hop, B the group's share of the NICs times the network
    efficiency: max(in-node all-reduce, ring 2 (N-1)/N S/B) + 2 (N-1) a, or with a tree max(in-node, 2 S/B)
    + 2 ceil(log2 N) a.
    """
    size, nodes, local = _layout(nbytes, ranks, ranks_per_node)
    bandwidth, hop = _nic_share(local, system, nic_sharers), 2 * system.network_latency_s
    inside = profile.collective_s("all_reduce", size, local)
    ring = np.maximum(inside, 2 * (nodes - 1) / nodes * size / bandwidth) + (nodes - 1) * hop
    tree = np.maximum(inside, 2 * size / bandwidth) + np.ceil(np.log2(nodes)) * hop
    return system.site.all_reduce_multiplier * _choose(inside, np.minimum(ring, tree), size, nodes)


def reduce_scatter_s(
    nbytes: ArrayLike,
    ranks: ArrayLike,
    ranks_per_node: ArrayLike,
    system: System,
    profile: Profile,
    nic_sharers: ArrayLike = 1,
) -> Array:
    """Seconds to reduce a buffer of `nbytes` bytes on each rank so that each keeps `nbytes / ranks` of the
    result.

    max(in-node reduce-scatter, ring (N-1)/N S/B) + (N-1) a, in the terms of `all_reduce_s`.
    """
    return _half_of_all_reduce("reduce_scatter", nbytes, ranks, ranks_per_node, system, profile, nic_sharers)


def all_gather_s(
    nbytes: ArrayLike,
    ranks: ArrayLike,
    ranks_per_node: ArrayLike,
    system: System,
    profile: Profile,
    nic_sharers: ArrayLike = 1,
) -> Array:
    """Seconds to gather `nbytes` bytes in all onto each rank, each giving `nbytes / ranks`.

    max(in-node all-gather, ring (N-1)/N S/B) + (N-1) a, in the terms of `all_reduce_s`.
    """
    return _half_of_all_reduce("all_gather", nbytes, ranks, ranks_per_node, system, profile, nic_sharers)


def all_to_all_s(
    nbytes: ArrayLike,
    ranks: ArrayLike,
    ranks_per_node: ArrayLike,
    system: System,
    profile: Profile,
    nic_sharers: ArrayLike = 1,
) -> Array:
    """Seconds for each rank to send `nbytes / ranks` bytes to every rank.

    Of P ranks, r in a node: a node's NICs carry r (P - r)/P S bytes, inside it runs an all-to-all of r/P S
    bytes, and messages to the N - 1 other nodes leave one after the other: max(in-node, r (P - r)/P S/B) +
    (N-1) a.
    """
    size, nodes, local = _layout(nbytes, ranks, ranks_per_node)
    total = nodes * local
    inside = profile.collective_s("all_to_all", size * local / total, local)
    outside = local * (total - local) / total * size / _nic_share(local, system, nic_sharers)
    across = np.maximum(inside, outside) + (nodes - 1) * system.network_latency_s
    return _choose(inside, across, size, nodes)


def p2p_s(
    nbytes: ArrayLike, crosses_node: ArrayLike, system: System, profile: Profile, nic_sharers: ArrayLike = 1
) -> Array:
    """Seconds for one GPU to send `nbytes` bytes to one other, in the same node or (`crosses_node`) in
    another.

    Between nodes `nic_sharers` such sends leave the node at the same time; inside one, NVLink serves each
    in full.
    """
    size = np.asarray(nbytes, dtype=float)
    outside = system.network_latency_s + size / _nic_share(1, system, nic_sharers)
    seconds = np.where(crosses_node, outside, profile.collective_s("send_recv", size))
    return np.where(size > 0, seconds, 0.0)


def _half_of_all_reduce(
    operation: str,
    nbytes: ArrayLike,
    ranks: ArrayLike,
    ranks_per_node: ArrayLike,
    system: System,
    profile: Profile,
    nic_sharers: ArrayLike,
) -> Array:
    size, nodes, local = _layout(nbytes, ranks, ranks_per_node)
    inside = profile.collective_s(operation, size, local)
    outside = (nodes - 1) / nodes * size / _nic_share(local, system, nic_sharers)
    across = np.maximum(inside, outside) + (nodes - 1) * system.network_latency_s
    return system.site.all_reduce_multiplier * _choose(inside, across, size, nodes)


def _layout(nbytes: ArrayLike, ranks: ArrayLike, ranks_per_node: ArrayLike) -> tuple[Array, Array, Array]:
    """Bytes, nodes, ranks of the group in one node."""
    count = np.asarray(ranks)
    local = np.clip(ranks_per_node, 1, count)
    return np.asarray(nbytes, dtype=float), np.ceil(count / local), local


def _nic_share(local: ArrayLike, system: System, nic_sharers: ArrayLike) -> Array:
    """Bytes/s of one group between nodes."""
    share = system.nic_bytes_per_s / np.asarray(nic_sharers, dtype=float)
    return system.site.network_efficiency * np.minimum(share, np.asarray(local) * system.gpu_nic_bytes_per_s)


def _choose(inside: Array, across: Array, size: Array, nodes: Array) -> Array:
    return np.where(size > 0, np.where(nodes > 1, across, inside), 0.0)
