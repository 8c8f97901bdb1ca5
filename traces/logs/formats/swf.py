"""The Standard Workload Format 2.2 of the Parallel Workloads Archive (Chapin et al., JSSPP 1999).

Comments begin with `;`. A row has 18 numbers separated by white space, -1 where a value is unknown; times
are seconds. Status 0 is failed, 1 completed, 5 cancelled; rows of status 2, 3 and 4 are parts of a job that
also has a row of its own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from itertime.io import TextLayout
from traces.logs.cells import LogColumn, is_number
from traces.logs.log import Log, ReadOptions
from traces.logs.log_format import LogFormat
from traces.logs.source import Head, LogSource
from traces.logs.tables import TableOfJobs, read_table
from traces.native import whole

__all__ = ["COLUMNS", "SWF"]

COLUMNS = (
    "job", "submit_time", "wait_time", "run_time", "allocated_processors", "cpu_time", "memory",
    "requested_processors", "requested_time", "requested_memory", "status", "user", "group", "application",
    "queue", "partition", "preceding_job", "think_time",
)  # fmt: skip
"""The fields of a row, in their order."""

_LAYOUT = TextLayout(delimiter=" ", comments=";", header=False, names=COLUMNS)
_STATES = {0: "failed", 1: "completed", 5: "cancelled"}
_UNKNOWN = ("-1", "-1.0", "-1.00")


def _state(text: str) -> str:
    status = whole(text)
    if status in (2, 3, 4):
        raise ValueError("is a part of a job that has a row of its own")
    return _STATES.get(status, text)


def _name(text: str) -> str:
    return str(whole(text))


_FORM = TableOfJobs(
    "swf",
    {
        "job_id": LogColumn("job"),
        "state": LogColumn("status", _state, optional=True, empty=_UNKNOWN),
        "submit_s": LogColumn("submit_time"),
        "wait_s": LogColumn("wait_time", optional=True, empty=_UNKNOWN),
        "duration_s": LogColumn("run_time", empty=_UNKNOWN),
        "gpus": LogColumn("allocated_processors", empty=(*_UNKNOWN, "0"), instead="requested_processors"),
        "estimate_s": LogColumn("requested_time", optional=True, empty=(*_UNKNOWN, "0")),
        "user": LogColumn("user", _name, optional=True, empty=_UNKNOWN),
        "tenant": LogColumn("group", _name, optional=True, empty=_UNKNOWN),
        "partition": LogColumn("partition", _name, optional=True, empty=_UNKNOWN),
        "qos": LogColumn("queue", _name, optional=True, empty=_UNKNOWN),
        "depends": LogColumn("preceding_job", _name, optional=True, empty=(*_UNKNOWN, "0")),
    },
    (
        "processors count as GPUs: those allocated, or those requested where that is unknown",
        "run_time is the run time on them, without queueing",
        "the estimate is the requested time, the tenant the group, the QOS the queue",
        "every job is taken to want all of its logged run time, however it ended",
    ),
    unit=("s", "the unit of SWF"),
    warnings=("processors count as GPUs: SWF knows no GPUs",),
)


def _matches(head: Head) -> bool:
    rows = [line.split() for line in head.lines if line.strip() and not line.startswith(";")]
    return bool(rows) and len(rows[0]) == len(COLUMNS) and all(is_number(cell) for cell in rows[0])


class _Followers:
    """Counts the jobs that follow others, and leaves out what they follow."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, values: dict[str, Any]) -> None:
        self.count += values.pop("depends", None) is not None


def _read(source: LogSource, options: ReadOptions) -> Log:
    followers = _Followers()
    log = read_table(source, replace(_FORM, derive=followers), options, _LAYOUT)
    if not followers.count:
        return log
    problem = f"{followers.count:,} jobs state a preceding job and a think time"
    note = f"{problem}, which are left out: submissions are as logged"
    return replace(log, assumptions=(*log.assumptions, note))


SWF = LogFormat("swf", "Standard Workload Format 2.2, of the Parallel Workloads Archive", _matches, _read)
