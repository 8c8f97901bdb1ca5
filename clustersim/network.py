"""What the network makes of the speeds of running jobs.

| `network` | a job's speed |
|---|---|
| `ideal` | that of its GPU count, wherever they are (this module is not used) |
| `tiers` | that of the nodes and leaf switches it spans, alone in the network |
| `contention` | as `tiers`, but jobs that leave a leaf share its uplinks max-min fairly, all the time |

Every job is taken to send all the time as much as it can: how the bursts of several jobs fall together is not
simulated, and what is charged is the worst of it. Jobs known by their duration or by a
throughput table send nothing and are as fast anywhere: nothing is known of their traffic.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from .cluster import Cluster, Placement
from .contention import Links
from .layout import IterationTimes, LayoutTimes, demand_of, layout_of, uplinks, used_part

if TYPE_CHECKING:
    from .speed import Curve, Speed

__all__ = ["Network"]


class Sender(Hashable, Protocol):
    """A job as the network knows it."""

    def curve_at(self, gpu_type: str) -> Curve:
        """The job's curve on GPUs of one type."""


Job = TypeVar("Job", bound=Sender)


class Network(Generic[Job]):
    """The running jobs on their links, and how fast each is because of it."""

    def __init__(self, cluster: Cluster, speed: Speed):
        self._cluster, self._speed = cluster, speed
        self._capacity = uplinks(cluster)
        self._times = LayoutTimes(speed)
        self._shared = cluster.network == "contention"
        self._links: Links[Job] = Links(self._capacity)
        self._here: dict[Job, IterationTimes] = {}
        self._speeds: dict[Job, float] = {}
        self._new: dict[Job, None] = {}

    def after(self, changes: Mapping[Job, Placement | None]) -> dict[Job, float]:
        """The new speeds, in seconds per unit of work, when jobs move to these places, or nowhere: of those
        who get GPUs now, and of those to which their links now give another share.
        """
        for job in changes:
            self.leave(job)
        for job, placement in changes.items():
            if placement is not None:
                self._enter(job, placement)
        return self._settle()

    def leave(self, job: Job) -> None:
        """`job` holds no GPUs any more; nothing happens if it is not here."""
        if self._here.pop(job, None) is not None:
            self._new.pop(job, None)
            self._speeds.pop(job, None)
            self._links.remove(job)

    def _enter(self, job: Job, placement: Placement) -> None:
        gpus, gpu_type = sum(count for _, count in placement), self._cluster.type_of(placement[0][0])
        curve, planner = job.curve_at(gpu_type), self._speed.planner_of(gpu_type)
        plan = curve.training.get(gpus)
        if plan is None or planner is None:
            return
        part = placement if plan.gpus >= gpus else used_part(placement, plan.gpus)
        system = planner.system
        demand = demand_of(self._cluster, part, plan, system.nic_bytes_per_s / system.gpus_per_node)
        layout = layout_of(self._cluster, gpu_type, part, plan, demand, self._capacity)
        times = self._times.of(curve, gpus, layout)
        assert times is not None
        self._here[job] = times
        self._new[job] = None
        if self._shared and demand:
            self._links.add(job, demand)

    def _settle(self) -> dict[Job, float]:
        shares = dict.fromkeys(self._new, 1.0)
        shares.update(self._links.settle())
        self._new = {}
        changed = {}
        for job, share in shares.items():
            unit_s = self._here[job].unit_s(1.0 / share)
            if self._speeds.get(job) != unit_s:
                self._speeds[job] = changed[job] = unit_s
        return changed
