"""What a run records: the vocabulary of the log, its records, and the recorder that keeps them.

| the result of a run | |
|---|---|
| `Run` | settings and all records of one policy on one trace |
| `Recorded` | protocol: such a result, in memory or in a folder |
| `COMPLETE`, `STOPPED`, `INTERRUPTED` | how a run ended: by itself, by an error of its policy, by its user |

| its records | |
|---|---|
| `JobRecord`, `JOB_COLUMNS` | the history of one job in numbers; the names of the fields |
| `EventRecord` | one line of the event log |
| `Snapshot` | the use of the cluster from one decision to the next: GPUs and numbers of jobs |
| `PlanRecord`, `PARTS` | an iteration's time under one training plan, in parts; what each part sums |
| `PlanKey`, `plan_key` | what identifies a plan within a run: model, batch, GPUs, plan |
| `phase_words`, `phase_of`, `batch_of`, `layers_of` | phase, global batch and layers that an allocation \
states |
| `plan_of_label`, `plan_words` | the plan of a label; a label for readers |
| `spread_words` | between which times the iterations of one job lie, for readers |
| `Exact` | type of a number that tables write with every digit |
| `Gpus` | type of a number of GPUs of which jobs may hold parts |

| events of the log | |
|---|---|
| `SUBMIT`, `REJECT`, `FINISH`, `FAIL` | a job enters the system, is not admitted, ends, fails |
| `START`, `RESTART`, `RESIZE`, `MIGRATE` | a job gets GPUs |
| `REPLAN` | a job goes on on its GPUs with another plan and speed |
| `PREEMPT`, `INTERRUPT` | a job loses its GPUs: to the policy or a planned change, to a failure |
| `HOLD`, `ELIGIBLE` | a job is not to be run for now; it may be run from now on |
| `REQUEUE` | a job loses its GPUs and all of its work, and begins anew |
| `LOADED`, `RATE` | a job has loaded its checkpoint from shared storage; has another speed |
| `NODE_DOWN`, `NODE_UP` | a node goes out of service, comes back |
| `NOTE` | the policy says something about a job (`Proposal.note`) |
| `ALLOCATES`, `RELEASES` | the events that give GPUs to a job; that take all of them |
| `WAITS_AFTER`, `ENDS` | the events after which a job waits; with which it leaves the system |
| `NODE_EVENTS` | the events of nodes |

| states and reasons of jobs | |
|---|---|
| `FINISHED`, `REJECTED`, `UNFINISHED`, `FAILED` | a job's state when the run has ended; `STATES` has all |
| `SERVED` | the event and the state of an instance of a service whose time is over |
| `DECLINED`, `GIVEN_UP` | how a reason begins: the policy rejected the job; failures stopped it too often |
| `CANCELLED`, `NEVER_ELIGIBLE` | likewise: of a job that was cancelled; whose dependencies never came true |
| `OVER_LIMIT`, `STATED_ENDS` | likewise: of a job that ran for as long as it may; these three |

| recording | |
|---|---|
| `Recorder` | what the engine reports during a run |
| `InUse` | protocol: what it reads of the free GPUs of a cluster |
| `MemoryRecorder` | a recorder that keeps the records in lists |
| `Columns` | the numeric fields of records in arrays, 8 bytes a value |
| `Fields`, `by_field`, `all_equal` | the values of several records by field; whether values are equal |
| `as_row` | makes a named tuple from its values, fast |

Why
- Records are buffered and turned into text 1,000 at a time, column by column. Most columns of a block are
  constant, and the rest takes one loop each. There is no second way to write a row.
- A run makes millions of named tuples. `tuple.__new__` makes them in half the time of their constructor.
"""

from .columns import Columns, Fields, all_equal, by_field
from .plans import (
    PARTS,
    PlanKey,
    PlanRecord,
    batch_of,
    layers_of,
    phase_of,
    phase_words,
    plan_key,
    plan_of_label,
    plan_words,
    spread_words,
)
from .recorder import InUse, MemoryRecorder, Recorder
from .records import (
    ALLOCATES,
    CANCELLED,
    DECLINED,
    ELIGIBLE,
    ENDS,
    FAIL,
    FAILED,
    FINISH,
    FINISHED,
    GIVEN_UP,
    HOLD,
    INTERRUPT,
    JOB_COLUMNS,
    LOADED,
    MIGRATE,
    NEVER_ELIGIBLE,
    NODE_DOWN,
    NODE_EVENTS,
    NODE_UP,
    NOTE,
    OVER_LIMIT,
    PREEMPT,
    RATE,
    REJECT,
    REJECTED,
    RELEASES,
    REPLAN,
    REQUEUE,
    RESIZE,
    RESTART,
    SERVED,
    START,
    STATED_ENDS,
    STATES,
    SUBMIT,
    UNFINISHED,
    WAITS_AFTER,
    EventRecord,
    Exact,
    Gpus,
    JobRecord,
    Snapshot,
    as_row,
)
from .run import COMPLETE, INTERRUPTED, STOPPED, Recorded, Run

__all__ = [
    "ALLOCATES",
    "CANCELLED",
    "COMPLETE",
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
    "INTERRUPTED",
    "JOB_COLUMNS",
    "LOADED",
    "MIGRATE",
    "NEVER_ELIGIBLE",
    "NODE_DOWN",
    "NODE_EVENTS",
    "NODE_UP",
    "NOTE",
    "OVER_LIMIT",
    "PARTS",
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
    "STOPPED",
    "SUBMIT",
    "UNFINISHED",
    "WAITS_AFTER",
    "Columns",
    "EventRecord",
    "Exact",
    "Fields",
    "Gpus",
    "InUse",
    "JobRecord",
    "MemoryRecorder",
    "PlanKey",
    "PlanRecord",
    "Recorded",
    "Recorder",
    "Run",
    "Snapshot",
    "all_equal",
    "as_row",
    "batch_of",
    "by_field",
    "layers_of",
    "phase_of",
    "phase_words",
    "plan_key",
    "plan_of_label",
    "plan_words",
    "spread_words",
]
