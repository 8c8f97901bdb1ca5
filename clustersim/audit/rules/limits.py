"""The rules about what jobs hold of nodes: no GPUs that are reserved for others, no more cores and memory
than a node has, their own GPUs as long as no other job gets them, and those of as many nodes, and of the
partitions, that they ask for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

from clustersim.audit.evidence import slack_s
from clustersim.audit.history import ClusterHistory, JobHistory, Rule
from clustersim.cluster import MILLION, HostDemand, HostResources, NodeShape, Placement, SharedPlacement
from clustersim.failures import Reservation
from clustersim.records import ALLOCATES, NODE_DOWN, NODE_UP, PREEMPT, RELEASES, EventRecord, JobRecord
from clustersim.runs import Trace, find_policy, params_with_site
from clustersim.sites import node_numbers, site_of

__all__ = [
    "HostNotExceeded",
    "NoIdleStops",
    "PartitionsKept",
    "ReservationsKept",
    "ShapesKept",
    "follows_site",
    "states_nodes",
]


class NoIdleStops(Rule):
    """A job that the policy stops has an idle stop if it waits after that instant, and its nodes then have as
    many free GPUs as it held there. Times are rounded, so what looks like an instant may be several. GPUs
    that another job got and left again within it are therefore not free.
    """

    name = "idle"
    text = "no more jobs lose GPUs to the policy that then stay free than the manifest states"

    def __init__(self, history: ClusterHistory):
        super().__init__(history)
        self.kinds = (*ALLOCATES, *RELEASES, NODE_DOWN, NODE_UP)
        self._stops: dict[str, tuple[int, EventRecord, Placement]] = {}  # of this instant, by job
        self._nodes_down: set[int] = set()
        self._idle: list[tuple[int, EventRecord]] = []

    def on_event(self, i: int, event: EventRecord, job: JobHistory | None) -> None:
        if job is None:
            change = self._nodes_down.add if event.event == NODE_DOWN else self._nodes_down.discard
            for node, _ in event.placement:
                change(node)
            return
        allocation = job.allocation
        if allocation is not None and allocation.time_s == event.time_s:
            nodes = {node for node, _ in allocation.placement}
            for job_id, (_, _, placement) in list(self._stops.items()):
                if any(node in nodes for node, _ in placement):
                    del self._stops[job_id]
        elif event.event == PREEMPT and allocation is not None and not event.detail:
            if not isinstance(allocation.placement, SharedPlacement):
                self._stops[event.job_id] = i, event, allocation.placement
            return
        self._stops.pop(event.job_id, None)

    def on_instant(self, first_index: int, batch: Sequence[EventRecord]) -> None:
        if not self._stops:
            return
        in_use, size_of, nodes = self.history.in_use, self.history.cluster.size_of, self.history.cluster.nodes
        for i, event, placement in self._stops.values():
            if all(
                0 <= node < nodes
                and node not in self._nodes_down
                and size_of(node) - in_use.get(node, 0) >= count
                for node, count in placement
            ):
                self._idle.append((i, event))
        self._stops.clear()

    def on_end(self, unrecorded: Sequence[JobHistory]) -> None:
        stated = self.evidence.idle_stops or 0
        if len(self._idle) > stated:
            for i, event in self._idle:
                text = f"job {event.job_id} loses GPUs that no job gets"
                self.report_at(
                    i, event, f"{text}; the manifest states {stated} such jobs" if stated else text
                )


class ReservationsKept(Rule):
    """Each stretch of time in which a job holds GPUs is compared with the reservations of its nodes."""

    name = "reservations"
    text = "during a reservation no other job holds GPUs of its nodes"

    def __init__(self, history: ClusterHistory):
        super().__init__(history)
        self.kinds = (*ALLOCATES, *RELEASES)
        self._of_node: dict[int, list[Reservation]] = {}
        for reservation in self.evidence.reservations:
            for node in sorted(reservation.nodes):
                self._of_node.setdefault(node, []).append(reservation)
        self._held: dict[str, tuple[int, EventRecord, str]] = {}  # by job: its allocation, and the tenant

    def on_event(self, i: int, event: EventRecord, job: JobHistory | None) -> None:
        if job is None:
            return
        self._end_hold(event.job_id, event.time_s)
        if event.event in ALLOCATES:
            tenant = "" if job.record is None else job.record.tenant
            self._held[event.job_id] = i, event, tenant

    def on_end(self, unrecorded: Sequence[JobHistory]) -> None:
        end_s = inf if self.evidence.end_s is None else self.evidence.end_s
        for job_id in list(self._held):
            self._end_hold(job_id, end_s)

    def _end_hold(self, job_id: str, until_s: float) -> None:
        """The job held its GPUs until `until_s`."""
        held = self._held.pop(job_id, None)
        if held is None:
            return
        i, allocation, tenant = held
        for node, _ in allocation.placement:
            for reservation in self._of_node.get(node, ()):
                shared_s = min(until_s, reservation.end_s) - max(allocation.time_s, reservation.start_s)
                if shared_s > self._slack_s(reservation.end_s) and not reservation.admits(job_id, tenant):
                    text = f"job {job_id} holds node {node}, which reservation {reservation.number} keeps for"
                    text += " others"
                    self.report_at(
                        i, allocation, f"{text} for {shared_s:g} s from t={reservation.start_s:g} on"
                    )
                    return

    def _slack_s(self, now: float) -> float:
        return slack_s(now, 3 * self.evidence.resolution_s)


class HostNotExceeded(Rule):
    """Adds up what the jobs on each node need beside their GPUs, by their records, after every instant."""

    name = "host"
    text = "the jobs on a node need no more cores and host memory than it has"

    def __init__(self, history: ClusterHistory):
        super().__init__(history)
        self.kinds = (*ALLOCATES, *RELEASES)
        self._has = {
            node: stretch.host
            for pool in history.cluster.pools
            for stretch in pool.stretches
            for node in range(stretch.first, stretch.first + stretch.nodes)
        }
        self._used: dict[int, tuple[int, int]] = {}  # by node, in millionths
        self._held: dict[str, tuple[Placement, HostDemand]] = {}
        self._changed: dict[int, int] = {}  # by node that got jobs at this instant: the last such event

    def on_event(self, i: int, event: EventRecord, job: JobHistory | None) -> None:
        if job is None:
            return
        if held := self._held.pop(event.job_id, None):
            self._add(*held, -1)
        demand = None if job.record is None else _demand_of(job.record)
        if event.event in ALLOCATES and demand is not None:
            self._held[event.job_id] = event.placement, demand
            self._add(event.placement, demand, 1)
            self._changed |= dict.fromkeys((node for node, _ in event.placement), i)

    def on_instant(self, first_index: int, batch: Sequence[EventRecord]) -> None:
        for node, i in self._changed.items():
            wrong = _excess(self._used[node], self._has.get(node, HostResources(None, None)))
            if wrong:
                self.report_at(i, batch[i - first_index], f"jobs on node {node} hold {wrong}")
        self._changed.clear()

    def _add(self, placement: Placement, demand: HostDemand, sign: int) -> None:
        for node, count in placement:
            cpus, memory = self._used.get(node, (0, 0))
            self._used[node] = cpus + sign * count * demand.cpus, memory + sign * count * demand.memory


def _demand_of(record: JobRecord) -> HostDemand | None:
    """What the job needs for each of its GPUs, by its record."""
    return HostDemand.of(record.cpus_per_gpu, record.host_gb_per_gpu, 1)


def _excess(held: tuple[int, int], has: HostResources) -> str:
    """How much more is used than a node has; "" if no more."""
    if has.cpus is not None and held[0] > has.cpus:
        return f"{held[0] / MILLION:g} cores of {has.cpus / MILLION:g}"
    if has.memory is not None and held[1] > has.memory:
        return f"{held[1] / MILLION:g} GB of host memory of {has.memory / MILLION:g}"
    return ""


def states_nodes(trace: Trace) -> bool:
    """Whether any job of a trace asks for a number of nodes."""
    return any(job.nodes is not None for job in trace.jobs)


def follows_site(manifest: Mapping[str, Any]) -> bool:
    """Whether the policy of a run keeps to the partitions of its site."""
    if manifest.get("site") is None:
        return False
    try:
        return "site" in params_with_site(find_policy(manifest["policy"]), {}, manifest["site"])
    except (ValueError, TypeError):
        return False  # the policy is not here


class ShapesKept(Rule):
    name = "shapes"
    text = "a job that asks for a number of nodes gets as many, with its GPUs divided among them"

    def __init__(self, history: ClusterHistory, trace: Trace):
        super().__init__(history)
        self._shapes = {
            job.job_id: shape
            for job in trace.jobs
            if job.gpu_fraction is None
            and (shape := NodeShape.of(job.gpus, job.nodes, job.gpus_per_node)) is not None
        }
        self.kinds = ALLOCATES

    def on_event(self, i: int, event: EventRecord, job: JobHistory | None) -> None:
        shape = self._shapes.get(event.job_id)
        if shape is not None and not shape.holds(event.placement):
            problem = f"{event.event} of job {event.job_id} at {event.placement}"
            self.report_at(i, event, f"{problem}: it asks for {shape}")


class PartitionsKept(Rule):
    """A job without partition is in the default one, and a node of no partition of a job is not for it."""

    name = "partitions"
    text = "a job gets GPUs of the nodes of its partitions alone"

    def __init__(self, history: ClusterHistory, trace: Trace, site: Mapping[str, Any]):
        super().__init__(history)
        rules = site_of(site)
        numbers = node_numbers(rules)
        self._nodes = {
            name: frozenset(numbers[node] for node in partition.nodes if node in numbers)
            for name, partition in rules.partitions.items()
        }
        stated_default = [name for name, partition in rules.partitions.items() if partition.Default]
        self._default = (stated_default or list(rules.partitions))[0]
        self._partitions = {
            job.job_id: names for job in trace.jobs if (names := job.partitions or job.partition) is not None
        }
        self.kinds = ALLOCATES

    def on_event(self, i: int, event: EventRecord, job: JobHistory | None) -> None:
        names = self._partitions.get(event.job_id, self._default).split("|")
        nodes = frozenset[int]().union(*(self._nodes.get(name, ()) for name in names))
        foreign = [node for node, _ in event.placement if node not in nodes]
        if foreign:
            problem = f"{event.event} of job {event.job_id} at {event.placement}"
            self.report_at(i, event, f"{problem}: node {foreign[0]} is not of partition {', '.join(names)}")
