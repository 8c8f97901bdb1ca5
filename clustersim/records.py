"""What happened in a run: one record per job, the event log, and the use of the cluster over time. Metrics
and reports read these alone.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, NamedTuple, NewType

from traces.job import Job

from .capacity import Capacity
from .cluster import Cluster, Placement

if TYPE_CHECKING:
    from .active import ActiveJob

__all__ = [
    "ALLOCATES", "DECLINED", "ENDS", "FAIL", "FAILED", "FINISH", "FINISHED", "GIVEN_UP", "INTERRUPT",
    "JOB_COLUMNS", "LOADED", "MIGRATE", "NODE_DOWN", "NODE_EVENTS", "NODE_UP", "PREEMPT", "RATE", "REJECT",
    "REJECTED", "RELEASES", "RESIZE", "RESTART", "START", "STATES", "SUBMIT", "UNFINISHED", "WAITS_AFTER",
    "EventRecord", "Exact", "JobRecord", "Recorder", "Snapshot", "as_row",
]  # fmt: skip

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

    @classmethod
    def of(cls, active: ActiveJob, state: str, reason: str = "") -> JobRecord:
        """The record of a job that leaves the system, or is in it when the run ends."""
        job, start, finish = active.job, active.start_s, active.finish_s
        submit, note = job.submit_s, active.note
        return cls(
            job.job_id, job.tenant, job.model or "", state, submit, start, finish,
            None if finish is None else finish - submit,
            None if start is None else start - submit,
            active.wait_s, active.requested, active.gpu_seconds, active.overhead_gpu_s,
            active.work * active.curve.unit_s[active.requested],
            job.deadline_s, None if job.deadline_s is None else _met(job, finish),
            active.preemptions, active.resizes, active.restarts, active.migrations, active.lost_s,
            f"{reason}; {note}" if reason and note else reason or note, job.global_batch, job.seq_len,
            active.interruptions, active.lost_work_s, active.lost_work_gpu_s,
        )  # fmt: skip

    @classmethod
    def rejected(cls, job: Job, reason: str) -> JobRecord:
        """A job that can never run here."""
        return cls._untouched(job, "rejected", reason)

    @classmethod
    def not_submitted(cls, job: Job) -> JobRecord:
        """A job whose submission lies after the end of the run."""
        return cls._untouched(job, "unfinished", "the run ended before its submission")

    @classmethod
    def _untouched(cls, job: Job, state: str, reason: str) -> JobRecord:
        return cls(
            job.job_id, job.tenant, job.model or "", state, job.submit_s, None, None, None, None, 0.0,
            job.gpus, 0.0, 0.0, None, job.deadline_s, _met(job, None), 0, 0, 0, 0, 0.0, reason,
            job.global_batch, job.seq_len,
        )  # fmt: skip


def _met(job: Job, finish_s: float | None) -> bool | None:
    if job.deadline_s is None:
        return None
    return finish_s is not None and finish_s <= job.deadline_s


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


# The vocabulary of the log

SUBMIT, REJECT, FINISH, FAIL = "submit", "reject", "finish", "fail"
START, RESTART, RESIZE, MIGRATE = "start", "restart", "resize", "migrate"
LOADED, RATE, PREEMPT, INTERRUPT = "loaded", "rate", "preempt", "interrupt"
NODE_DOWN, NODE_UP = "node_down", "node_up"

ALLOCATES = (START, RESTART, RESIZE, MIGRATE)
"""The events that give GPUs to a job, instead of those that it held before."""

RELEASES = (PREEMPT, INTERRUPT, FINISH, FAIL)
"""The events that take all GPUs from a job. Any other event leaves its GPUs as they are."""

WAITS_AFTER = (SUBMIT, PREEMPT, INTERRUPT)
"""The events after which a job waits for GPUs."""

ENDS = (FINISH, REJECT, FAIL)
"""The events with which a job leaves the system."""

NODE_EVENTS = (NODE_DOWN, NODE_UP)
"""The events of a node; they have no job."""

FINISHED, REJECTED, UNFINISHED, FAILED = "finished", "rejected", "unfinished", "failed"
STATES = (FINISHED, REJECTED, UNFINISHED, FAILED)
"""The states of a job when the run has ended."""

DECLINED = "declined by the policy"
"""The reason of a job that the policy rejects, perhaps followed by "; " and a note."""

GIVEN_UP = "given up"
"""How the reason of a job begins that failed because failures stopped it too often."""
