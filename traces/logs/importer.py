"""From a job log to a native trace, with a report of every assumption and every dropped row."""

from __future__ import annotations

import math
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import islice, repeat
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from itertime.costs import MEMORY_HEADROOM
from itertime.errors import TableError, UnknownName, UserError
from itertime.io import shown
from itertime.spec import Models
from traces.attempts import Attempt, attempts_text
from traces.job import Job, job_of, submission_key
from traces.native import PackedJobs, unreadable
from traces.summary import demand
from traces.workload import Rules, Work, WorkMaker, as_floats, deadline_factors, stream, work_maker

from . import named_columns
from .formats import FORMATS
from .formats.slurm_files import named_configuration
from .log import Dropped, Log, LoggedJob, ReadOptions, stating_host, with_parts
from .run_times import Speeds, rates_of, settled, with_speeds, with_work, work_of
from .source import Head, LogSource, open_log
from .throughputs import TableRow, read_throughputs

__all__ = ["Selection", "convert", "format_of", "import_log", "read", "read_speeds"]

Report = dict[str, Any]

_NO_RUN_TIME = "states no run time, which rules turn into work; --speeds SOURCE gives one"


@dataclass(frozen=True)
class Selection:
    """Which part of a log becomes jobs, and how its clock is scaled.

    The selection holds jobs submitted from `from_s` to before `until_s` (seconds after the log's first
    submission), and of those the first `limit`. Gaps between submissions are multiplied by `time_scale`; run
    times and the distance of a deadline from its submission are not.
    """

    from_s: float = 0.0
    until_s: float = math.inf
    limit: int | None = None
    time_scale: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.from_s < self.until_s:
            window = f"--from-s {self.from_s:g}, --until-s {self.until_s:g}"
            raise UserError(f"{window}: must be 0 <= from-s < until-s")
        if self.limit is not None and self.limit < 1:
            raise UserError(f"--limit {self.limit}: must be at least 1")
        if not 0 < self.time_scale <= 10_000:
            raise UserError(f"--time-scale {self.time_scale:g}: must be above 0 and at most 10,000")


def format_of(path: object, head: Head) -> str:
    """The format of a log by its beginning. Raises TableError if it is of no known format."""
    names = [name for name, log_format in FORMATS.items() if log_format.matches(head)]
    if names:
        return names[0]
    if configuration := named_configuration(head):
        raise TableError(f"{path}:1: {configuration}")
    if head.files is not None:
        raise TableError(f"{path}: is a folder of no known log; give a file of it")
    if not head.text and not head.columns:
        raise TableError(f"{path}:1: empty file; the first line names the columns")
    log_format = ", ".join(FORMATS)
    if not head.columns:
        seen = shown(head.text.strip()[:40])
        raise TableError(f"{path}:1: {seen}: is no table, and of no known log format ({log_format})")
    remedy = (
        "name its columns, or number them from 1: --columns submit_s=COLUMN,gpus=COLUMN,duration_s=COLUMN"
    )
    seen = shown(", ".join(head.columns))
    raise TableError(f"{path}:1: {seen}: is the header of no known log format ({log_format}); {remedy}")


def import_log(
    path: str | Path,
    options: ReadOptions | None = None,
    *,
    rules: str = "none",
    planner: str = "best",
    system: str = "dgx-a100-80gb",
    memory_headroom: float = MEMORY_HEADROOM,
    seed: int = 0,
    selection: Selection | None = None,
    model_path: Sequence[str | Path] = (),
) -> tuple[PackedJobs[Job], Report]:
    """Read a log and turn it into jobs in submission order, with a JSON-ready report.

    `path` may be a pipe, or a folder of tables. `options` say what the log does not: format, columns, unit
    and zone of times, tenants. `rules` "none" keeps the jobs as logged; a bundled name or a file gives them
    models, with work by `planner` on `system`, which leaves `memory_headroom` of the memory free, and draws
    from `seed`. Rules may name models whose files are in the folders `model_path`. Raises UserError for
    unusable options, TableError for an unusable log.
    """
    maker: WorkMaker | None = None
    source: Report = {"rules": {"name": "none"}}
    if rules != "none":
        maker, source = work_maker(rules, planner, system, memory_headroom, Models(search=model_path))
        source |= {"seed": seed}
    options = options or ReadOptions()
    with open_log(path) as opened:
        log = read(opened, options)
        sha256 = opened.sha256()
    log = stating_host(log) if options.host else log
    log, profile_report = _with_profiles(with_parts(log) if options.gpu_fractions else log, options)
    jobs, report = convert(log, maker, seed, selection or Selection())
    head: Report = {
        "format": log.format,
        "input": {"file": Path(path).name, "sha256": sha256, "columns": list(log.columns)},
    }
    return jobs, head | profile_report | source | report


def _with_profiles(log: Log, options: ReadOptions) -> tuple[Log, Report]:
    """The log with the work and the run times that other files give its jobs, and what these files are."""
    report: Report = {}
    if options.work_of is not None:
        jobs, report["work_of"] = _jobs_of(options.work_of)
        log = with_work(log, work_of(jobs, options.work_of), Path(options.work_of).name)
    if options.speeds is not None:
        rows, table = read_speeds(options.speeds)
        log, report["speeds"] = with_speeds(log, Speeds.of(rows, Path(options.speeds).name)), table["files"]
    return log, report


def read_speeds(path: str | Path) -> tuple[list[TableRow], Report]:
    """Speeds of a folder of throughput tables, or of a log whose jobs state them, with a report.

    Raises as `read_throughputs`, and TableError for a log without jobs that state model, batch, iterations
    and run time.
    """
    if Path(path).is_dir():
        return read_throughputs(path)
    jobs, file = _jobs_of(str(path))
    speeds = rates_of(jobs, str(path))
    rows = Speeds.of(speeds, str(path)).rows()
    notes = [
        "a speed is iterations over run time on that many GPUs; of several jobs alike, the median",
        "jobs that do not state model, batch, iterations and run time give no row",
    ]
    counts = {
        "jobs": len(jobs),
        "stated": len(speeds),
        "rows": len(rows),
        "jobs_without_speed": len(jobs) - len(speeds),
    }
    return rows, {"format": file["format"], "files": [file], "counts": counts, "assumptions": notes}


def _jobs_of(path: str) -> tuple[PackedJobs[LoggedJob], Report]:
    """The jobs of another log, and what this log is."""
    with open_log(path) as opened:
        log = read(opened, ReadOptions())
        return log.jobs, {"file": Path(path).name, "format": log.format, "sha256": opened.sha256()}


def read(source: LogSource, options: ReadOptions) -> Log:
    """Read an opened log, of the format named, detected or given by its columns."""
    log_format, columns = options.log_format, options.columns
    if columns is not None:
        if log_format is not None:
            problem = f"--columns {shown(columns)}: cannot be combined with --format {shown(log_format)}"
            raise UserError(f"{problem}; give one of them")
        if source.head.files is not None:
            raise UserError(f"{source.path}: is a folder; --columns names the columns of a file")
        return named_columns.read_log(source, named_columns.parse_columns(columns), options)
    log_format = log_format or format_of(source.path, source.head)
    if log_format not in FORMATS:
        raise UnknownName("log format", shown(log_format), FORMATS)
    return FORMATS[log_format].read(source, options)


def convert(
    log: Log, maker: WorkMaker | None, seed: int, selection: Selection
) -> tuple[PackedJobs[Job], Report]:
    """Jobs in submission order, and the part of the report that accounts for every row.

    Random draws cover every job of the log before the selection, in submission order, with one stream per
    purpose. So the selection decides which jobs remain, never what a job is. Raises UserError if the
    selection is empty, TableError if it holds no usable job.
    """
    run_times = log.jobs.rows("job_id", "duration_s")
    log, totals = settled(log), _Totals({job_id for job_id, run_s in run_times if run_s is None})
    if not log.jobs:
        raise TableError(f"no job can be imported; line {log.dropped[0].line}: {log.dropped[0].reason}")
    log = replace(log, jobs=_in_order(log.jobs))
    window_rows = _window(log.jobs, selection)
    selected_rows = window_rows[: selection.limit]
    left_out = {"window": len(log.jobs) - len(window_rows), "limit": len(window_rows) - len(selected_rows)}
    dropped, jobs = list(log.dropped), PackedJobs(Job)
    clock: _TraceClock | None = None  # it starts with the first job that a trace can hold
    draws = zip(log.jobs, _uniforms(maker, seed, len(log.jobs)), _factors(log, maker, seed), strict=False)
    for row, uniform, factor in islice(draws, selected_rows.start, selected_rows.stop):
        work = _work(row, maker, uniform) if maker else None
        if isinstance(work, Dropped):
            dropped.append(work)
            continue
        row_clock = clock or _TraceClock(row.submit_s, selection.time_scale)
        job = _job(row, work, row_clock, factor)
        if reason := unreadable(job):
            dropped.append(Dropped(row.line, row.job_id, *reason))
            continue
        clock = row_clock
        jobs.append(job)
        totals.add(row, work)
    dropped.sort(key=lambda row: row.line)
    if clock is None:
        raise TableError(f"no job can be imported; line {dropped[0].line}: {dropped[0].reason}")
    return jobs, {
        "counts": _counts(log, jobs, dropped, left_out),
        "parts_of_gpus": totals.parts,
        "held_gpu_seconds": totals.held_gpu_s,
        "clock": {"shift_s": clock.zero_s, "time_scale": clock.scale},
        "selection": _plain(selection),
        "demand": demand(jobs),
        "times": list(log.times),
        "warnings": list(log.warnings),
        "assumptions": [
            *log.assumptions,
            *_of_parts(totals.parts, totals.held_gpu_s),
            *_of_holds(totals.held_back_s),
            *_assumptions(log, maker.rules if maker else None),
        ],
        "choices": totals.choices(),
        "gpu_hours": totals.gpu_hours(dropped),
        "dropped_by_reason": dict(Counter(row.kind or row.reason for row in dropped).most_common()),
        "dropped": [{"line": row.line, "job_id": row.job_id, "reason": row.reason} for row in dropped],
    }


class _Totals:
    """What a report says of all jobs that remain, from their rows. `going`: jobs that have not ended."""

    def __init__(self, going: set[str]):
        self.parts = 0
        self.held_back_s = array("d")
        self._going = going
        self._lacks_share = False
        self._held_gpu_s = array("d")
        self._by_end, self._again = defaultdict[str, float](float), defaultdict[str, float](float)
        self._choices = Counter[tuple[Any, ...]]()

    def add(self, row: LoggedJob, work: Work | None) -> None:
        """Count the row of a job."""
        if row.part_of_gpu:
            self.parts += 1
            self._lacks_share |= row.held_gpus is None
        self._held_gpu_s.append((row.held_gpus or row.gpus) * row.run_s)
        if row.eligible_s is not None and row.eligible_s > row.submit_s:
            self.held_back_s.append(row.eligible_s - row.submit_s)
        for attempt in row.runs[:-1]:
            self._again[attempt.state] += row.gpus * attempt.run_s
        if row.job_id not in self._going:
            last_s = row.runs[-1].run_s if row.runs else row.run_s
            self._by_end[row.state or "not stated"] += row.gpus * last_s
        if work is not None:
            choice = (row.gpus, work.model, work.global_batch, work.gpus, work.iteration_s)
            self._choices[choice] += 1

    @property
    def held_gpu_s(self) -> float | None:
        """GPU-seconds with parts of GPUs; None without parts, or where the log does not state them all."""
        return None if not self.parts or self._lacks_share else math.fsum(self._held_gpu_s)

    def choices(self) -> list[Report]:
        """The number of jobs with each kind of work, by logged GPU count."""
        names = ("logged_gpus", "model", "global_batch", "gpus", "iteration_s")
        counts = sorted(self._choices.items())
        return [dict(zip(names, key, strict=True)) | {"jobs": n} for key, n in counts]

    def gpu_hours(self, dropped: list[Dropped]) -> Report:
        """GPU-hours of the log: of all runs, by how they ended; of runs after which the job was started
        again, by why; of dropped rows that state them, by reason; and the hours that jobs were held back
        before they were eligible to start. Of jobs that have not ended, only earlier runs count.
        """
        by_end, lost = dict(self._by_end), defaultdict[str, float](float)
        for state, gpu_s in self._again.items():
            by_end[state] = by_end.get(state, 0.0) + gpu_s
        for line in dropped:
            lost[line.kind or line.reason] += line.gpu_s
        return {
            "all": math.fsum(by_end.values()) / 3600,
            "by_end": _hours(by_end),
            "started_again": _hours(self._again),
            "dropped": _hours(lost),
            "held_back_h": math.fsum(self.held_back_s) / 3600,
        }


def _hours(gpu_seconds: Mapping[str, float]) -> dict[str, float]:
    """Hours by name, the most first."""
    ordered = sorted(gpu_seconds.items(), key=lambda item: (-item[1], item[0]))
    return {name: value / 3600 for name, value in ordered if value}


def _of_parts(jobs: int, held_gpu_s: float | None) -> list[str]:
    problem = "a part of a GPU (MIG slices such as 1g.5gb, gpu_milli below 1000, or hundredths in plan_gpu)"
    remedy = "count with whole GPUs: the trace asks for more than was held"
    held = "" if held_gpu_s is None else f", {held_gpu_s / 3600:,.2f} GPU-hours by all jobs"
    return [f"{jobs:,} jobs held {problem}, and {remedy}{held}"] if jobs else []


def _of_holds(held_s: Sequence[float]) -> list[str]:
    """How long jobs were held back before they were eligible to start, if they were."""
    if not held_s:
        return []
    hours = math.fsum(held_s) / 3600
    reasons = "dependencies, limits of arrays, begin times, requeues"
    return [
        f"{len(held_s):,} jobs were held back {hours:,.2f} h in all before they were eligible ({reasons}): "
        "waits count from then"
    ]


def _in_order(rows: PackedJobs[LoggedJob]) -> PackedJobs[LoggedJob]:
    """The rows in order of submission."""
    submits_s = np.fromiter(rows.column("submit_s"), dtype=np.float64)
    order = np.argsort(submits_s, kind="stable")
    ties = np.flatnonzero(np.diff(submits_s[order]) == 0.0)
    if len(ties):
        ids = list(rows.column("job_id"))
        for together in np.split(ties, np.flatnonzero(np.diff(ties) > 1) + 1):
            places = slice(together[0], together[-1] + 2)
            order[places] = sorted(order[places].tolist(), key=lambda i: submission_key(0.0, ids[i]))
    return rows.taken(array("q", order))


def _window(rows: PackedJobs[LoggedJob], selection: Selection) -> range:
    """The places of the rows in the window."""
    submits_s = np.fromiter(rows.column("submit_s"), dtype=np.float64)
    after_s = submits_s - submits_s[0]
    first_row, end_row = np.searchsorted(after_s, (selection.from_s, selection.until_s)).tolist()
    if first_row == end_row:
        window = f"{selection.from_s:g} and {selection.until_s:g} s after the log's first submission"
        raise UserError(f"no job is submitted between {window}; the last one is at {after_s[-1]:g} s")
    return range(first_row, end_row)


@dataclass(frozen=True)
class _TraceClock:
    """Maps submissions on the log's clock to the trace's: `zero_s` becomes 0, gaps grow by `scale`."""

    zero_s: float
    scale: float

    def submit_s(self, row: LoggedJob) -> float:
        return (row.submit_s - self.zero_s) * self.scale

    def after(self, row: LoggedJob, time_s: float | None) -> float | None:
        """A time of the job, such as its deadline, at its logged distance from the submission."""
        return None if time_s is None else self.submit_s(row) + (time_s - row.submit_s)

    def attempts(self, row: LoggedJob) -> str | None:
        """The runs of the job, at their logged distance from the submission; None if it has one."""
        if not row.runs:
            return None
        later_s = self.submit_s(row) - row.submit_s
        runs = (Attempt(run.start_s + later_s, run.end_s + later_s, run.state) for run in row.runs)
        return attempts_text(tuple(runs))


def _uniforms(maker: WorkMaker | None, seed: int, count: int) -> Iterable[float]:
    """The draw of each row among the models of the rules."""
    return as_floats(stream(seed, "models").random(count)) if maker else repeat(0.0)


def _factors(log: Log, maker: WorkMaker | None, seed: int) -> Iterable[float | None]:
    """The rules' deadlines, as multiples of run times; a log that states deadlines keeps its own."""
    drawn = maker.rules.deadlines if maker and not log.states_deadlines else None
    return deadline_factors(drawn, seed, len(log.jobs))


def _work(row: LoggedJob, maker: WorkMaker, uniform: float) -> Work | Dropped:
    """The work of a row under the rules, or why it has none."""
    if row.duration_s is None:
        return Dropped(row.line, row.job_id, _NO_RUN_TIME)
    work = maker.work(row.gpus, row.duration_s, uniform)
    return Dropped(row.line, row.job_id, work) if isinstance(work, str) else work


_values_of = attrgetter(*(field.name for field in fields(Job)))


def _job(row: LoggedJob, work: Work | None, clock: _TraceClock, deadline_factor: float | None) -> Job:
    """The job of a row on the trace's clock, with its work under the rules."""
    submit_s = clock.submit_s(row)
    deadline_s = clock.after(row, row.deadline_s)
    if deadline_factor is not None and row.duration_s is not None:
        deadline_s = submit_s + deadline_factor * row.duration_s
    changes: dict[str, Any] = {
        "submit_s": submit_s,
        "deadline_s": deadline_s,
        "logged_start_s": clock.after(row, row.logged_start_s),
        "begin_s": clock.after(row, row.begin_s),
        "eligible_s": clock.after(row, row.eligible_s),
        "cancel_s": clock.after(row, row.cancel_s),
        "attempts": clock.attempts(row),
    }
    if work is not None:
        changes |= dict.fromkeys(("min_gpus", "gpu_fraction", "service", "nodes", "gpus_per_node"))
        changes |= {
            "model": work.model,
            "gpus": work.gpus,
            "global_batch": work.global_batch,
            "iterations": work.iterations,
            "cpus": _scaled(row.cpus, row.gpus, work),
            "host_memory_gb": _scaled(row.host_memory_gb, row.gpus, work),
        }
    return job_of(_values_of(row), changes)


def _scaled(amount: float | None, gpus: int, work: Work) -> float | None:
    """What a job needs beside its GPUs: as much for each as in the log, where rules give it other GPUs."""
    return None if amount is None else amount * work.gpus / gpus


def _counts(log: Log, jobs: PackedJobs[Job], dropped: list[Dropped], left_out: dict[str, int]) -> Report:
    """Rows by outcome: rows = jobs + dropped + left_out.window + left_out.limit + all of joined."""
    joined = {name: count for name, count in log.joined.items() if count}
    rows = len(jobs) + len(dropped) + sum(left_out.values()) + sum(joined.values())
    counts = {"rows": rows, "jobs": len(jobs), "dropped": len(dropped), "left_out": left_out}
    return counts | ({"joined": joined} if joined else {})


def _plain(selection: Selection) -> Report:
    until = None if math.isinf(selection.until_s) else selection.until_s
    return {"from_s": selection.from_s, "until_s": until, "limit": selection.limit}


def _assumptions(log: Log, rules: Rules | None) -> list[str]:
    clock = "the clock starts at 0 with the first job; gaps between submissions are multiplied by time_scale"
    if rules is None:
        return [clock, "jobs are as logged: no models assigned, no deadlines drawn, GPU counts unchanged"]
    notes = [
        clock,
        "model, global batch and GPU multiplier of each job are drawn from the rules by its logged GPU count",
        "iterations = logged duration / iteration time of the planner on the requested GPUs of the system",
    ]
    if log.states_deadlines:
        return [*notes, "deadlines are the log's, at their logged distance from the submission"]
    if rules.deadlines is None:
        return [*notes, "no deadlines: the log and the rules state none"]
    d = rules.deadlines
    drawn = f"submission + U({d.low:g}, {d.high:g}) x logged duration for a share of {d.share:g} of the jobs"
    return [*notes, f"deadlines are drawn: {drawn}"]
