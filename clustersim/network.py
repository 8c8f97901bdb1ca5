"""What the network makes of the speeds of running jobs.

| `network` | a job's speed |
|---|---|
| `ideal` | that of its GPU count, wherever they are (this module is not used) |
| `tiers` | that of the nodes and leaf switches it spans, alone in the network |
| `contention` | as `tiers`, but jobs that leave a leaf share its uplinks max-min fairly, all the time |

Every job is taken to send all the time as much as its NICs carry: how the bursts of several jobs fall
together is not simulated, and what is charged is the worst of it. Jobs known by their duration or by a
throughput table send nothing and are as fast anywhere: nothing is known of their traffic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .cluster import Cluster, Placement
from .contention import Links
from .layout import Layout, LayoutTimes, demand_of, layout_of, uplinks, used_part

if TYPE_CHECKING:
    from .active import ActiveJob
    from .speed import Curve, Speed

__all__ = ["Network"]


class Network:
    """The running jobs on their links, and how fast each is because of it."""

    def __init__(self, cluster: Cluster, speed: Speed):
        self._cluster, self._speed = cluster, speed
        self._capacity = uplinks(cluster)
        self._times = LayoutTimes(cluster, speed)
        self._shared = cluster.network == "contention"
        self._links: Links[ActiveJob] = Links(self._capacity)
        self._here: dict[ActiveJob, tuple[Curve, int, Layout]] = {}
        self._new: dict[ActiveJob, None] = {}

    def enter(self, job: ActiveJob, curve: Curve, gpus: int, gpu_type: str, placement: Placement) -> None:
        """`job` runs on `placement`, nodes of `gpu_type`, from now on; it must not be here yet."""
        plan, planner = curve.training.get(gpus), self._speed.planner_of(gpu_type)
        if plan is None or planner is None:
            return
        part = placement if plan.gpus >= gpus else used_part(placement, plan.gpus)
        system = planner.system
        demand = demand_of(self._cluster, part, system.nic_bytes_per_s / system.gpus_per_node)
        layout = layout_of(self._cluster, gpu_type, part, demand, self._capacity)
        self._here[job] = (curve, gpus, layout)
        self._new[job] = None
        if self._shared and demand:
            self._links.add(job, demand)

    def leave(self, job: ActiveJob) -> None:
        """`job` holds no GPUs any more; nothing happens if it is not here."""
        if self._here.pop(job, None) is not None:
            self._new.pop(job, None)
            self._links.remove(job)

    def settle(self) -> dict[ActiveJob, float]:
        """Seconds per unit of work of every job that came since the last call, or to which its links now
        give another share.
        """
        shares = dict.fromkeys(self._new, 1.0)
        shares.update(self._links.settle())
        self._new = {}
        speeds = {}
        for job, share in shares.items():
            curve, gpus, layout = self._here[job]
            speeds[job] = self._times.unit_s(curve, gpus, layout, 1.0 / share)
        return speeds
