"""Slurm's live jobs as `scontrol show job` prints them (scontrol(1), slurm.schedmd.com/scontrol.html).

A job is a record of `Key=Value` pairs that begins with `JobId=`, on several lines with an empty line after
it, or on one line (`-o`). Used are `JobId, ArrayJobId, ArrayTaskId, ArrayTaskThrottle, HetJobId,
HetJobOffset, JobName, UserId, Priority, Nice, Account, QOS, JobState, Reason, Dependency, Restarts, RunTime,
TimeLimit, SubmitTime, EligibleTime, StartTime, EndTime, Partition, NodeList, NumNodes, NumTasks, AllocTRES,
ReqTRES, TRES, TresPerJob, TresPerNode, TresPerTask, TresPerSocket, Reservation`.
Dates have no offset. Values of other keys, such as `Command`, may hold spaces. Jobs that have ended stay for
Slurm's `MinJobAge`, five minutes by default, with their last run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from traces.logs.log import Log, ReadOptions
from traces.logs.log_format import LogFormat
from traces.logs.source import Head, LogSource

from .rows import PAIR
from .stated import SlurmExport, StatedJob, read_export

__all__ = ["SCONTROL"]

_NONE = "(null)"
_KEYS = (
    "JobId", "UserId", "Priority", "Account", "QOS", "JobState", "Reason", "TimeLimit", "SubmitTime",
    "StartTime", "EndTime", "Partition", "NumNodes", "AllocTRES", "ReqTRES", "TRES", "TresPerNode",
)  # fmt: skip


def _matches(head: Head) -> bool:
    return re.match(r"\s*JobId=\d+\s+(?!UserId=)", head.text) is not None


def _records(source: LogSource) -> Iterator[tuple[int, Mapping[str, str]]]:
    """The pairs of each job, with the line on which it begins. The first pair of a key counts."""
    start, pairs = 0, dict[str, str]()
    for line, text in source.lines():
        if text.startswith("JobId="):
            if pairs:
                yield start, pairs
            start, pairs = line, {}
        for key, value in PAIR.findall(text):
            pairs.setdefault(key, value)
    if pairs:
        yield start, pairs


def _job(pairs: Mapping[str, str]) -> StatedJob:
    tres = (pairs.get(key, _NONE) for key in ("AllocTRES", "ReqTRES", "TRES"))
    job_id = _job_id(pairs)
    return StatedJob(
        job_id=job_id,
        raw_id="" if pairs.get("JobId", "") == job_id else pairs.get("JobId", ""),
        state=pairs.get("JobState", ""),
        submit=pairs.get("SubmitTime", ""),
        eligible=pairs.get("EligibleTime", ""),
        start=pairs.get("StartTime", ""),
        end=pairs.get("EndTime", ""),
        limit=pairs.get("TimeLimit", ""),
        tres=next((text for text in tres if "gres/" in text), ""),
        gres={unit: pairs.get(f"TresPer{unit.title()}", "") for unit in ("job", "node", "task", "socket")},
        nodes=pairs.get("NumNodes", ""),
        tasks=pairs.get("NumTasks", ""),
        node_names=pairs.get("NodeList", ""),
        account=pairs.get("Account", ""),
        user=pairs.get("UserId", "").partition("(")[0],
        partition=pairs.get("Partition", ""),
        qos=pairs.get("QOS", ""),
        priority=pairs.get("Priority", ""),
        reason=pairs.get("Reason", ""),
        name=pairs.get("JobName", ""),
        array_limit=pairs.get("ArrayTaskThrottle", ""),
        depends=pairs.get("Dependency", ""),
        nice=pairs.get("Nice", ""),
        reservation=pairs.get("Reservation", ""),
        restarts=pairs.get("Restarts", ""),
    )


def _job_id(pairs: Mapping[str, str]) -> str:
    """The id that users see."""
    tasks, array = pairs.get("ArrayTaskId", ""), pairs.get("ArrayJobId", "")
    if array and tasks and tasks != "N/A":
        return f"{array}_{tasks}" if tasks.isdigit() else f"{array}_[{tasks}]"
    if "HetJobId" in pairs:
        return f"{pairs['HetJobId']}+{pairs.get('HetJobOffset', '0')}"
    return pairs.get("JobId", "")


_FORM = SlurmExport(
    format="scontrol",
    entries=_records,
    job=_job,
    name=_job_id,
    columns=_KEYS,
    times=("SubmitTime, EligibleTime, StartTime, EndTime: dates; TimeLimit: written out",),
)


def _read(source: LogSource, options: ReadOptions) -> Log:
    return read_export(source, _FORM, options)


SCONTROL = LogFormat("scontrol", "Slurm's live jobs, as scontrol show job prints them", _matches, _read)
