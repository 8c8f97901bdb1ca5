"""The rules about nodes and shared storage that a log alone can prove, and the list of all such rules."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

from clustersim.audit.evidence import RESOLUTION_S, Finding, agrees, slack_s
from clustersim.audit.history import ClusterHistory, JobHistory, Rule
from clustersim.failures import Failures
from clustersim.overheads import SharedStorage
from clustersim.records import (
    ALLOCATES,
    FAIL,
    GIVEN_UP,
    INTERRUPT,
    LOADED,
    NODE_DOWN,
    NODE_EVENTS,
    NODE_UP,
    RATE,
    REPLAN,
    STATED_ENDS,
    SUBMIT,
    EventRecord,
)
from itertime.io import shown

from .jobs import JOB_RULES

__all__ = ["RULES"]


class NodesInService(Rule):
    """A node alternates between service and outage, and after every instant no job holds GPUs of a node that
    is out. An interrupted job was on a node that went out at the same instant. A job fails for a reason that
    the settings allow, or immediately after one failure too many.
    """

    name = "service"
    text = "nodes go out of service and come back in turns; no job holds GPUs of one that is out"

    def __init__(self, history: ClusterHistory):
        super().__init__(history)
        self._down: dict[int, EventRecord] = {}  # by node, the event that took it out of service
        failures = self.evidence.failures
        kills = any(reservation.others == "kill" for reservation in self.evidence.reservations)
        self._retries = -1 if failures is None else failures.retries
        if failures is None and (self.evidence.reclaims or kills):
            self._retries = Failures.retries
        self.kinds = (*NODE_EVENTS, INTERRUPT, FAIL, *(() if self._retries < 0 else ALLOCATES))
        self._jobs_fail = failures is not None and (
            failures.end_as_logged or failures.job_failed_share > 0 or failures.job_cancelled_share > 0
        )

    def on_event(self, i: int, event: EventRecord, job: JobHistory | None) -> None:
        kind = event.event
        if job is None:
            self._change_service(i, event)
        elif kind in ALLOCATES:
            failures = job.counts.get(INTERRUPT, 0)
            if failures > self._retries >= 0:
                text = f"{kind} of job {event.job_id}, which {failures} failures have stopped"
                self.report_at(i, event, text)
        elif kind == INTERRUPT or not event.detail.startswith(STATED_ENDS):
            self._check_end(i, event, job)

    def _check_end(self, i: int, event: EventRecord, job: JobHistory) -> None:
        job_id, failures = event.job_id, job.counts.get(INTERRUPT, 0)
        if self._retries < 0:
            self.report_at(i, event, f"{event.event} of job {job_id} in a run without failures")
        elif event.event == FAIL:
            given_up = event.detail.startswith(GIVEN_UP) or not self._jobs_fail
            if given_up != (failures > self._retries):
                problem = "is given up" if given_up else f"fails ({shown(event.detail)})"
                self.report_at(
                    i, event, f"job {job_id} {problem} after {failures} failures of {self._retries}"
                )
        if event.event == INTERRUPT:
            held = job.allocation
            nodes = () if held is None or held.time_s == event.time_s else held.placement
            down = any(node in self._down and self._down[node].time_s == event.time_s for node, _ in nodes)
            if not down and not self._is_killed(event, [node for node, _ in nodes]):
                self.report_at(i, event, f"job {job_id} is interrupted, but none of its nodes has failed")

    def _is_killed(self, event: EventRecord, nodes: Sequence[int]) -> bool:
        """Whether a reservation of one of the nodes begins now, and stops other jobs at once."""
        slack = slack_s(event.time_s, 3 * self.evidence.resolution_s)
        return any(
            reservation.others == "kill"
            and abs(reservation.start_s - event.time_s) <= slack
            and not reservation.nodes.isdisjoint(nodes)
            for reservation in self.evidence.reservations
        )

    def _change_service(self, i: int, event: EventRecord) -> None:
        cluster, down = self.evidence.cluster, self._down
        for node, count in event.placement:
            if not 0 <= node < cluster.nodes or count != cluster.size_of(node):
                text = f"{event.event} of {count} GPUs on node {node}, which has another number of GPUs"
                self.report_at(i, event, text)
            elif (event.event == NODE_UP) != (node in down):
                text = f"{event.event} of node {node}, which is {'down' if node in down else 'up'}"
                self.report_at(i, event, text)
            if event.event == NODE_DOWN:
                down[node] = event
            else:
                down.pop(node, None)

    def on_instant(self, first_index: int, batch: Sequence[EventRecord]) -> None:
        """No job gets GPUs of a node out of service, or keeps GPUs of a node that goes out."""
        for i, event in enumerate(batch, first_index) if self._down else ():
            if event.event == NODE_DOWN:
                in_use = self.history.in_use
                nodes = {node for node, _ in event.placement if node in self._down and in_use.get(node, 0)}
                for node in sorted(nodes):
                    jobs = ", ".join(self.history.holders(node))
                    text = f"jobs {jobs} keep GPUs of node {node}, which is out of service"
                    self.report_at(i, event, text)
            elif event.event in ALLOCATES and self._is_in_force(event):
                nodes = {node for node, _ in event.placement if node in self._down}
                if nodes:
                    text = (
                        f"{event.event} of job {event.job_id} on node {min(nodes)}, which is out of service"
                    )
                    self.report_at(i, event, text)

    def _is_in_force(self, event: EventRecord) -> bool:
        """Whether the job still holds the GPUs that the event gave it."""
        job = self.history.jobs.get(event.job_id)
        return job is not None and job.allocation is event


class LoadsShareStorage(Rule):
    """Computes the shares of the storage again. A load begins when its job has paid the other overheads; it
    ends when the log says so, or when the job loses its GPUs.
    """

    name = "loads"
    text = "jobs that load at the same time share the storage, and load once"

    def __init__(self, history: ClusterHistory):
        super().__init__(history)
        self.kinds = None if self.evidence.overheads.storage_shared else ()
        self._storage = SharedStorage[str](self.evidence.overheads.storage_bytes_per_s)
        self._allocations: dict[
            str, tuple[int, EventRecord, float]
        ] = {}  # of jobs that load, with the bytes to load
        self._to_begin: list[tuple[float, int, str]] = []
        self._began: dict[str, float] = {}
        self._loaded = self._unknown = 0

    def on_event(self, i: int, event: EventRecord, job: JobHistory | None) -> None:
        if job is None:
            return
        if event.event == LOADED and not job.counts.get(LOADED):
            self._loaded += 1
            self._unknown += job.facts.parameters is None
        if self._unknown:
            return  # a load of unknown size leaves the others an unknown share of the storage
        self._begin_until(i, event)
        job_id = event.job_id
        if event.event == LOADED:
            self._check_loaded(i, event)
        if event.event not in (RATE, REPLAN, SUBMIT):
            if job_id in self._storage:
                self._storage.end(job_id, event.time_s)
            self._allocations.pop(job_id, None)
            self._began.pop(job_id, None)
        if job.terms.loads:
            overheads = self.evidence.overheads
            size = overheads.scale * overheads.checkpoint_bytes(job.facts.parameters or 0.0)
            self._allocations[job_id] = i, event, size
            heappush(self._to_begin, (event.time_s + event.overhead_s, i, job_id))

    def _begin_until(self, i: int, event: EventRecord) -> None:
        while self._to_begin and self._to_begin[0][0] <= event.time_s:
            begin_s, number, job_id = heappop(self._to_begin)
            self._report_overdue(begin_s, i, event)
            allocation = self._allocations.get(job_id)
            if allocation is not None and allocation[0] == number:
                _, allocation_event, size = allocation
                limit = self.evidence.overheads.load_limit(len(allocation_event.placement))
                self._storage.begin(job_id, size, limit, begin_s)
                self._began[job_id] = begin_s
        self._report_overdue(event.time_s, i, event)

    def _slack_s(self, now: float) -> float:
        return slack_s(now, RESOLUTION_S + 100 * self.evidence.resolution_s)  # errors of earlier loads add up

    def _report_overdue(self, now: float, i: int, event: EventRecord) -> None:
        """Report loads that end before `now` without a `loaded` event in the log."""
        storage = self._storage
        while (next_end := storage.next_end()) is not None and next_end[0] < now - self._slack_s(now):
            end_s, job_id = next_end
            text = f"job {job_id} had loaded at t={end_s:g}, but the log has no such event"
            self.report_at(i, event, text)
            storage.end(job_id, end_s)
            del self._began[job_id]

    def _check_loaded(self, i: int, event: EventRecord) -> None:
        job_id, most_s = event.job_id, self._slack_s(event.time_s)
        if job_id not in self._storage:
            self.report_at(i, event, f"job {job_id} has loaded, but never began to load")
            return
        left_s = self._storage.remaining_s(job_id, event.time_s)
        if left_s > most_s:
            text = f"job {job_id} has loaded {left_s:g} s too early for its share of the storage"
            self.report_at(i, event, text)
        took_s = event.time_s - self._began[job_id]
        if not agrees(event.overhead_s, took_s, most_s):
            self.report_at(i, event, f"job {job_id} paid {event.overhead_s:g} s for a load of {took_s:g} s")

    def unproved(self) -> str:
        if not self._unknown:
            return ""
        unknown, loaded = self._unknown, self._loaded
        return f"the size of the checkpoint is not known for {unknown:,} of the {loaded:,} jobs that load"

    def finding(self) -> Finding:
        if self._unknown:  # the violations may be wrong, see `on_event`
            return Finding(self.name, self.text, (), self.unproved())
        return super().finding()


RULES: tuple[type[Rule], ...] = (*JOB_RULES, NodesInService, LoadsShareStorage)
"""Every rule that an event log alone can prove or refute, in order."""
