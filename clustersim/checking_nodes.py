"""What an event log proves of nodes and of the storage, and all rules together."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from math import isclose

from traces.files import shown

from .checking import Finding, Life, Log, Rule
from .checking_jobs import JOB_RULES
from .records import (
    ALLOCATES,
    FAIL,
    GIVEN_UP,
    INTERRUPT,
    LOADED,
    NODE_DOWN,
    NODE_EVENTS,
    NODE_UP,
    RATE,
    SUBMIT,
    EventRecord,
)
from .storage import Storage

__all__ = ["RULES"]


class Service(Rule):
    """Nodes go and come in turns; after every instant no job holds GPUs of a node that is out; who is
    interrupted was on a node that went out at this instant. A job fails by a fate that the settings allow, or
    at once after one failure too many.
    """

    name = "service"
    text = "nodes go out of service and come back in turns; no job holds GPUs of one that is out"

    def __init__(self, log: Log):
        super().__init__(log)
        self._down: dict[int, EventRecord] = {}
        failures = self.evidence.failures
        self._retries = -1 if failures is None else failures.retries
        self.sees = (*NODE_EVENTS, INTERRUPT, FAIL, *(() if failures is None else ALLOCATES))
        self._fates = failures is not None and (
            failures.end_as_logged or failures.job_failed_share > 0 or failures.job_cancelled_share > 0
        )

    def event(self, i: int, event: EventRecord, life: Life | None) -> None:
        kind = event.event
        if life is None:
            self._turn(i, event)
        elif kind in ALLOCATES:
            failures = life.counts.get(INTERRUPT, 0)
            if failures > self._retries >= 0:
                text = f"{kind} of job {event.job_id}, which {failures} failures have stopped"
                self.at(i, event, text)
        elif kind in (INTERRUPT, FAIL):
            self._check_end(i, event, life)

    def _check_end(self, i: int, event: EventRecord, life: Life) -> None:
        job_id, failures = event.job_id, life.counts.get(INTERRUPT, 0)
        if self._retries < 0:
            self.at(i, event, f"{event.event} of job {job_id} in a run in which nothing fails")
        elif event.event == FAIL:
            given_up = event.detail.startswith(GIVEN_UP) or not self._fates
            if given_up != (failures > self._retries):
                what = "is given up" if given_up else f"fails ({shown(event.detail)})"
                self.at(i, event, f"job {job_id} {what} after {failures} failures of {self._retries}")
        if event.event == INTERRUPT:
            given = life.given
            nodes = () if given is None or given.time_s == event.time_s else given.placement
            if not any(node in self._down and self._down[node].time_s == event.time_s for node, _ in nodes):
                self.at(i, event, f"job {job_id} is interrupted, and no node of it has failed")

    def _turn(self, i: int, event: EventRecord) -> None:
        cluster, down = self.evidence.cluster, self._down
        for node, count in event.placement:
            if not 0 <= node < cluster.nodes or count != cluster.size_of(node):
                text = f"{event.event} of {count} GPUs on node {node}, which has not so many"
                self.at(i, event, text)
            elif (event.event == NODE_UP) != (node in down):
                text = f"{event.event} of node {node}, which is {'down' if node in down else 'up'}"
                self.at(i, event, text)
            if event.event == NODE_DOWN:
                down[node] = event
            else:
                down.pop(node, None)

    def instant(self, first: int, batch: Sequence[EventRecord]) -> None:
        """Nobody was given GPUs that are out, or kept those that went out."""
        for i, event in enumerate(batch, first) if self._down else ():
            if event.event == NODE_DOWN:
                used = self.log.used
                nodes = {node for node, _ in event.placement if node in self._down and used.get(node, 0)}
                for node in sorted(nodes):
                    jobs = ", ".join(self.log.holders(node))
                    text = f"jobs {jobs} keep GPUs of node {node}, which is out of service"
                    self.at(i, event, text)
            elif event.event in ALLOCATES and self._holds(event):
                nodes = {node for node, _ in event.placement if node in self._down}
                if nodes:
                    text = (
                        f"{event.event} of job {event.job_id} on node {min(nodes)}, which is out of service"
                    )
                    self.at(i, event, text)

    def _holds(self, event: EventRecord) -> bool:
        life = self.log.lives.get(event.job_id)
        return life is not None and life.given is event


class Loads(Rule):
    """Replays the shared storage: every load begins when its job has paid the rest, and ends when the log
    says so, unless its job loses its GPUs before.
    """

    name = "loads"
    text = "jobs that load at the same time share the storage, and load once"

    def __init__(self, log: Log):
        super().__init__(log)
        self.sees = None if self.evidence.overheads.storage_shared else ()
        self._storage = Storage[str](self.evidence.overheads.storage_bytes_per_s)
        self._given: dict[str, tuple[int, EventRecord, float]] = {}  # the allocation that loads, its bytes
        self._to_begin: list[tuple[float, int, str]] = []
        self._began: dict[str, float] = {}
        self._loaded = self._unknown = 0

    def event(self, i: int, event: EventRecord, life: Life | None) -> None:
        if life is None:
            return
        if event.event == LOADED and not life.counts.get(LOADED):
            self._loaded += 1
            self._unknown += life.known.parameters is None
        if self._unknown:
            return  # of the rest nothing can be said
        self._begin_until(i, event)
        job_id = event.job_id
        if event.event == LOADED:
            self._end(i, event)
        if event.event not in (RATE, SUBMIT):
            if job_id in self._storage:
                self._storage.end(job_id, event.time_s)
            self._given.pop(job_id, None)
            self._began.pop(job_id, None)
        if life.terms.loads:
            overheads = self.evidence.overheads
            size = overheads.scale * overheads.checkpoint_bytes(life.known.parameters or 0.0)
            self._given[job_id] = i, event, size
            heappush(self._to_begin, (event.time_s + event.overhead_s, i, job_id))

    def _begin_until(self, i: int, event: EventRecord) -> None:
        while self._to_begin and self._to_begin[0][0] <= event.time_s:
            begin_s, number, job_id = heappop(self._to_begin)
            self._overdue(begin_s, i, event)
            allocation = self._given.get(job_id)
            if allocation is not None and allocation[0] == number:
                _, given, size = allocation
                limit = self.evidence.overheads.load_limit(len(given.placement))
                self._storage.begin(job_id, size, limit, begin_s)
                self._began[job_id] = begin_s
        self._overdue(event.time_s, i, event)

    def _slack_s(self, now: float) -> float:
        return 1e-6 + 1e-9 * now + 100 * self.evidence.resolution_s

    def _overdue(self, now: float, i: int, event: EventRecord) -> None:
        """Loads that were done before `now`, and of which the log says nothing."""
        storage = self._storage
        while (first := storage.next_end()) is not None and first[0] < now - self._slack_s(now):
            end_s, job_id = first
            text = f"job {job_id} had loaded at t={end_s:g}, of which the log says nothing"
            self.at(i, event, text)
            storage.end(job_id, end_s)
            del self._began[job_id]

    def _end(self, i: int, event: EventRecord) -> None:
        job_id, slack_s = event.job_id, self._slack_s(event.time_s)
        if job_id not in self._storage:
            self.at(i, event, f"job {job_id} has loaded what it never began to load")
            return
        left_s = self._storage.left_s(job_id, event.time_s)
        if left_s > slack_s:
            text = f"job {job_id} has loaded {left_s:g} s too early for its share of the storage"
            self.at(i, event, text)
        took_s = event.time_s - self._began[job_id]
        if not isclose(event.overhead_s, took_s, rel_tol=1e-9, abs_tol=slack_s):
            self.at(i, event, f"job {job_id} paid {event.overhead_s:g} s for a load of {took_s:g} s")

    def unproved(self) -> str:
        if not self._unknown:
            return ""
        unknown, loaded = self._unknown, self._loaded
        return f"of {unknown:,} of the {loaded:,} jobs that load the sizes are not known here"

    def finding(self) -> Finding:
        if self._unknown:  # they took their share of the storage: nothing can be held against others
            return Finding(self.name, self.text, (), self.unproved())
        return super().finding()


RULES: tuple[type[Rule], ...] = (*JOB_RULES, Service, Loads)
"""Every rule that an event log can prove, in order."""
