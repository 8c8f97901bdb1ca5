"""Slurm's queue as `squeue` prints it (squeue(1), slurm.schedmd.com/squeue.html).

The columns are those that `-o` or `-O` (`--Format`) names, by their headings: `JOBID`, `STATE` or `ST`,
`SUBMIT_TIME`, and the GPUs as `TRES_ALLOC`, or as `TRES_PER_JOB`, `TRES_PER_NODE`, `GRES` with `NODES`,
`TRES_PER_TASK`, `TRES_PER_SOCKET`. Used where they are there: `ELIGIBLE_TIME, START_TIME, END_TIME,
TIME_LIMIT, ACCOUNT, USER, PARTITION, QOS, PRIORITY, REASON, NAME, NODELIST, DEPENDENCY, CLUSTER, NICE,
RESERVATION, TASKS`. Cells are separated by `|` or by white space; then the last one may hold spaces. `-O`
cuts cells at 20 characters unless it is told a width. The output without options and that of `--start` state
neither GPUs nor submissions, so they are refused.

`TRES_PER_NODE` is N/A of a job that asked for GPUs in another way, and of one without GPUs. So where only
that is printed, a running job with N/A may hold GPUs, and the log is refused.

Dates have no offset. `[1-3]` in the id of a pending array are its tasks.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from itertime.errors import TableError
from traces.logs.log import Log, ReadOptions
from traces.logs.log_format import LogFormat
from traces.logs.source import Head, LogSource

from .stated import SlurmExport, StatedJob, read_export

__all__ = ["SQUEUE"]

_FIELDS = {
    "job_id": ("JOBID", "ARRAY_JOB_ID"),
    "state": ("STATE", "ST"),
    "submit": ("SUBMIT_TIME",),
    "eligible": ("ELIGIBLE_TIME",),
    "start": ("START_TIME",),
    "end": ("END_TIME",),
    "limit": ("TIME_LIMIT",),
    "tres": ("TRES_ALLOC", "TRES"),
    "job": ("TRES_PER_JOB",),
    "node": ("TRES_PER_NODE", "GRES"),
    "task": ("TRES_PER_TASK",),
    "socket": ("TRES_PER_SOCKET",),
    "nodes": ("NODES",),
    "tasks": ("TASKS",),
    "node_names": ("NODELIST",),
    "account": ("ACCOUNT",),
    "user": ("USER",),
    "partition": ("PARTITION",),
    "qos": ("QOS",),
    "priority": ("PRIORITY",),
    "reason": ("REASON", "NODELIST(REASON)"),
    "name": ("NAME",),
    "depends": ("DEPENDENCY",),
    "cluster": ("CLUSTER",),
    "nice": ("NICE",),
    "reservation": ("RESERVATION",),
}
"""What a job is made of -> the headings that state it, the best first."""

_UNITS = ("job", "node", "task", "socket")
_COLUMNS = (
    "JobArrayID Account UserName Partition QOS State SubmitTime EligibleTime StartTime EndTime TimeLimit "
    "NumNodes tres-alloc PriorityLong Reason Dependency"
)
COMMAND = "squeue -a -r -O '{}'".format(",".join(f"{name}:200|" for name in _COLUMNS.split()))
_REMEDY = f"print the queue with squeue -a --json, or name the columns: {COMMAND}"


def _matches(head: Head) -> bool:
    names = _header(head.text)[1]
    return "JOBID" in names and bool({"ST", "STATE"} & set(names))


def _header(text: str) -> tuple[int, list[str]]:
    """The place of the first line that is not empty, and the headings in it."""
    for place, line in enumerate(text.split("\n")):
        if line.strip():
            return place, _cells(line, 0)
    return 0, []


def _cells(line: str, count: int) -> list[str]:
    """The cells of a row of `count` columns; of the header, if it is 0."""
    if "|" in line:
        cells = [cell.strip() for cell in line.split("|")]
        return cells if cells[-1] or len(cells) == count else cells[:-1]
    return line.split(None, count - 1) if count else line.split()


def _rows(source: LogSource) -> Iterator[tuple[int, list[str]]]:
    place, names = _header(source.head.text)
    for line, row in islice(source.lines(), place + 1, None):
        if row.strip():
            yield line, _cells(row, len(names))


def _read(source: LogSource, options: ReadOptions) -> Log:
    names = _header(source.head.text)[1]
    places = {
        field: next(names.index(heading) for heading in headings if heading in names)
        for field, headings in _FIELDS.items()
        if set(headings) & set(names)
    }
    missing = [_FIELDS[field][0] for field in ("job_id", "state", "submit") if field not in places]
    if not {"tres", "job"} & places.keys() and not {"node", "nodes"} <= places.keys():
        missing.append("TRES_ALLOC (or TRES_PER_NODE and NODES)")
    if missing:
        raise TableError(f"{source.path}:1: missing column {', '.join(missing)}; {_REMEDY}")

    def job(row: Any) -> StatedJob:
        if len(row) != len(names):
            raise ValueError(f"has {len(row)} cells where the header has {len(names)}")
        texts = {field: row[index] for field, index in places.items()}
        gres = {unit: texts.pop(unit) for unit in _UNITS if unit in texts}
        return StatedJob(**texts, gres=gres, says_all_gpus="tres" in places)

    form = SlurmExport(
        format="squeue",
        entries=_rows,
        job=job,
        name=lambda row: str(row[places["job_id"]]) if len(row) == len(names) else "",
        columns=tuple(names[place] for place in places.values()),
        times=("SUBMIT_TIME, START_TIME, END_TIME: dates; TIME_LIMIT: written out",),
        command=_REMEDY,
    )
    return read_export(source, form, options)


SQUEUE = LogFormat("squeue", "Slurm's queue, as squeue -o or -O prints it", _matches, _read)
