"""The switches above the nodes: the share of a node's NICs that a tier of oversubscribed switches leaves.

Nodes are numbered through the switches: `nodes_per_leaf` share a leaf, `nodes_per_spine` a spine (a fat tree,
Al-Fares et al., SIGCOMM 2008). Uplinks carry the traffic that leaves the nodes below, in equal shares. Groups
of equal shape run side by side and all communicate at once.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from itertime.system import System

__all__ = ["all_to_all_share", "ring_share"]

Array = NDArray[np.float64]


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
    """The same for an all-to-all: each of K nodes of a group below a switch sends (N-K)/(N-1) of it up."""
    share = np.asarray(1.0)
    count = np.asarray(nodes, dtype=float)
    for below, oversubscription in _tiers(system):
        together = np.minimum(np.maximum(below // np.asarray(stride), 1), count)
        up = (count - together) / np.maximum(count - 1, 1)
        share = np.minimum(share, 1 / np.maximum(oversubscription * up, 1.0))
    return share


def _tiers(system: System) -> Iterator[tuple[int, float]]:
    if system.nodes_per_leaf and system.leaf_oversubscription > 1:
        yield system.nodes_per_leaf, system.leaf_oversubscription
    if system.nodes_per_spine and system.spine_oversubscription > 1:
        yield system.nodes_per_spine, system.spine_oversubscription
