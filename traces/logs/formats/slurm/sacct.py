"""Slurm's accounting, as `sacct --parsable2` prints it (sacct(1), section "Job Accounting Fields").

Needed are an id (`JobID`, `JobIDRaw`), `Submit`, GPUs (`AllocTRES`, `ReqTRES`, `AllocGRES`, `ReqGRES`, or the
options in `SubmitLine`) and a run time (`ElapsedRaw`, `Elapsed`, or `Start` and `End`). Used where they are
there: `Cluster, Account, User, State, Eligible, Start, End, Suspended, TimelimitRaw` (minutes) or `Timelimit,
Priority, Partition, QOS, JobName, NNodes, NodeList, Reservation, Reason, Restarts, SubmitLine`. Other columns
are passed over, so `-o ALL` is read, too. Dates have no offset.

A row of a step (`17.batch`, `17.0`) belongs to its job. With `-D` a job has a row for each run.

Archives of Open XDMoD have no header: the columns are those of its calls of sacct (`_ARCHIVES`; its page
"Slurm Notes", github.com/ubccr/xdmod).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import tzinfo
from operator import itemgetter
from typing import NamedTuple

from itertime.errors import TableError
from itertime.io import shown
from traces.host_lists import host_list
from traces.logs.cells import MixedColumnError, Moments, of_dates, time_zone
from traces.logs.log import Log, ReadOptions
from traces.logs.log_format import LogFormat
from traces.logs.source import Head, LogSource
from traces.logs.tables import unknown_column
from traces.logs.units import StatedUnits

from .bars import JOB_ID, rows_of
from .rows import (
    SlurmRow,
    SlurmRows,
    array_of,
    begin_moment,
    count_of,
    limit_of,
    plain_text,
    signed_of,
    state_of,
    tasks_of,
    throttle_of,
)
from .submit_line import NO_OPTIONS, submit_options, submitted_request
from .times import row_times
from .tres import Request, Tres

__all__ = ["COMMAND", "SLURM"]

COMMAND = (
    "sacct -a -D -X --parsable2 --format=JobID,JobIDRaw,Cluster,Account,User,Partition,QOS,Submit,Eligible,"
    "Start,End,ElapsedRaw,Suspended,TimelimitRaw,State,Priority,NNodes,NodeList,Reservation,ReqTRES,AllocTRES,"
    "JobName,SubmitLine"
)
"""The command that prints all that is read."""

_ARCHIVES = (
    (
        "JobID", "JobIDRaw", "Cluster", "Partition", "QOS", "Account", "Group", "GID", "User", "UID",
        "Submit", "Eligible", "Start", "End", "Elapsed", "ExitCode", "State", "NNodes", "NCPUS", "ReqCPUS",
        "ReqMem", "ReqTRES", "AllocTRES", "Timelimit", "NodeList", "JobName",
    ),
    (
        "JobID", "JobIDRaw", "Cluster", "Partition", "Account", "Group", "GID", "User", "UID", "Submit",
        "Eligible", "Start", "End", "Elapsed", "ExitCode", "State", "NNodes", "NCPUS", "ReqCPUS", "ReqMem",
        "ReqGRES", "ReqTRES", "Timelimit", "NodeList", "JobName",
    ),
)  # fmt: skip
"""The columns of archives of Open XDMoD, today's and those of older versions."""

_DATE = re.compile(r"Unknown|None|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", re.ASCII)
_MOST_KEPT = 50_000  # texts of a column that are remembered

_RUN_TIMES = ("ElapsedRaw", "Elapsed")
_GPU_COLUMNS = ("AllocTRES", "ReqTRES", "AllocGRES", "ReqGRES", "SubmitLine")
_ASSUMPTIONS = (
    "ElapsedRaw is the run time on the GPUs of AllocTRES, or of ReqTRES where that is empty; of a requeued "
    "job that of its last run",
    "every job is taken to want all of its logged run time, however it ended, and no more than it had so far "
    "where it was still running",
    "the tenant is the account, the priority Slurm's, the estimate the time limit; --tenant Partition or "
    "--tenant QOS makes tenants of these",
)


class _Cells(NamedTuple):
    """The cells that are read of a row, "" of a column that the log does not have."""

    JobID: str
    JobIDRaw: str
    Cluster: str
    Account: str
    User: str
    Partition: str
    QOS: str
    JobName: str
    Submit: str
    Eligible: str
    Start: str
    End: str
    ElapsedRaw: str
    Elapsed: str
    Suspended: str
    TimelimitRaw: str
    Timelimit: str
    State: str
    Priority: str
    ReqTRES: str
    AllocTRES: str
    AllocGRES: str
    ReqGRES: str
    NNodes: str
    NodeList: str
    Reservation: str
    Reason: str
    Restarts: str
    SubmitLine: str


_NO_NODES = ("", "None assigned", "None", "Unknown")
_TOO_MANY_DIGITS = 13  # of a number of seconds
_HOST_NOTE = "the cores and the host memory are cpu and mem of the trackable resources, of the whole job"


def _matches(head: Head) -> bool:
    """Whether a header is one of `sacct`, even if columns or `--parsable2` were missing."""
    header = "|".join(head.columns)
    if any(name in header for name in ("JobIDRaw", "ElapsedRaw", "AllocTRES", "ReqTRES", "AllocGRES")):
        return True
    return ("JobID|" in header and "Submit" in header) or _archive_of(head) is not None


def _archive_of(head: Head) -> tuple[str, ...] | None:
    """The columns of an archive of Open XDMoD whose first row is a job; None for any other log."""
    cells = head.text.partition("\n")[0].rstrip("\r").split("|")
    for columns in _ARCHIVES:
        by_name = dict(zip(columns, cells, strict=False))
        if len(cells) < len(columns) or not all(JOB_ID.fullmatch(cell) for cell in cells[:2]):
            continue
        if all(_DATE.fullmatch(by_name[name]) for name in ("Submit", "Start", "End")):
            return columns
    return None


def _read(source: LogSource, options: ReadOptions) -> Log:
    archive_columns = _archive_of(source.head)
    has_header = archive_columns is None
    columns = list(source.head.columns if archive_columns is None else archive_columns)
    if has_header and columns and not columns[-1]:
        columns = columns[:-1]  # the bar at the end of --parsable
    _check(source, columns, options.tenant)
    zone = time_zone(options.time_zone)
    rows = SlurmRows(source.path, zone, options.cluster)
    reader = _Rows(columns, options, zone)
    for line, cells, problem in rows_of(source, columns, has_header):
        if problem:
            rows.drop(line, cells[0] if cells else "", problem)
            continue
        try:
            reader.add(rows, line, cells)
        except ValueError as error:
            rows.drop(line, reader.job_id(cells), str(error.args[0]), str(error.args[-1]))
        except MixedColumnError as error:
            raise TableError(f"{source.path}:{line}: {error}") from None
    notes = [] if has_header else ["the log has no header: its columns are those of Open XDMoD's archives"]
    notes += [_HOST_NOTE] if options.host else []
    notes += [f"the tenant is {options.tenant}, as the user says"] if options.tenant else []
    dates = [name for name in ("Submit", "Eligible", "Start", "End") if name in columns]
    return rows.finish(
        Log(
            format="slurm",
            columns=tuple(name for name in columns if name in _Cells._fields),
            states_deadlines=False,
            assumptions=(*_ASSUMPTIONS, *notes, *of_dates([reader.moment], options.time_zone)),
            times=(f"{', '.join(dates)}: dates", *reader.units()),
        )
    )


def _check(source: LogSource, columns: list[str], tenant: str | None) -> None:
    """Raise TableError if a log lacks what every job needs."""
    missing = [
        " or ".join(names)
        for names in (("JobID", "JobIDRaw"), ("Submit",), _RUN_TIMES, _GPU_COLUMNS)
        if not set(names) & set(columns) and not (names is _RUN_TIMES and {"Start", "End"} <= set(columns))
    ]
    if source.separator != "|":
        raise TableError(f"{source.path}:1: is not separated by |; print the log with {COMMAND}")
    if missing:
        raise TableError(
            f"{source.path}:1: missing column {', '.join(missing)}; print the log with {COMMAND}"
        )
    if tenant is not None and tenant not in columns:
        raise TableError(f"{source.path}:1: {unknown_column(tenant, columns)}")


class _Rows:
    """Reads the cells of rows with the given columns."""

    def __init__(self, columns: list[str], options: ReadOptions, zone: tzinfo):
        self.moment = Moments(StatedUnits.parse(options.time_unit).every or "s", zone)
        self._zone = zone
        self._at = {name: place for place, name in reversed(list(enumerate(columns)))}
        self._tres = Tres(("gpu", *options.gpu_resources))
        self._texts: dict[str, str | None] = {}
        self._limits: dict[str, float | None] = {}
        self._spans: dict[str, float | None] = {"": None, "00:00:00": 0.0}
        self._hosts: dict[str, tuple[str, ...]] = {}
        self._keeps_host = options.host
        self._tenant = self._at.get(options.tenant or "Account", -1)
        self._states_account = (options.tenant or "Account") != "Account"
        self._pick = itemgetter(*(self._at.get(name, -1) for name in _Cells._fields))
        self._id = self._at["JobID"] if "JobID" in self._at else self._at["JobIDRaw"]

    def job_id(self, cells: list[str]) -> str:
        """What a row calls its job."""
        return cells[self._id]

    def units(self) -> Iterator[str]:
        """How run times and limits are read, in words."""
        if "ElapsedRaw" in self._at:
            yield "ElapsedRaw in s (so the format says)"
        elif "Elapsed" in self._at:
            yield "Elapsed: written out"
        if "TimelimitRaw" in self._at:
            yield "TimelimitRaw in min (so the format says)"
        elif "Timelimit" in self._at:
            yield "Timelimit: written out"

    def add(self, rows: SlurmRows, line: int, cells: list[str]) -> None:
        """Add a row. ValueError (reason, kind of reason) for one that is no job."""
        cells.append("")  # what a column holds that the log does not have
        cell = _Cells._make(self._pick(cells))
        job_id, raw_id = cell.JobID or cell.JobIDRaw, cell.JobIDRaw or cell.JobID
        if "." in job_id:
            rows.add_step(raw_id.partition(".")[0], self._tres.request(cell.AllocTRES))
            return
        if not job_id:
            raise ValueError("states no JobID")
        elapsed_s = self._span(cell.ElapsedRaw or cell.Elapsed)
        suspended_s = self._span(cell.Suspended) or None
        span_s = None if elapsed_s is None else elapsed_s + (suspended_s or 0.0)
        times = row_times(
            self.moment, rows.leave_out, cell.Submit, cell.Eligible, cell.Start, cell.End, span_s
        )
        options = submit_options(cell.SubmitLine) if cell.SubmitLine else NO_OPTIONS
        nodes = count_of(cell.NNodes)
        row = SlurmRow(
            line,
            job_id,
            self._state(cell.State),
            times.submit_s,
            self._request(cell, nodes),
            None if raw_id == job_id else raw_id,
            self._text(cell.Cluster),
            times.eligible_s,
            times.start_s,
            times.end_s,
            elapsed_s,
            suspended_s,
            self._limit_s(cell, rows),
            tenant=self._text(cells[self._tenant]),
            user=self._text(cell.User),
            account=self._text(cell.Account) if self._states_account else None,
            partition=self._text(cell.Partition.partition(",")[0]),
            partitions=_several(options.partition or cell.Partition),
            qos=self._text(cell.QOS),
            name=self._text(cell.JobName),
            reservation=self._text(cell.Reservation),
            reason=cell.Reason or None,
            priority=count_of(cell.Priority) or 0,
            nodes=nodes,
            node_names=self._nodes(cell.NodeList, rows),
            array_id=array_of(job_id),
            array_limit=options.array_limit or (throttle_of(job_id) if "[" in job_id else None),
            begin_s=begin_moment(options, times.submit_s, self._zone) if options.begin else None,
            nice=signed_of(options.nice),
            depends=options.dependency,
            restarts=count_of(cell.Restarts) or 0,
        )
        if "[" not in job_id:
            rows.add_row(row)
            return
        for task in tasks_of(job_id):
            rows.add_row(row._replace(job_id=task, raw_id=None, array_id=array_of(task)))

    def _request(self, cell: _Cells, nodes: int | None) -> Request:
        """GPUs by the columns in the order in which they are trusted; none of them may name GPUs."""
        request = self._listed("AllocTRES", cell.AllocTRES) or self._listed("ReqTRES", cell.ReqTRES)
        if request is None or not request.gpus:
            request = self._tres.units(cell.AllocGRES)
            if not request.gpus:
                units = self._tres.units(cell.ReqGRES)
                request = units._replace(gpus=units.gpus * (nodes or 1))
            if not request.gpus:
                options = submit_options(cell.SubmitLine, with_gpus=True)
                request = submitted_request(options, self._tres, nodes)
        if not self._keeps_host and request.cpus is not None:
            return Request(request.gpus, request.gpu_type, request.part_of_gpu, nodes=request.nodes)
        return request

    def _listed(self, name: str, text: str) -> Request | None:
        try:
            return self._tres.request(text)
        except ValueError as error:
            raise ValueError(f"{name}={shown(text)}: {error}", f"{name}: {error}") from None

    def _state(self, text: str) -> str:
        """The state; "" where the log has none."""
        return state_of(text) if text else ""

    def _span(self, text: str) -> float | None:
        """A run time in seconds, or written out; None for an empty cell."""
        if text in self._spans:
            return self._spans[text]
        if text.isascii() and text.isdigit():
            return float(text) if len(text) < _TOO_MANY_DIGITS else None
        value = limit_of(text)
        if len(self._spans) < _MOST_KEPT:
            self._spans[text] = value
        return value

    def _limit_s(self, cell: _Cells, rows: SlurmRows) -> float | None:
        """The time limit; None without one, and for one that cannot be read, which is counted."""
        text = cell.TimelimitRaw or cell.Timelimit
        if text not in self._limits:
            try:
                self._limits[text] = limit_of(text) or None
            except ValueError as error:
                rows.leave_out(f"{'TimelimitRaw' if cell.TimelimitRaw else 'Timelimit'}: {error}")
                return None
        return self._limits[text]

    def _text(self, text: str) -> str | None:
        if text not in self._texts:
            if len(self._texts) >= _MOST_KEPT:
                return plain_text(text)
            self._texts[text] = plain_text(text)
        return self._texts[text]

    def _nodes(self, text: str, rows: SlurmRows) -> tuple[str, ...]:
        if text in _NO_NODES:
            return ()
        if text not in self._hosts:
            if len(self._hosts) >= _MOST_KEPT:
                self._hosts.clear()
            try:
                self._hosts[text] = host_list(text)
            except ValueError as error:
                rows.leave_out(f"NodeList: {error}")
                return ()
        return self._hosts[text]


def _several(text: str) -> str | None:
    """Partitions as a trace states them; None for one, or none."""
    if "," not in text:
        return None
    names = dict.fromkeys(name for name in text.split(",") if name)
    return "|".join(names) if len(names) > 1 else None


SLURM = LogFormat("slurm", "Slurm's accounting, as sacct prints it", _matches, _read)
