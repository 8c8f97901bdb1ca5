"""Groups of GPUs that communicate, and what carries their bytes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from itertime.arrays import Whole
from itertime.costs.kernel_times import KernelTimes
from itertime.spec import System

Ranks = Whole | int


class Fabric(NamedTuple):
    """What carries the bytes: a system's links and switches, and a profile's collectives within a node."""

    system: System
    profile: KernelTimes

    @property
    def nvlink_slowdown(self) -> float:
        """How many times as long bytes take within a node as in the profile's tables: as the system states,
        or by the links of a GPU here and in the node that was measured.
        """
        stated, measured = self.system.nvlink_slowdown, self.profile.nvlink_bytes_per_s
        if stated is not None or measured is None:
            return stated or 1.0
        return measured / self.system.nvlink_bytes_per_s


class Group(NamedTuple):
    """A process group, with its likes that communicate at the same time; numbers or arrays, which broadcast.

    A node is here what NVLink joins: `System.domain_gpus` GPUs, with the NICs of all of them. In most systems
    that is one machine; in an NVL72 rack it is 18 trays.

    - `ranks`: its GPUs. They sit in ceil(ranks / ranks_per_node) nodes.
    - `ranks_per_node`: how many of them share a node. They move at most so many times the bandwidth of one
      GPU.
    - `nic_sharers`: groups that communicate at the same time and share a node's NICs equally.
    - `stride`: nodes from one of the group's nodes to the next. It decides the group's share of the switches.
    """

    ranks: Ranks
    ranks_per_node: Ranks
    nic_sharers: Ranks = 1
    stride: Ranks = 1

    @classmethod
    def side_by_side(cls, ranks: Ranks, ranks_per_node: Ranks, system: System, stride: Ranks = 1) -> Group:
        """The group of which as many fill every node as fit, so that all of these share its NICs.

        `ranks_per_node` is at most the number of a node's GPUs.
        """
        return cls(ranks, ranks_per_node, system.domain_gpus // ranks_per_node, stride)


def ranks_together(ranks: Whole, capacity: Ranks, system: System) -> Whole:
    """How many of a group's `ranks` lie in one node, of which `capacity` can.

    Machines are filled up. An NVLink domain of several machines is used in equal parts: 128 ranks are 64 in
    each of two racks of 72, as schedulers place them, not 72 and 56.
    """
    if system.domain_nodes == 1:
        return np.minimum(ranks, capacity)
    nodes = -(-ranks // capacity)
    return -(-ranks // nodes)
