"""What happened in a run: one record per job, the event log, and the use of the cluster over time. Metrics
and reports read these alone.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, fields
from typing import NamedTuple, NewType

from traces.job import Job

from .capacity import Capacity
from .cluster import Cluster, Placement

__all__ = ["JOB_COLUMNS", "EventRecord", "Exact", "JobRecord", "Recorder", "Snapshot", "as_row"]

as_row = tuple.__new__
"""A named tuple of a class, of all its values: calling the class does just that, and takes twice as long."""

Exact = NewType("Exact", float)
"""A number of which tables keep every digit, where times are rounded to a microsecond."""


@dataclass(slots=True)  # not frozen: that triples the time it takes to make one
class JobRecord:
    """One job's fate. Times are seconds on the trace's clock; None where the thing never happened.

    `queue_s` is the wait until the first start, `wait_s` all time without GPUs, `lost_s` time with GPUs but
    without progress (overheads), `overhead_gpu_s` the same in GPU-seconds, `isolated_s` the run time at the
    requested GPUs without wait or overhead, `gpus` the effective request. `global_batch` and `seq_len` are as
    submitted. `interruptions`: how often a failure took its GPUs; `lost_work_s`, `lost_work_gpu_s`: seconds
    and GPU-seconds of work that was lost by that, which `lost_s` counts too.
    """

    job_id: str
    tenant: str
    model: str
    state: str
    submit_s: float
    start_s: float | None
    finish_s: float | None
    jct_s: float | None
    queue_s: float | None
    wait_s: float
    gpus: int | None
    gpu_seconds: float
    overhead_gpu_s: float
    isolated_s: float | None
    deadline_s: float | None
    deadline_met: bool | None
    preemptions: int
    resizes: int
    restarts: int
    migrations: int
    lost_s: float
    reason: str
    global_batch: int | None = None
    seq_len: int | None = None
    interruptions: int = 0
    lost_work_s: float = 0.0
    lost_work_gpu_s: float = 0.0


JOB_COLUMNS = tuple(f.name for f in fields(JobRecord))


class EventRecord(NamedTuple):
    """One line of the event log: submit, reject, start, restart, resize, migrate, loaded, rate, preempt,
    interrupt, fail or finish of a job; node_down or node_up, without a job, of the node in `placement`.

    `overhead_s`: what the job pays: with new GPUs, before it works; when `loaded`, for the load that is now
    done; by an `interrupt`, the seconds of work that are lost.

    `unit_s`: seconds per unit of work (an iteration, or a second of logged duration) from then on, once
    `overhead_s` is paid; a `rate` event changes nothing else. A `submit` states that of the requested GPUs, 0
    if no GPUs can run the job.
    """

    time_s: float
    event: str
    job_id: str
    gpus: int
    placement: Placement
    plan: str
    overhead_s: float
    detail: str
    unit_s: Exact = Exact(0.0)


class Snapshot(NamedTuple):
    """The cluster after a decision, until the next one.

    `stranded`: free GPUs on nodes that also run something; `down`: GPUs of nodes out of service.
    """

    time_s: float
    allocated: int
    stranded: int
    running: int
    pending: int
    down: int = 0


class Recorder:
    """Collects the records of one run, in the order in which things happened.

    `keep_job`, `keep_event` and `keep_snapshot` say what becomes of them: here they stay in memory, in lists.
    """

    def __init__(self, cluster: Cluster):
        self.cluster = cluster
        self.jobs: list[JobRecord] = []
        self._orders: list[int] = []
        self.events: list[EventRecord] = []
        self.snapshots: list[Snapshot] = []
        self.plans: dict[Hashable, tuple[Job, EventRecord]] = {}  # one of each kind
        self.keep_event: Callable[[EventRecord], None] = self.events.append
        self.keep_snapshot: Callable[[Snapshot], None] = self.snapshots.append
        self._last: tuple[int, ...] = ()
        self.end_s = 0.0
        self.oracle_used = False

    def keep_job(self, record: JobRecord, order: int) -> None:
        """`order`: the position of the job in the order of submission."""
        self.jobs.append(record)
        self._orders.append(order)

    @property
    def event_count(self) -> int:
        """Lines of the event log so far."""
        return len(self.events)

    def plan(self, job: Job, given: EventRecord) -> None:
        """A job got GPUs and runs a training plan on them."""
        kind = self.cluster.type_of(given.placement[0][0]) if self.cluster.groups else ""
        key = (job.model, job.global_batch, job.seq_len, kind, given.gpus, given.plan)
        if key not in self.plans:
            self.plans[key] = (job, given)

    def event(
        self, time_s: float, event: str, job_id: str, gpus: int = 0, placement: Placement = (),
        plan: str = "", overhead_s: float = 0.0, detail: str = "", unit_s: float = 0.0,
    ) -> EventRecord:  # fmt: skip
        record = as_row(
            EventRecord, (time_s, event, job_id, gpus, placement, plan, overhead_s, detail, unit_s)
        )
        self.keep_event(record)
        return record

    def snapshot(self, time_s: float, capacity: Capacity, running: int, pending: int, down: int = 0) -> None:
        now = (self.cluster.gpus - down - capacity.free, capacity.stranded, running, pending, down)
        if now != self._last:
            self._last = now
            self.keep_snapshot(as_row(Snapshot, (time_s, *now)))

    def jobs_by_submission(self) -> list[JobRecord]:
        """The job records in the order of submission."""
        return [self.jobs[i] for i in sorted(range(len(self.jobs)), key=self._orders.__getitem__)]
