"""Job logs of any format: usable rows as `LoggedJob`, the others dropped with line and reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import repeat
from pathlib import Path
from typing import Any, NamedTuple

from itertime.errors import TableError
from traces.attempts import Attempt
from traces.job import Job, maker_of
from traces.native import MAX_SECONDS, MIN_SECONDS, PackedJobs

__all__ = [
    "BESIDE",
    "Dropped",
    "Log",
    "LogRows",
    "LoggedJob",
    "OnNode",
    "ReadOptions",
    "logged_job",
    "stating_host",
    "with_parts",
]

BESIDE = (
    "estimate_s", "logged_start_s", "logged_end_s", "stated_duration_s", "wait_s", "priority", "weight",
    "node_names", "cpus", "host_memory_gb", "eligible_s", "begin_s", "cancel_s", "time_limit_s", "account",
    "partitions", "nodes", "gpus_per_node", "depends", "name", "array_id", "array_limit", "attempts",
    "suspended_s", "nice", "reservation",
)  # fmt: skip
"""Fields without which a row is still a job: values that cannot be used are left out, and counted."""

_NOT_OF_JOBS = (
    "start_s", "end_s", "steps", "step_s", "wait_s", "deadline_after_s", "best_effort", "stated_duration_s",
    "attempts",
)  # fmt: skip
START_TOO_EARLY = "logged start: lies before the submission"
END_TOO_EARLY = "logged end: lies before the start or the submission"
_AGREE_S, _AGREE = 1.0, 0.05  # run times that differ by less are the same, which one log may round


class OnNode(NamedTuple):
    """A job held `gpus` of a node from one time to another, in seconds of the log's clock. The GPUs of a job
    whose log names only its nodes are divided evenly.
    """

    node: str
    from_s: float
    until_s: float
    gpus: float


@dataclass(frozen=True, slots=True)
class LoggedJob(Job):
    """One row of a log: a job on the log's own clock (seconds), with what a trace does not hold.

    `duration_s` None: the log states no run time, as of a job that has not ended; `traces.logs.run_times` may
    find one. `line`: where it stands in the log. `reason`: why a job still waits. `part_of_gpu`: the job held
    a part of a GPU, which counts as a whole GPU; `held_gpus` are then the GPUs with their parts, if the
    format states them. `logged_start_s` and `logged_end_s`: when it first started and last ended.
    `node_names`: the nodes on which it ran all of that time; `spans`: where it ran, if that changed. `runs`:
    its attempts, if it was started more than once; `duration_s` is then the last one. `cluster`: of which it
    is a job, if the log names several. `raw_id`: the number of a task of an array or of a component, which
    has another id. `depends`: what the log states, or, once the log is read, with the ids of its jobs.
    """

    gpus: int = 0
    line: int = 0
    part_of_gpu: bool = False
    held_gpus: float | None = None
    logged_end_s: float | None = None
    reason: str | None = None
    spans: tuple[OnNode, ...] = ()
    node_names: tuple[str, ...] = ()
    runs: tuple[Attempt, ...] = ()
    cluster: str | None = None
    raw_id: str | None = None

    @property
    def on_nodes(self) -> tuple[OnNode, ...]:
        """Where it ran, if the log names nodes."""
        if self.spans or not self.node_names or self.logged_start_s is None or self.logged_end_s is None:
            return self.spans
        gpus = self.gpus / len(self.node_names)
        return tuple(OnNode(name, self.logged_start_s, self.logged_end_s, gpus) for name in self.node_names)

    @property
    def run_s(self) -> float:
        """The time that it ran, in all of its runs; 0 where the log states none."""
        if self.runs:
            return sum(attempt.run_s for attempt in self.runs)
        return 0.0 if self.duration_s is None or self.cancel_s is not None else self.duration_s


_made = maker_of(LoggedJob)
_UNSTATED = tuple(field.default for field in fields(LoggedJob))


def logged_job(**values: Any) -> LoggedJob:
    """`LoggedJob(**values)` in a third of the time; the values have to be those of its fields."""
    return _made(_UNSTATED, values)


@dataclass(frozen=True, slots=True)
class Dropped:
    """A row that became no job, and why; `kind` is the reason without what differs from row to row.
    `gpu_s`: the GPU-seconds that the row states, if it does.
    """

    line: int
    job_id: str
    reason: str
    kind: str = ""
    gpu_s: float = 0.0


@dataclass(frozen=True)
class Log:
    """A log as read: `jobs` and `dropped` are its rows, `assumptions` the interpretations of the reader.

    `states_deadlines`: whether the format has deadlines; a job without a deadline is then best effort.
    `only_run_times`: its jobs are as long as their run time, so model, batch and iterations tell nothing but
    speeds. `times`: how its times were read, in words. `warnings`: what the user has to know before using the
    trace. `joined`: the number of rows that belong to a job of another row, by what they are: steps, runs,
    components. `clusters`: the number of jobs by the name of their cluster, if there are several.
    """

    format: str
    columns: tuple[str, ...]
    states_deadlines: bool
    jobs: PackedJobs[LoggedJob] = field(default_factory=lambda: PackedJobs(LoggedJob))
    dropped: tuple[Dropped, ...] = ()
    assumptions: tuple[str, ...] = ()
    times: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    only_run_times: bool = False
    joined: Mapping[str, int] = field(default_factory=dict)
    clusters: Mapping[str, int] = field(default_factory=dict)


def with_parts(log: Log) -> Log:
    """The log with jobs that hold the part of one GPU that it states, instead of a whole one."""
    parts, counts_whole = list[float | None](), list[bool]()
    for gpus, is_part, held, part in log.jobs.rows("gpus", "part_of_gpu", "held_gpus", "gpu_fraction"):
        keeps_part = gpus == 1 and is_part and held is not None and 0 < held < 1
        parts.append(held if keeps_part else part)
        counts_whole.append(is_part and not keeps_part)
    jobs = log.jobs.replaced(gpu_fraction=parts, part_of_gpu=counts_whole)
    note = f"{len(parts) - parts.count(None):,} jobs on part of one GPU keep it (gpu_fraction)"
    return replace(log, jobs=jobs, assumptions=(*log.assumptions, note))


def stating_host(log: Log) -> Log:
    """The log, with the number of jobs that state cores or host memory; a warning if there are none."""
    demands = log.jobs.rows("cpus", "host_memory_gb")
    host_count = sum(cpus is not None or memory_gb is not None for cpus, memory_gb in demands)
    if not host_count:
        warning = f"no job of this {log.format} log states cores or host memory"
        return replace(log, warnings=(*log.warnings, warning))
    note = f"{host_count:,} jobs state cores or host memory, which they keep (cpus, host_memory_gb)"
    return replace(log, assumptions=(*log.assumptions, note))


class LogRows:
    """Collects the rows of a log; each becomes a `LoggedJob` or is dropped."""

    def __init__(self, path: Path):
        self.path = path
        self.jobs = PackedJobs(LoggedJob)
        self.dropped: list[Dropped] = []
        self.joined = Counter[str]()
        self.clusters: Mapping[str, int] = {}
        self.notes: list[str] = []
        self.warnings: list[str] = []
        self._lines: dict[str, int] = {}
        self._left_out = Counter[str]()
        self._compared = self._disagree = 0

    def drop(self, line: int, job_id: object, reason: str, kind: str = "", gpu_s: float = 0.0) -> None:
        """Note a row without a job."""
        self.dropped.append(Dropped(line, str(job_id), reason, kind or reason, gpu_s))

    def leave_out(self, reason: str) -> None:
        """Note a value beside the job that cannot be used."""
        self._left_out[reason] += 1

    def add(self, line: int, values: dict[str, Any]) -> None:
        """Add the row of `line`. `values` holds fields of `LoggedJob`, and perhaps these, all in seconds:

        `start_s`, `end_s` (which give the run time if there is no `duration_s`, and the logged start and
        end), `steps`, `step_s` (whose product gives the run time if there is no other), `stated_duration_s`
        (a run time that is compared with end - start, and not used), `wait_s` (from submission to start),
        `deadline_after_s` (from submission to deadline), `best_effort` (the row's deadline counts for
        nothing), `attempts` (its runs), `node_names` (of the nodes on which it ran from start to end). A
        `duration_s` of None says that the run time is not known.
        """
        job_id = values.setdefault("job_id", str(line))  # for a log without job ids
        try:
            job = logged_job(line=line, **_derived(values))
        except ValueError as error:
            self.drop(line, job_id, error.args[0], error.args[-1])
            return
        first_line = self._lines.setdefault(job_id, line)
        if first_line != line:
            self.drop(line, job_id, f"the job of line {first_line} again", "the job of another line again")
            return
        if job.logged_start_s is None and _logged_start_s(values) is not None:
            self.leave_out(START_TOO_EARLY)
        if job.logged_end_s is None and _logged_end_s(values) is not None:
            self.leave_out(END_TOO_EARLY)
        self._compare(job, values)
        self.jobs.append(job)

    def _compare(self, job: LoggedJob, values: dict[str, Any]) -> None:
        """Count a job whose run time, as a number of the log, is not the time from its start to its end."""
        stated_s = values.get("stated_duration_s", values.get("duration_s"))
        if stated_s is not None and job.logged_start_s is not None and job.logged_end_s is not None:
            self.compare(stated_s, job.logged_end_s - job.logged_start_s)

    def compare(self, stated_s: float, elapsed_s: float) -> None:
        """Count a run time that a row states, and whether it is the time from its start to its end."""
        self._compared += 1
        self._disagree += abs(stated_s - elapsed_s) > _AGREE_S + _AGREE * elapsed_s

    def finish(self, log: Log) -> Log:
        """`log` with the rows collected. Raises TableError if no row is usable."""
        if not self.jobs:
            first_reason = f"; line {self.dropped[0].line}: {self.dropped[0].reason}" if self.dropped else ""
            raise TableError(f"{self.path}:1: holds no usable job ({len(self.dropped)} rows){first_reason}")
        run_times = self.jobs.rows("duration_s", "estimate_s")
        if all(run_s is not None and estimate_s == run_s for run_s, estimate_s in run_times):
            self.jobs = self.jobs.replaced(estimate_s=repeat(None))
            self._left_out["estimate: is the run time itself in every row"] = len(self.jobs)
        left_out = [f"left out of {n:,} jobs: {reason}" for reason, n in sorted(self._left_out.items())]
        if self._disagree:
            of_all = f"{self._disagree:,} of {self._compared:,} jobs"
            left_out.append(f"the stated run time is not the time from start to end in {of_all}")
        return replace(
            log,
            jobs=self.jobs,
            dropped=tuple(self.dropped),
            assumptions=(*log.assumptions, *self.notes, *left_out),
            warnings=(*log.warnings, *self.warnings),
            joined=dict(self.joined),
            clusters=self.clusters,
        )


def _derived(values: dict[str, Any]) -> dict[str, Any]:
    """The fields of a `LoggedJob`. Raises ValueError (reason, kind of reason) for a row without a job."""
    row = {name: value for name, value in values.items() if name not in _NOT_OF_JOBS}
    submit_s, start_s, end_s = values["submit_s"], values.get("start_s"), values.get("end_s")
    if "duration_s" not in values:
        row["duration_s"] = _run_time(start_s, end_s, values.get("steps"), values.get("step_s"))
    logged_s = _logged_start_s(values)
    possible = logged_s is not None and submit_s <= logged_s <= MAX_SECONDS
    row["logged_start_s"] = logged_s if possible else None
    ended_s, first_s = _logged_end_s(values), max(submit_s, logged_s if logged_s is not None else submit_s)
    row["logged_end_s"] = ended_s if ended_s is not None and first_s < ended_s <= MAX_SECONDS else None
    if (after_s := values.get("deadline_after_s")) is not None:
        row["deadline_s"] = submit_s + after_s
    if "attempts" in values:
        row["runs"] = values["attempts"]
    if values.get("best_effort"):
        row["deadline_s"] = None
    deadline_s = row.get("deadline_s")
    if deadline_s is not None and deadline_s < submit_s:
        reason = f"deadline {deadline_s:.15g} is before the submission {submit_s:.15g}"
        raise ValueError(reason, "deadline is before the submission")
    return row


def _run_time(start_s: float | None, end_s: float | None, steps: float | None, step_s: float | None) -> float:
    """The run time by start and end, or by steps. Raises ValueError if a row states neither."""
    if start_s is not None and end_s is not None:
        if end_s - start_s < MIN_SECONDS:
            raise ValueError("does not end after its start")
        return end_s - start_s
    if steps is None or step_s is None:
        raise ValueError("states neither a run time nor start and end")
    if not MIN_SECONDS <= steps * step_s <= MAX_SECONDS:
        text = f"is not between {MIN_SECONDS:g} and {MAX_SECONDS:g} seconds"
        raise ValueError(f"steps x seconds a step = {steps * step_s:.15g}: {text}", f"steps x step: {text}")
    return steps * step_s


def _logged_start_s(values: dict[str, Any]) -> float | None:
    """The start that a row states, as a time of its own or by the wait."""
    if values.get("start_s") is not None:
        return float(values["start_s"])
    if values.get("wait_s") is not None:
        return float(values["submit_s"] + values["wait_s"])
    return values.get("logged_start_s")


def _logged_end_s(values: dict[str, Any]) -> float | None:
    """The end that a row states."""
    return values.get("logged_end_s") if values.get("end_s") is None else float(values["end_s"])


@dataclass(frozen=True)
class ReadOptions:
    """What the user says about a log.

    `log_format` None detects the format; for a log of another layout, `columns` names its columns instead, as
    `parse_columns` reads them. `time_unit` states the unit of times (see `StatedUnits.parse`), `tenant` the
    column that holds the tenants, `time_zone` the zone of dates without an offset (such as `Asia/Shanghai`).
    Jobs without iterations have those of jobs of the same model and batch in the log `work_of`; those without
    run time go at the speeds of `speeds`, a log or a folder of throughput tables. `gpu_fractions`: jobs that
    hold the part of one GPU keep it; else they get a whole one. `gpu_resources`: further names of resources
    that are GPUs, as Slurm's gres.conf or Kubernetes call them. `cluster`: whose jobs are kept of a log of
    several clusters. `services`: instances of services are such;
    else they are jobs that do all of their logged work. `host`: jobs keep the cores and the host memory that
    the log states.
    """

    log_format: str | None = None
    columns: str | None = None
    time_unit: str | None = None
    tenant: str | None = None
    time_zone: str | None = None
    speeds: str | None = None
    work_of: str | None = None
    gpu_fractions: bool = False
    services: bool = False
    host: bool = False
    gpu_resources: tuple[str, ...] = ()
    cluster: str | None = None
