"""The recorder of a run: the engine reports to it, and it keeps the records in memory or in a folder."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Protocol

import numpy as np

from clustersim.cluster import Cluster, Placement
from traces.job import Job

from .columns import Columns
from .plans import PlanKey, PlanRecord, plan_key
from .records import FINISHED, EventRecord, JobRecord, Snapshot, as_row
from .run import Run

__all__ = ["InUse", "MemoryRecorder", "Recorder"]


class InUse(Protocol):
    """What a recorder reads of the free GPUs of a cluster (`Capacity.in_use`)."""

    def in_use(self, in_service: int) -> tuple[float, float]: ...


class Recorder(ABC):
    """What the engine reports, in the order in which things happen, and what remains at the end of the run.

    `MemoryRecorder` keeps records in lists, `RunWriter` writes them to a folder. `plans` has a job for each
    training plan in use. The engine sets `end_s`, `oracle_used` if the policy has looked at what no real
    scheduler could know, `idle_stops`, how often jobs lost GPUs that no job got, `joins`, how often they got
    GPUs that another one held, and `predictions`, the errors of predicted run times, where there are any.

    `keep_event`, `keep_snapshot`: what a kind of recorder does with a line of the event log and a snapshot.
    """

    def __init__(
        self,
        cluster: Cluster,
        keep_event: Callable[[EventRecord], object],
        keep_snapshot: Callable[[Snapshot], object],
    ):
        self.cluster = cluster
        self.plans: dict[PlanKey, Job] = {}
        self.end_s = 0.0
        self.oracle_used = False
        self.idle_stops = self.joins = 0
        self.predictions: dict[str, Any] | None = None
        self._keep_event, self._keep_snapshot = keep_event, keep_snapshot
        self._last_use: tuple[float, ...] = ()

    def event(
        self, time_s: float, event: str, job_id: str, gpus: int = 0, placement: Placement = (),
        plan: str = "", overhead_s: float = 0.0, detail: str = "", unit_s: float = 0.0,
    ) -> EventRecord:  # fmt: skip
        """Record a line of the event log, and return it."""
        record = as_row(
            EventRecord, (time_s, event, job_id, gpus, placement, plan, overhead_s, detail, unit_s)
        )
        self._keep_event(record)
        return record

    def plan(self, job: Job, allocation: EventRecord) -> None:
        """Note that a job runs a training plan on the GPUs that the event `allocation` allocates."""
        self.plans.setdefault(plan_key(job, allocation, self.cluster), job)

    def request(self, job_id: str, gpus: int) -> None:  # noqa: B027 (most recorders have no readers)
        """Note the GPUs that a submitted job asks for, for readers of a run in progress."""

    def snapshot(self, time_s: float, capacity: InUse, running: int, pending: int, down: int = 0) -> None:
        """Record the use of the cluster after a decision, if it has changed."""
        use = (*capacity.in_use(self.cluster.gpus - down), running, pending, down)
        if use != self._last_use:
            self._last_use = use
            self._keep_snapshot(as_row(Snapshot, (time_s, *use)))

    @abstractmethod
    def keep_job(self, record: JobRecord, order: int) -> None:
        """Keep the record of a job; `order` is its position in the order of submission."""

    @property
    @abstractmethod
    def event_count(self) -> int:
        """Lines of the event log so far."""

    @property
    @abstractmethod
    def job_table(self) -> Sequence[JobRecord] | Columns:
        """What metrics need of all jobs recorded so far."""

    @property
    @abstractmethod
    def finished(self) -> np.ndarray:
        """For each job in the order of submission, whether it finished; after every job was recorded."""

    @property
    @abstractmethod
    def usage_table(self) -> Sequence[Snapshot] | Columns:
        """The snapshots so far."""

    @abstractmethod
    def finish(
        self, policy: str, planner: str, summary: dict[str, Any], manifest: Mapping[str, Any],
        plans: list[PlanRecord],
    ) -> Run:  # fmt: skip
        """The run with its records; nothing can be recorded afterwards."""


class MemoryRecorder(Recorder):
    """Keeps the records of a run in lists, in the order in which things happened."""

    def __init__(self, cluster: Cluster):
        self.jobs: list[JobRecord] = []
        self.events: list[EventRecord] = []
        self.snapshots: list[Snapshot] = []
        self._orders: list[int] = []
        super().__init__(cluster, self.events.append, self.snapshots.append)

    def keep_job(self, record: JobRecord, order: int) -> None:
        self.jobs.append(record)
        self._orders.append(order)

    @property
    def event_count(self) -> int:
        return len(self.events)

    @property
    def job_table(self) -> list[JobRecord]:
        return self.jobs_by_submission()

    @property
    def finished(self) -> np.ndarray:
        states = map(attrgetter("state"), self.jobs_by_submission())
        return np.fromiter(map(FINISHED.__eq__, states), bool, len(self.jobs))

    @property
    def usage_table(self) -> list[Snapshot]:
        return self.snapshots

    def jobs_by_submission(self) -> list[JobRecord]:
        """The job records in the order of submission."""
        positions = sorted(range(len(self.jobs)), key=self._orders.__getitem__)
        return list(map(self.jobs.__getitem__, positions))

    def finish(
        self, policy: str, planner: str, summary: dict[str, Any], manifest: Mapping[str, Any],
        plans: list[PlanRecord],
    ) -> Run:  # fmt: skip
        return Run(
            policy=policy,
            planner=planner,
            cluster=self.cluster,
            jobs=self.jobs_by_submission(),
            events=self.events,
            snapshots=self.snapshots,
            summary=summary,
            manifest=dict(manifest),
            plans=plans,
        )
