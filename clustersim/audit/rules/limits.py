"""The rules about what jobs may hold of nodes: no GPUs that are reserved for others, and no more cores and
memory than a node has.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from clustersim.audit.evidence import slack_s
from clustersim.audit.history import ClusterHistory, JobHistory, Rule
from clustersim.cluster import MILLION, HostDemand, HostResources, Placement
from clustersim.failures import Reservation
from clustersim.records import ALLOCATES, RELEASES, EventRecord, JobRecord

__all__ = ["HostNotExceeded", "ReservationsKept"]


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
