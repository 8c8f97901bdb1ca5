"""Time of the collectives of one process group, within a node and across nodes, in seconds; every function broadcasts.

A group of `ranks` GPUs sits in N = ceil(ranks / ranks_per_node) nodes. Within a node the times are the profile's NCCL tables.
Across nodes a collective runs hierarchically and pipelined, so the slower of its two parts counts:

- inside each node, the same collective among the group's `ranks_per_node` GPUs;
- between nodes, a ring over the N nodes on the node's NICs, or for an all-reduce NCCL's double binary tree where
  that is faster (Sanders, Speck, Traeff 2009: 2 S bytes per node, logarithmic depth).

`nic_sharers` groups that communicate at the same time share a node's NICs equally, and a group uses at most
`ranks_per_node` times what one GPU can move to the NICs.
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
    """Seconds to all-reduce a buffer of `nbytes` bytes on each of `ranks` GPUs; 0 for a single rank.

    Between N nodes: min(ring 2 (N-1)/N S / B + 2 (N-1) a, tree 2 S / B + 2 ceil(log2 N) a), with S bytes, B the
    group's share of the NICs times the site's network efficiency, a the network's latency.
    """
    size, nodes, local = _layout(nbytes, ranks, ranks_per_node)
    bandwidth = _nic_share(local, system, nic_sharers)
    latency = system.network_latency_s
    ring = 2 * (nodes - 1) / nodes * size / bandwidth + 2 * (nodes - 1) * latency
    tree = 2 * size / bandwidth + 2 * np.ceil(np.log2(nodes)) * latency
    inside = profile.collective_s("all_reduce", size, local)
    return system.site.all_reduce_multiplier * _slower(inside, np.minimum(ring, tree), size, nodes)


def reduce_scatter_s(
    nbytes: ArrayLike,
    ranks: ArrayLike,
    ranks_per_node: ArrayLike,
    system: System,
    profile: Profile,
    nic_sharers: ArrayLike = 1,
) -> Array:
    """Seconds to reduce-scatter a buffer of `nbytes` bytes on each rank, each keeping `nbytes / ranks`.

    Between N nodes a ring: (N-1)/N S / B + (N-1) a.
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

    Between N nodes a ring: (N-1)/N S / B + (N-1) a.
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

    A node's NICs carry what its r ranks send to the other nodes, r (ranks - r)/ranks S; the in-node part is
    an all-to-all of r/ranks S bytes; each of the other nodes costs one latency.
    """
    size, nodes, local = _layout(nbytes, ranks, ranks_per_node)
    total = nodes * local
    outside = local * (total - local) / total * size / _nic_share(local, system, nic_sharers)
    outside = outside + (nodes - 1) * system.network_latency_s
    inside = profile.collective_s("all_to_all", size * local / total, local)
    return _slower(inside, outside, size, nodes)


def p2p_s(nbytes: ArrayLike, crosses_node: ArrayLike, system: System, profile: Profile, nic_sharers: ArrayLike = 1) -> Array:
    """Seconds for one GPU to send `nbytes` bytes to one other, in the same node or (`crosses_node`) in another."""
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
    ring = (nodes - 1) / nodes * size / _nic_share(local, system, nic_sharers) + (nodes - 1) * system.network_latency_s
    inside = profile.collective_s(operation, size, local)
    return system.site.all_reduce_multiplier * _slower(inside, ring, size, nodes)


def _layout(nbytes: ArrayLike, ranks: ArrayLike, ranks_per_node: ArrayLike) -> tuple[Array, Array, Array]:
    """Bytes, nodes, ranks of the group in one node."""
    count = np.asarray(ranks)
    local = np.clip(ranks_per_node, 1, count)
    return np.asarray(nbytes, dtype=float), np.ceil(count / local), local


def _nic_share(local: ArrayLike, system: System, nic_sharers: ArrayLike) -> Array:
    """Bytes/s of one group between nodes."""
    share = system.nic_bytes_per_s / np.asarray(nic_sharers, dtype=float)
    return system.site.network_efficiency * np.minimum(share, np.asarray(local) * system.gpu_nic_bytes_per_s)


def _slower(inside: Array, outside: Array, size: Array, nodes: Array) -> Array:
    return np.where(size > 0, np.where(nodes > 1, np.maximum(inside, outside), inside), 0.0)
