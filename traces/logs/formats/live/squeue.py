"""Slurm's queue as `squeue` prints it (squeue(1), slurm.schedmd.com/squeue.html).

The columns are those that `-o` or `-O` (`--Format`) names, by their headings: `JOBID`, `STATE` or `ST`,
`SUBMIT_TIME`, and the GPUs as `TRES_ALLOC`, or as `TRES_PER_NODE` or `GRES` with `NODES`. Used where they are
there: `START_TIME`, `END_TIME`, `TIME_LIMIT`, `ACCOUNT`, `USER`, `PARTITION`, `QOS`, `PRIORITY`, `REASON`.
Cells are separated by `|` or by white space; then the last one may hold spaces. `-O` cuts cells at 20
characters unless it is told a width. The output without options states neither GPUs nor submissions, so it is
refused.

Dates have no offset. `[1-3]` in the id of a pending array are its tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from itertime.errors import TableError
from traces.logs.cells import Moments
from traces.logs.log import Log, ReadOptions
from traces.logs.log_format import LogFormat
from traces.logs.records import RecordsOfJobs, Row, read_records
from traces.logs.source import Head, LogSource

from .slurm_jobs import ASSUMPTIONS, TENANTS, SlurmJob

__all__ = ["SQUEUE"]

_FIELDS = {
    "job_id": ("JOBID", "ARRAY_JOB_ID"),
    "state": ("STATE", "ST"),
    "submit": ("SUBMIT_TIME",),
    "start": ("START_TIME",),
    "end": ("END_TIME",),
    "limit": ("TIME_LIMIT",),
    "tres": ("TRES_ALLOC", "TRES"),
    "gres": ("TRES_PER_NODE", "GRES"),
    "nodes": ("NODES",),
    "account": ("ACCOUNT",),
    "user": ("USER",),
    "partition": ("PARTITION",),
    "qos": ("QOS",),
    "priority": ("PRIORITY",),
    "reason": ("REASON", "NODELIST(REASON)"),
}
"""What a job is made of -> the headings that state it, the best first."""

_REMEDY = "print the queue with squeue -a --json, or name the columns: squeue -a -r -o '{}'".format(
    "%i|%a|%u|%P|%q|%T|%V|%S|%e|%l|%D|%b|%Q|%r"
)


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
    if "tres" not in places and not {"gres", "nodes"} <= places.keys():
        missing.append("TRES_ALLOC (or TRES_PER_NODE and NODES)")
    if missing:
        raise TableError(f"{source.path}:1: missing column {', '.join(missing)}; {_REMEDY}")

    def values(row: Any, tenant: str, times: Moments) -> Iterable[Row]:
        if len(row) != len(names):
            raise ValueError(f"has {len(row)} cells where the header has {len(names)}")
        return SlurmJob(**{field: row[index] for field, index in places.items()}).rows(tenant, times)

    form = RecordsOfJobs(
        format="squeue",
        entries=_rows,
        values=values,
        name=lambda row: str(row[places["job_id"]]) if len(row) == len(names) else "",
        columns=tuple(names[place] for place in places.values()),
        tenants=TENANTS,
        assumptions=ASSUMPTIONS,
        times=("SUBMIT_TIME, START_TIME, END_TIME: dates; TIME_LIMIT: written out",),
    )
    return read_records(source, form, options)


SQUEUE = LogFormat("squeue", "Slurm's queue, as squeue -o or -O prints it", _matches, _read)
