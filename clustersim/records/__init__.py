"""What a run records: the vocabulary of the log, its records, and recorders.

| name | what |
|---|---|
| `Columns` | The numeric fields of records of one kind, and text fields of few values (`coded`), in arrays |
| `Fields` | The values of several records, field by field |
| `all_equal` | Whether there are several values, all equal |
| `by_field` | The values of two or more fields |
| `PARTS` | The parts of `Prediction.breakdown` that each field of a `PlanRecord` sums |
| `PlanKey` | What identifies a plan within a run |
| `PlanRecord` | One plan on the GPUs of one kind of job |
| `plan_key` | The key of the plan that a job runs after the event `given` |
| `plan_of_label` | The plan whose `Plan.label` is `label`, with defaults for what a label leaves out |
| `plan_words` | A plan's label for readers |
| `MemoryRecorder` | Keeps the records of a run in lists, in the order in which things happened |
| `Recorder` | What the engine reports, in the order in which things happen |
| `ALLOCATES` | The events that give GPUs to a job, instead of those that it held before |
| `DECLINED` | The reason of a job that the policy rejects, perhaps followed by " |
| `ENDS` | The events with which a job leaves the system |
| `EventRecord` | One line of the event log |
| `Exact` | A number that tables write with every digit |
| `FAIL` |  |
| `FAILED` |  |
| `FINISH` |  |
| `FINISHED` |  |
| `GIVEN_UP` | How the reason of a job begins that failed because failures stopped it too often |
| `INTERRUPT` |  |
| `JOB_COLUMNS` |  |
| `JobRecord` | The history of one job in numbers |
| `LOADED` |  |
| `MIGRATE` |  |
| `NODE_DOWN` |  |
| `NODE_EVENTS` | The events of a node |
| `NODE_UP` |  |
| `PREEMPT` |  |
| `RATE` |  |
| `REJECT` |  |
| `REJECTED` |  |
| `RELEASES` | The events that take all GPUs from a job |
| `RESIZE` |  |
| `RESTART` |  |
| `START` |  |
| `STATES` | The states of a job when the run has ended |
| `SUBMIT` |  |
| `Snapshot` | The cluster after a decision, until the next one |
| `UNFINISHED` |  |
| `WAITS_AFTER` | The events after which a job waits for GPUs |
| `as_row` | `as_row(kind, values)` makes a named tuple of the class `kind` |
| `COMPLETE` |  |
| `INTERRUPTED` |  |
| `Recorded` | The records of a run |
| `Run` | One policy on one trace |
| `STOPPED` |  |

Why
- Records are buffered and turned into text 1,000 at a time, column by column. Most columns of a block are
  constant, and the rest takes one loop each. There is no second way to write a row.
- A run makes millions of named tuples. `tuple.__new__` makes them in half the time of their constructor.
"""

from .columns import Columns, Fields, all_equal, by_field
from .plans import PARTS, PlanKey, PlanRecord, plan_key, plan_of_label, plan_words
from .recorder import MemoryRecorder, Recorder
from .records import (
    ALLOCATES,
    DECLINED,
    ENDS,
    FAIL,
    FAILED,
    FINISH,
    FINISHED,
    GIVEN_UP,
    INTERRUPT,
    JOB_COLUMNS,
    LOADED,
    MIGRATE,
    NODE_DOWN,
    NODE_EVENTS,
    NODE_UP,
    PREEMPT,
    RATE,
    REJECT,
    REJECTED,
    RELEASES,
    RESIZE,
    RESTART,
    START,
    STATES,
    SUBMIT,
    UNFINISHED,
    WAITS_AFTER,
    EventRecord,
    Exact,
    JobRecord,
    Snapshot,
    as_row,
)
from .run import COMPLETE, INTERRUPTED, STOPPED, Recorded, Run

__all__ = [
    "ALLOCATES",
    "COMPLETE",
    "DECLINED",
    "ENDS",
    "FAIL",
    "FAILED",
    "FINISH",
    "FINISHED",
    "GIVEN_UP",
    "INTERRUPT",
    "INTERRUPTED",
    "JOB_COLUMNS",
    "LOADED",
    "MIGRATE",
    "NODE_DOWN",
    "NODE_EVENTS",
    "NODE_UP",
    "PARTS",
    "PREEMPT",
    "RATE",
    "REJECT",
    "REJECTED",
    "RELEASES",
    "RESIZE",
    "RESTART",
    "START",
    "STATES",
    "STOPPED",
    "SUBMIT",
    "UNFINISHED",
    "WAITS_AFTER",
    "Columns",
    "EventRecord",
    "Exact",
    "Fields",
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
    "by_field",
    "plan_key",
    "plan_of_label",
    "plan_words",
]
