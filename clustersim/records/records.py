"""The vocabulary of the log, and the records of a run: one per job, one per event, and the use of the cluster
over time. Metrics and reports are computed from records alone.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import NamedTuple, NewType

from clustersim.cluster import Placement

__all__ = [
    "ALLOCATES",
    "CANCELLED",
    "DECLINED",
    "ELIGIBLE",
    "ENDS",
    "FAIL",
    "FAILED",
    "FINISH",
    "FINISHED",
    "GIVEN_UP",
    "HOLD",
    "INTERRUPT",
    "JOB_COLUMNS",
    "LOADED",
    "MIGRATE",
    "NEVER_ELIGIBLE",
    "NODE_DOWN",
    "NODE_EVENTS",
    "NODE_UP",
    "NOTE",
    "OVER_LIMIT",
    "PREEMPT",
    "RATE",
    "REJECT",
    "REJECTED",
    "RELEASES",
    "REPLAN",
    "REQUEUE",
    "RESIZE",
    "RESTART",
    "SERVED",
    "START",
    "STATED_ENDS",
    "STATES",
    "SUBMIT",
    "UNFINISHED",
    "WAITS_AFTER",
    "EventRecord",
    "Exact",
    "Gpus",
    "JobRecord",
    "Snapshot",
    "as_row",
]

# The vocabulary of the log: events, then states of jobs, then beginnings of their reasons

SUBMIT, REJECT, FINISH, FAIL = "submit", "reject", "finish", "fail"
START, RESTART, RESIZE, MIGRATE = "start", "restart", "resize", "migrate"
REPLAN = "replan"
LOADED, RATE, PREEMPT, INTERRUPT = "loaded", "rate", "preempt", "interrupt"
SERVED = "served"
HOLD, ELIGIBLE, REQUEUE = "hold", "eligible", "requeue"
NODE_DOWN, NODE_UP = "node_down", "node_up"
NOTE = "note"

ALLOCATES = (START, RESTART, RESIZE, MIGRATE, REPLAN)
"""The events that give GPUs to a job, instead of those that it held before; a replan gives it the same."""

RELEASES = (PREEMPT, INTERRUPT, REQUEUE, FINISH, FAIL, SERVED)
"""The events that take all GPUs from a job. Any other event leaves its GPUs as they are."""

WAITS_AFTER = (SUBMIT, PREEMPT, INTERRUPT, REQUEUE, ELIGIBLE)
"""The events after which a job waits for GPUs, if no `HOLD` follows: it is then held until `ELIGIBLE`."""

ENDS = (FINISH, REJECT, FAIL, SERVED)
"""The events with which a job leaves the system."""

NODE_EVENTS = (NODE_DOWN, NODE_UP)
"""The events of a node; they have no job."""

FINISHED, REJECTED, UNFINISHED, FAILED = "finished", "rejected", "unfinished", "failed"
STATES = (FINISHED, REJECTED, UNFINISHED, FAILED)
"""The states of a job when the run has ended; an instance of a service whose time is over is `SERVED`."""

DECLINED = "declined by the policy"
"""The reason of a job that the policy declines to admit; "; " and a note may follow."""

GIVEN_UP = "given up"
"""The beginning of the reason of a job that is given up, because failures stopped it too often."""

CANCELLED, NEVER_ELIGIBLE, OVER_LIMIT = "cancelled by", "never eligible", "stopped at its time limit"
STATED_ENDS = (CANCELLED, NEVER_ELIGIBLE, OVER_LIMIT)
"""The beginnings of the reasons of jobs that fail as their trace or the policy says, without any failure."""


# Records

as_row = tuple.__new__
"""`as_row(kind, values)` makes a named tuple of the class `kind`. Calling the class takes twice as long."""

Exact = NewType("Exact", float)
"""A number that tables write with every digit; times are rounded to a microsecond."""

Gpus = NewType("Gpus", float)
"""A number of GPUs: whole, or in millionths where jobs share GPUs."""


@dataclass(slots=True)  # not frozen: that triples the time it takes to make one
class JobRecord:
    """The history of one job in numbers. Times are seconds on the trace's clock; None if it never happened.

    `queue_s` is the wait until the first start, `wait_s` all time without GPUs, `lost_s` time with GPUs but
    without progress (overheads), `overhead_gpu_s` the same in GPU-seconds, `isolated_s` the run time on the
    requested GPUs without wait or overhead, `gpus` the effective request. `global_batch`, `seq_len`,
    `framework`, `precision` and `plan_options` are as submitted, the last three empty where the job states
    none.
    `reason`: why the job did not finish, how it ran otherwise than it asked, and what its policy noted last.
    `interruptions`: how often a failure took the job's GPUs; `lost_work_s`, `lost_work_gpu_s`: seconds and
    GPU-seconds of work lost in interruptions, which are part of `lost_s`. `cost_usd`: US dollars for the GPUs
    held, where the cluster states prices by GPU type; None elsewhere, and for a job that held none.
    `gpu_fraction`: the part that the job holds of its one GPU, None for whole GPUs. `service`: the service of
    which the job is an instance, empty if of none; `finish_s` is then when its time was over. `phases`: as
    submitted (`traces.phases`), empty if the job states none. `cpus_per_gpu`, `host_gb_per_gpu`: cores
    and GB of host memory that the job needs for each GPU on which it runs, None if it states none.
    `eligible_s`: when a job that was held became eligible for the first time; None if it was at its
    submission, or never did. `queue_s` counts from there, and `wait_s` leaves out `held_s`, the seconds in
    which it was held. `requeues`: how often it lost its GPUs and all of its work, which `lost_work_s` and
    `lost_work_gpu_s` include. Both are None if it never was, and never did.
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
    framework: str = ""
    precision: str = ""
    cost_usd: float | None = None
    plan_options: str = ""
    gpu_fraction: float | None = None
    service: str = ""
    phases: str = ""
    cpus_per_gpu: float | None = None
    host_gb_per_gpu: float | None = None
    eligible_s: float | None = None
    held_s: float | None = None
    requeues: int | None = None


JOB_COLUMNS = tuple(f.name for f in fields(JobRecord))


class EventRecord(NamedTuple):
    """One line of the event log: submit, hold, eligible, reject, start, restart, resize, migrate, replan,
    loaded, rate, preempt, interrupt, requeue, note, fail, finish or served of a job; node_down or node_up,
    without a job, of the node in `placement`.

    `overhead_s`: with new GPUs, the seconds before the job makes progress; of `loaded`, the duration of the
    load that has ended; of `interrupt` and `requeue`, the seconds of work that are lost.

    `unit_s`: seconds per unit of work (an iteration, or a second of logged duration) after the event, once
    `overhead_s` has passed; a `rate` event changes nothing else. A `submit` states the mean speed of all work
    on the requested GPUs, 0 if no GPUs can run the job.

    A `replan` states the GPUs that the job holds already: it goes on there with another plan and speed,
    because a phase of it ends.

    `detail`: the phase, of an allocation of a job in phases (`phase_words`); why, of a hold, reject, preempt,
    interrupt, requeue or fail; the text of a note. A note changes nothing.
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

    `stranded`: free GPUs on nodes that also run something; `down`: GPUs of nodes out of service. Of a GPU
    that jobs share, the part that they hold is allocated and the rest stranded.
    """

    time_s: float
    allocated: Gpus
    stranded: Gpus
    running: int
    pending: int
    down: int = 0
