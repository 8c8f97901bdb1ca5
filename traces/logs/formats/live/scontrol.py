"""Slurm's live jobs as `scontrol show job` prints them (scontrol(1), slurm.schedmd.com/scontrol.html).

A job is a record of `Key=Value` pairs that begins with `JobId=`, on several lines with an empty line after
it, or on one line (`-o`). Used are `JobId, ArrayJobId, ArrayTaskId, UserId, Priority, Account, QOS,
JobState, Reason, TimeLimit, SubmitTime, StartTime, EndTime, Partition, NumNodes, AllocTRES, ReqTRES, TRES,
TresPerNode`.
Dates have no offset. Values of other keys, such as `Command`, may hold spaces. Jobs that have ended stay for
Slurm's `MinJobAge`, five minutes by default.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from traces.logs.cells import Moments
from traces.logs.log import Log, ReadOptions
from traces.logs.log_format import LogFormat
from traces.logs.records import RecordsOfJobs, Row, read_records
from traces.logs.source import Head, LogSource

from .slurm_jobs import ASSUMPTIONS, TENANTS, SlurmJob

__all__ = ["SCONTROL"]

_PAIR = re.compile(r"(?:^|\s)([A-Za-z][A-Za-z0-9:/_]*)=(\S*)")
_NONE = "(null)"
_KEYS = (
    "JobId", "UserId", "Priority", "Account", "QOS", "JobState", "Reason", "TimeLimit", "SubmitTime",
    "StartTime", "EndTime", "Partition", "NumNodes", "AllocTRES", "ReqTRES", "TRES", "TresPerNode",
)  # fmt: skip


def _matches(head: Head) -> bool:
    return re.match(r"\s*JobId=\d+\s", head.text) is not None


def _records(source: LogSource) -> Iterator[tuple[int, Mapping[str, str]]]:
    """The pairs of each job, with the line on which it begins. The first pair of a key counts."""
    start, pairs = 0, dict[str, str]()
    for line, text in source.lines():
        if text.startswith("JobId="):
            if pairs:
                yield start, pairs
            start, pairs = line, {}
        for key, value in _PAIR.findall(text):
            pairs.setdefault(key, value)
    if pairs:
        yield start, pairs


def _values(pairs: Mapping[str, str], tenant: str, times: Moments) -> Iterator[Row]:
    tres = (pairs.get(key, _NONE) for key in ("AllocTRES", "ReqTRES", "TRES"))
    tasks, array = pairs.get("ArrayTaskId", ""), pairs.get("ArrayJobId", "")
    job = SlurmJob(
        job_id=f"{array}_[{tasks}]" if array and tasks else pairs.get("JobId", ""),
        state=pairs.get("JobState", ""),
        submit=pairs.get("SubmitTime", ""),
        start=pairs.get("StartTime", ""),
        end=pairs.get("EndTime", ""),
        limit=pairs.get("TimeLimit", ""),
        tres=next((text for text in tres if "gres/gpu" in text), ""),
        gres=pairs.get("TresPerNode", ""),
        nodes=pairs.get("NumNodes", ""),
        account=pairs.get("Account", ""),
        user=pairs.get("UserId", "").partition("(")[0],
        partition=pairs.get("Partition", ""),
        qos=pairs.get("QOS", ""),
        priority=pairs.get("Priority", ""),
        reason=pairs.get("Reason", ""),
    )
    return job.rows(tenant, times)


_FORM = RecordsOfJobs(
    format="scontrol",
    entries=_records,
    values=_values,
    name=lambda pairs: str(pairs.get("JobId", "")),
    columns=_KEYS,
    tenants=TENANTS,
    assumptions=ASSUMPTIONS,
    times=("SubmitTime, StartTime, EndTime: dates; TimeLimit: written out",),
)


def _read(source: LogSource, options: ReadOptions) -> Log:
    return read_records(source, _FORM, options)


SCONTROL = LogFormat("scontrol", "Slurm's live jobs, as scontrol show job prints them", _matches, _read)
