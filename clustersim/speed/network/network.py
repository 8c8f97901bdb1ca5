"""The speeds of placed jobs, where the network makes them depend on their placement.

| network model | a job's speed | class |
|---|---|---|
| `ideal` | depends on its number of GPUs alone | none: there is no network |
| `tiers` | depends also on the nodes and switches that it spans, as if it were alone | `TieredNetwork` |
| `contention` | as `tiers`, but jobs share the uplinks of leaves max-min fairly | `ContendedNetwork` |

Every job is assumed to send at its full demand all the time. The overlap of bursts of several jobs is not
simulated; the worst case is charged. A job whose plan compresses gradients, or exchanges them only now and
then, takes from others as much less as it sends less (`traffic.py`). Jobs that are known by their duration or
by a throughput table send nothing and have the same speed everywhere, because their traffic is unknown.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Generic, Protocol, TypeVar

from clustersim.cluster import Cluster, Placement
from clustersim.speed.curve import Curve
from clustersim.speed.speed import Speed

from .fair_sharing import MaxMinLinks
from .layout import IterationTimes, LayoutTimes, demand_of, layout_of, uplinks, used_part

__all__ = ["ContendedNetwork", "Network", "TieredNetwork", "network_for"]


class Sender(Hashable, Protocol):
    """What the network asks of a job."""

    def curve_at(self, gpu_type: str) -> Curve:
        """The job's curve on GPUs of one type."""


AnySender = TypeVar("AnySender", bound=Sender)


class Network(Protocol[AnySender]):
    """A network model at work: the running jobs, and their speeds."""

    def move(self, changes: Mapping[AnySender, Placement | None]) -> dict[AnySender, float]:
        """Move jobs to these placements; None: the job releases its GPUs. Returns the new speeds, in seconds
        per unit of work, of the jobs that got GPUs and of those whose speed changed because of other jobs.
        A job that is missing has the speed of its curve, wherever it runs.
        """

    def forget(self, job: AnySender) -> None:
        """Remove `job`, which holds no GPUs any more. Nothing happens if the network does not know it."""


class TieredNetwork(Generic[AnySender]):
    """The running jobs and their speeds, each as if it were alone in the network."""

    def __init__(self, cluster: Cluster, speed: Speed):
        self._cluster, self._speed = cluster, speed
        self._capacity = uplinks(cluster)
        self._layout_times = LayoutTimes(speed)
        self._times_of: dict[AnySender, IterationTimes] = {}
        self._speeds: dict[AnySender, float] = {}
        self._entered: dict[AnySender, None] = {}
        self._per_unit: dict[AnySender, float] = {}  # iterations per unit of work, of jobs in phases

    def move(self, changes: Mapping[AnySender, Placement | None]) -> dict[AnySender, float]:
        """Move jobs to these placements; see `Network.move`."""
        for job in changes:
            self.forget(job)
        for job, placement in changes.items():
            if placement is not None:
                self._enter(job, placement)
        return self._changed_speeds()

    def forget(self, job: AnySender) -> None:
        """Remove `job`, which holds no GPUs any more. Nothing happens if the network does not know it."""
        if self._times_of.pop(job, None) is not None:
            self._entered.pop(job, None)
            self._speeds.pop(job, None)
            self._per_unit.pop(job, None)
            self._stop_sending(job)

    def _enter(self, job: AnySender, placement: Placement) -> None:
        gpus, gpu_type = sum(count for _, count in placement), self._cluster.type_of(placement[0][0])
        curve, planner = job.curve_at(gpu_type), self._speed.planner_of(gpu_type)
        plan = curve.training.get(gpus)
        if plan is None or planner is None:
            return
        part = placement if plan.gpus >= gpus else used_part(placement, plan.gpus)
        system = planner.system
        demand = demand_of(self._cluster, part, plan, system.nic_bytes_per_s / system.gpus_per_node)
        layout = layout_of(self._cluster, gpu_type, part, plan, demand, self._capacity)
        times = self._layout_times.of(curve, gpus, layout)
        assert times is not None
        self._times_of[job] = times
        if curve.per_unit != 1.0:
            self._per_unit[job] = curve.per_unit
        self._entered[job] = None
        self._send(job, times, demand)

    def _send(self, job: AnySender, times: IterationTimes, demand: Mapping[int, float]) -> None:
        """A job begins to send `demand` bytes/s by link. Without contention that concerns no other job."""

    def _stop_sending(self, job: AnySender) -> None:
        """A job sends nothing any more."""

    def _shares(self) -> dict[AnySender, float]:
        """The shares of their demand that the links give to the jobs that entered since the last call, and to
        those whose share has changed.
        """
        shares = dict.fromkeys(self._entered, 1.0)
        self._entered = {}
        return shares

    def _changed_speeds(self) -> dict[AnySender, float]:
        changed = {}
        for job, share in self._shares().items():
            times = self._times_of[job]
            unit_s = times.unit_s(times.oversubscription(share))
            if job in self._per_unit:
                unit_s *= self._per_unit[job]
            if self._speeds.get(job) != unit_s:
                self._speeds[job] = changed[job] = unit_s
        return changed


class ContendedNetwork(TieredNetwork[AnySender]):
    """The running jobs, the links that they share max-min fairly, and their speeds."""

    def __init__(self, cluster: Cluster, speed: Speed):
        super().__init__(cluster, speed)
        self.links: MaxMinLinks[AnySender] = MaxMinLinks(self._capacity)

    def _send(self, job: AnySender, times: IterationTimes, demand: Mapping[int, float]) -> None:
        if demand:
            self.links.add(job, {link: times.sent_share * amount for link, amount in demand.items()})

    def _stop_sending(self, job: AnySender) -> None:
        self.links.remove(job)

    def _shares(self) -> dict[AnySender, float]:
        return super()._shares() | dict(self.links.settle())


_CLASSES = {"tiers": TieredNetwork, "contention": ContendedNetwork}
"""The class of each network model under which speeds depend on the placement."""


def network_for(cluster: Cluster, speed: Speed) -> Network[AnySender]:
    """The network of a run on `cluster`, by whose model speeds depend on the placement."""
    return _CLASSES[cluster.network_model.name](cluster, speed)
