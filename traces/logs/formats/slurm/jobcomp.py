"""Slurm's completion log: the file of the plugin jobcomp/filetxt (slurm.conf(5), `JobCompLoc`).

A line is a run of a job that ended, as `Key=Value` pairs in a fixed order: `JobId, UserId, GroupId, Name,
JobState, Partition, TimeLimit` (minutes), `StartTime, EndTime, NodeList, NodeCnt, ProcCnt, WorkDir,
ReservationName, Tres, Account, QOS, WcKey, Cluster, SubmitTime, EligibleTime`. Names may hold spaces and
pairs. Older versions state no `Tres`; GPUs are then not known. Dates have no offset. A requeued job has a
line for each run. Tasks of arrays have the number that Slurm gave them, and no array.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from traces.logs.log import Log, ReadOptions
from traces.logs.log_format import LogFormat
from traces.logs.source import Head, LogSource

from .rows import PAIR
from .stated import SlurmExport, StatedJob, read_export

__all__ = ["JOBCOMP"]

_KEYS = (
    "JobId", "UserId", "Name", "JobState", "Partition", "TimeLimit", "StartTime", "EndTime", "NodeList",
    "NodeCnt", "ReservationName", "Tres", "Account", "QOS", "Cluster", "SubmitTime", "EligibleTime",
)  # fmt: skip


def _matches(head: Head) -> bool:
    return re.match(r"\s*JobId=\d+\s+UserId=", head.text) is not None


def _records(source: LogSource) -> Iterator[tuple[int, Mapping[str, str]]]:
    for line, text in source.lines():
        if not text.startswith("JobId="):
            continue
        front, _, name_and_back = text.partition(" Name=")
        name, _, back = name_and_back.rpartition(" JobState=")
        pairs = dict(PAIR.findall(f"{front} JobState={back}"))
        yield line, {**pairs, "Name": name}


def _job(pairs: Mapping[str, str]) -> StatedJob:
    return StatedJob(
        job_id=pairs.get("JobId", ""),
        state=pairs.get("JobState", ""),
        submit=pairs.get("SubmitTime", ""),
        eligible=pairs.get("EligibleTime", ""),
        start=pairs.get("StartTime", ""),
        end=pairs.get("EndTime", ""),
        limit=pairs.get("TimeLimit", ""),
        tres=pairs.get("Tres", ""),
        nodes=pairs.get("NodeCnt", ""),
        node_names=pairs.get("NodeList", ""),
        account=pairs.get("Account", ""),
        user=pairs.get("UserId", "").partition("(")[0],
        partition=pairs.get("Partition", ""),
        qos=pairs.get("QOS", ""),
        name=pairs.get("Name", ""),
        cluster=pairs.get("Cluster", ""),
        reservation=pairs.get("ReservationName", ""),
    )


_FORM = SlurmExport(
    format="slurm-jobcomp",
    entries=_records,
    job=_job,
    name=lambda pairs: str(pairs.get("JobId", "")),
    columns=_KEYS,
    times=("SubmitTime, EligibleTime, StartTime, EndTime: dates; TimeLimit in min",),
)


def _read(source: LogSource, options: ReadOptions) -> Log:
    return read_export(source, _FORM, options)


JOBCOMP = LogFormat("slurm-jobcomp", "Slurm's completion log, of the plugin jobcomp/filetxt", _matches, _read)
