"""PBS Professional's and OpenPBS's accounting logs, and those of Torque.

Source: "Accounting" of the PBS Professional Reference Guide. A line is `date;type;id;key=value ...`. Types
that are read: Q (queued), S (started), E (ended), R (rerun: a run that ended and starts again), D (deleted),
A (aborted). Used are `user, group, account, project, queue, jobname, ctime, qtime, etime` (eligible), `start,
end, exec_vnode, exec_host, Exit_status, resources_used.walltime, resources_used.ngpus`, and of
`Resource_List` `ngpus`, else the GPUs of the chunks in `select` (`2:ncpus=8:ngpus=4`) or of Torque's `nodes`
(`2:ppn=8:gpus=4`), and `walltime`. Times are seconds since 1970; the date of a line, which has no offset,
says when a job was deleted, and when a run ended whose line states no end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime

from traces.logs.cells import MixedColumnError, Moments, span, time_zone
from traces.logs.log import Log, LoggedJob, LogRows, ReadOptions, logged_job
from traces.logs.log_format import LogFormat
from traces.logs.source import Head, LogSource
from traces.native import COLUMNS, MAX_SECONDS, whole

from .runs import join_rows

__all__ = ["PBS"]

_LINE = re.compile(r"(\d\d/\d\d/\d{4} \d\d:\d\d:\d\d);([A-Za-z]);([^;]+);(.*)", re.ASCII)
_PAIR = re.compile(r"(\S+?)=(\"[^\"]*\"|\([^)]*\)\S*|\S*)")
_CHUNK_GPUS = re.compile(r"^n?gpus=(\d+)$", re.ASCII)
_NODE = re.compile(r"\(?([^:/()+]+)[:/)]?")
_TYPES = "QSERDA"
_ASSUMPTIONS = (
    "the GPUs are ngpus of the job, else those of its chunks; the tenant is the project, else the account, "
    "else the group",
    "a job waits from etime, when it was eligible; its run time is the time from start to end, and the "
    "estimate is the wall time that it asked for",
    "every job is taken to want all of its logged run time, however it ended",
)
_COLUMNS = (
    "user", "group", "account", "project", "queue", "ctime", "qtime", "etime", "start", "end", "exec_vnode",
    "Exit_status", "Resource_List.ngpus", "Resource_List.select", "Resource_List.walltime",
)  # fmt: skip


def _matches(head: Head) -> bool:
    return any(_LINE.match(line) for line in head.lines[:5])


class _Job:
    """What the lines of a job say so far. `runs`: the lines that state a run, each with its type and
    date. `starts`: those of lines S. Neither is in order where lines are not.
    """

    def __init__(self, line: int):
        self.line = line
        self.pairs: dict[str, str] = {}
        self.runs: list[tuple[int, str, str, dict[str, str]]] = []
        self.starts: list[str] = []
        self.removed: tuple[str, str] | None = None  # type and date


def _jobs(source: LogSource) -> tuple[dict[str, _Job], int]:
    """The jobs by id, and the number of lines that are none's."""
    jobs, other_lines = dict[str, _Job](), 0
    for line, text in source.lines():
        match = _LINE.fullmatch(text)
        if match is None or match[2] not in _TYPES:
            other_lines += bool(text.strip())
            continue
        date, kind, job_id, content = match.groups()
        job = jobs.setdefault(job_id, _Job(line))
        pairs = {name: value.strip('"') for name, value in _PAIR.findall(content)}
        job.pairs.update(pairs)
        if kind in "ER" and "start" in pairs:
            job.runs.append((line, kind, date, pairs))
        elif kind == "S" and "start" in pairs:
            job.starts.append(pairs["start"])
        elif kind in "DA":
            job.removed = (kind, date)
    return jobs, other_lines


def _read(source: LogSource, options: ReadOptions) -> Log:
    zone = time_zone(options.time_zone)
    rows = LogRows(source.path)
    jobs, other_lines = _jobs(source)
    for job_id, job in jobs.items():
        try:
            rows.jobs.extend(_rows(job_id, job, Moments("s", zone), options))
        except (ValueError, MixedColumnError) as error:
            rows.drop(job.line, job_id, str(error.args[0]), str(error.args[-1]))
    join_rows(rows, zone)
    if other_lines:
        rows.notes.append(f"{other_lines:,} lines are of other types, and are passed over")
    return rows.finish(
        Log(
            format="pbs",
            columns=_COLUMNS,
            states_deadlines=False,
            assumptions=_ASSUMPTIONS,
            times=("ctime, qtime, etime, start, end in s since 1970; walltime: written out",),
        )
    )


def _rows(job_id: str, job: _Job, moment: Moments, options: ReadOptions) -> Iterator[LoggedJob]:
    """The rows of a job: its runs, or its wait. ValueError for one without GPUs."""
    last_start_s = -1.0
    for line, kind, date, pairs in job.runs:
        start_s = _time_s(pairs["start"])
        end_s = _time_s(pairs["end"]) if pairs.get("end") else _date_s(date, moment)
        last_start_s = max(last_start_s, start_s)
        if end_s is not None and end_s > start_s:
            yield _row(line, job_id, {**job.pairs, **pairs}, options, _end_state(kind, pairs), start_s, end_s)
    started_s = max((_time_s(start) for start in job.starts), default=last_start_s)
    if started_s > last_start_s:
        yield _row(job.line, job_id, job.pairs, options, "RUNNING", started_s, None)
    elif not job.runs:
        cancel_s = None
        if job.removed is not None:
            cancel_s = _date_s(job.removed[1], moment)
        yield _row(
            job.line, job_id, job.pairs, options, "CANCELLED" if cancel_s else "PENDING", cancel_s=cancel_s
        )


def _time_s(text: str) -> float:
    """A time in seconds since 1970. ValueError for a number that is none, such as a negative one."""
    time_s = float(text)
    if not 0 < time_s <= MAX_SECONDS:
        raise ValueError(f"states the time {text}, which is not in seconds since 1970")
    return time_s


def _date_s(date: str, moment: Moments) -> float | None:
    """When a line was written, in seconds since 1970. ValueError for a day that no month has."""
    return moment(datetime.strptime(date, "%m/%d/%Y %H:%M:%S").isoformat())


def _end_state(kind: str, pairs: Mapping[str, str]) -> str:
    if kind == "R":
        return "REQUEUED"
    return "COMPLETED" if pairs.get("Exit_status", "0") == "0" else "FAILED"


def _row(
    line: int,
    job_id: str,
    pairs: Mapping[str, str],
    options: ReadOptions,
    state: str,
    start_s: float | None = None,
    end_s: float | None = None,
    cancel_s: float | None = None,
) -> LoggedJob:
    submission = pairs.get("ctime") or pairs.get("qtime")
    if not submission:
        raise ValueError("states no ctime")
    submit_s = _time_s(submission)
    gpus, nodes = _gpus(pairs)
    limit = pairs.get("Resource_List.walltime")
    limit_s = span(limit) if limit else None
    duration_s = end_s - start_s if start_s is not None and end_s is not None else None
    if cancel_s is not None:
        if limit_s is None:
            raise ValueError("was deleted while it waited, and no wall time says how long it would have run")
        duration_s = limit_s
    names = ("project", "account", "group") if options.tenant is None else (options.tenant,)
    owners = (pairs.get(name, "") for name in names)
    eligible = pairs.get("etime", "")
    return logged_job(
        line=line,
        job_id=job_id,
        submit_s=submit_s,
        gpus=gpus,
        duration_s=duration_s,
        tenant=next((owner for owner in owners if owner and owner != "_pbs_project_default"), "default"),
        user=pairs.get("user"),
        partition=pairs.get("queue"),
        name=pairs.get("jobname"),
        state=state,
        logged_start_s=start_s if start_s is None or start_s >= submit_s else None,
        logged_end_s=end_s,
        eligible_s=float(eligible) if eligible.isdigit() and float(eligible) >= submit_s else None,
        cancel_s=cancel_s,
        estimate_s=limit_s,
        time_limit_s=limit_s,
        nodes=nodes,
        gpus_per_node=gpus // nodes if nodes is not None else None,
        node_names=_nodes(pairs.get("exec_vnode") or pairs.get("exec_host") or ""),
    )


def _gpus(pairs: Mapping[str, str]) -> tuple[int, int | None]:
    """The GPUs of a job, and its nodes if each has as many. ValueError without GPUs."""
    chunks = list[tuple[int, int]]()  # chunks of a kind, and the GPUs of one
    for text in (pairs.get("Resource_List.select", ""), pairs.get("Resource_List.nodes", "")):
        for chunk in text.split("+") if text and not chunks else ():
            words = chunk.split(":")
            count = whole(words[0]) if words[0].isdigit() else 1
            of_chunk = sum(int(match[1]) for word in words if (match := _CHUNK_GPUS.match(word)))
            chunks.append((count, of_chunk))
    total_text = pairs.get("Resource_List.ngpus") or pairs.get("resources_used.ngpus") or ""
    total = int(total_text) if total_text.isdigit() else sum(count * of_chunk for count, of_chunk in chunks)
    if not total:
        raise ValueError("names no ngpus: a job without GPUs")
    nodes = sum(count for count, _ in chunks)
    is_even = len({of_chunk for _, of_chunk in chunks}) == 1 and nodes * chunks[0][1] == total
    return int(COLUMNS["gpus"](str(total))), nodes if is_even else None


def _nodes(text: str) -> tuple[str, ...]:
    """The hosts of `(n1:ncpus=8:ngpus=4)+(n2:...)` or of `n1/0*8+n2/0*8`, each once."""
    names = (match[1] for piece in text.split("+") if (match := _NODE.match(piece)))
    return tuple(dict.fromkeys(names)) if text else ()


PBS = LogFormat("pbs", "accounting logs of PBS Professional, OpenPBS and Torque", _matches, _read)
