"""What must hold in every run, proved from its event log: who got which GPUs when.

The event log is all that is trusted; the records are compared with what it adds up to. `clustersim.testing`
runs these checks on a policy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import isclose

from traces.job import Job

from .cluster import Cluster
from .overheads import Overheads
from .records import EventRecord, JobRecord
from .speed import CannotRun, Curve, Speed

__all__ = ["Case", "Outcome", "Table", "check_outcome"]

Table = Mapping[tuple[str, int], Mapping[int, float]]
"""(model, global batch) -> GPUs -> iterations per second."""

_GIVES = ("start", "restart", "resize", "migrate")
_BEFORE = {
    "submit": "unknown", "reject": "new", "start": "new", "restart": "stopped",
    "resize": "running", "migrate": "running", "preempt": "running", "finish": "running",
}  # fmt: skip
_AFTER = {"submit": "new", "reject": "gone", "preempt": "stopped", "finish": "gone"}


@dataclass(frozen=True)
class Case:
    """A small trace, and what it runs on."""

    name: str
    jobs: tuple[Job, ...]
    cluster: Cluster
    table: Table = field(default_factory=dict)
    overheads: Overheads = field(default_factory=Overheads.none)
    placement: str = "pack"


@dataclass(frozen=True)
class Outcome:
    """What the run of a case left behind: its event log, in order of time, and a record per job."""

    case: Case
    events: tuple[EventRecord, ...]
    records: tuple[JobRecord, ...]
    speed: Speed

    def of(self, job_id: str) -> JobRecord:
        """The record of a job."""
        return next(record for record in self.records if record.job_id == job_id)

    def log(self) -> list[tuple[float, str, str, int]]:
        """The event log in short: (time, event, job, GPUs)."""
        return [(e.time_s, e.event, e.job_id, e.gpus) for e in self.events]

    def curve(self, job: Job) -> Curve | None:
        """How fast a job runs on how many GPUs; None if it cannot run here."""
        try:
            return self.speed.curve(job)
        except CannotRun:
            return None


def check_outcome(outcome: Outcome) -> None:
    """Every check of one run. AssertionError names the case, the simulated time and the jobs."""
    for check in (_check_order, _check_capacity, _check_gang, _check_drained, _check_sums, _check_overheads):
        try:
            check(outcome)
        except AssertionError as error:
            raise AssertionError(f"{outcome.case.name}: {error}") from None


def _require(condition: bool, text: str) -> None:
    """As `assert`, but also under `python -O`."""
    if not condition:
        raise AssertionError(text)


def _check_order(outcome: Outcome) -> None:
    """The log is in order of time; a job is submitted, then rejected, or started, moved and finished."""
    now, phase = float("-inf"), dict[str, str]()
    for event in outcome.events:
        _require(event.time_s >= now, f"the log goes back in time, from {now:g} s to {event}")
        now, before = event.time_s, phase.get(event.job_id, "unknown")
        right = before == _BEFORE.get(event.event)
        _require(right, f"t={now:g}: {event.event} of job {event.job_id}, which is {before}")
        phase[event.job_id] = _AFTER.get(event.event, "running")


def _check_capacity(outcome: Outcome) -> None:
    """At no instant does a node give more GPUs than it has."""
    cluster = outcome.case.cluster
    for now, held in _holdings(outcome):
        used: dict[int, int] = {}
        for event in held.values():
            for node, count in event.placement:
                used[node] = used.get(node, 0) + count
        for node, count in used.items():
            if count > cluster.gpus_per_node or not 0 <= node < cluster.nodes:
                jobs = [job_id for job_id, e in held.items() if any(n == node for n, _ in e.placement)]
                what = f"jobs {', '.join(jobs)} hold {count} GPUs of node {node}"
                raise AssertionError(f"t={now:g}: {what}, on a cluster {cluster.shape}")


def _holdings(outcome: Outcome) -> Iterator[tuple[float, dict[str, EventRecord]]]:
    """After each instant, the last gift of GPUs to each job that holds some.

    By instants: a decision may exchange the GPUs of two jobs, and the log writes one after the other.
    """
    held: dict[str, EventRecord] = {}
    now = float("-inf")
    for event in outcome.events:
        if event.time_s > now:
            yield now, held
            now = event.time_s
        if event.event in _GIVES:
            held[event.job_id] = event
        elif event.event in ("preempt", "finish"):
            held.pop(event.job_id, None)
    yield now, held


def _check_gang(outcome: Outcome) -> None:
    """A job gets all GPUs of a size that it can run on, at once, and each node once."""
    curves = {job.job_id: outcome.curve(job) for job in outcome.case.jobs}
    for event in outcome.events:
        if event.event not in _GIVES:
            continue
        counts = [count for _, count in event.placement]
        where = (
            f"t={event.time_s:g}: {event.event} of job {event.job_id}, {event.gpus} GPUs at {event.placement}"
        )
        _require(sum(counts) == event.gpus, f"{where}: the places do not add up")
        _require(min(counts, default=0) >= 1, f"{where}: a place without GPUs")
        _require(len({node for node, _ in event.placement}) == len(counts), f"{where}: names a node twice")
        curve = curves.get(event.job_id)
        able = sorted(curve.unit_s) if curve else []
        _require(event.gpus in able, f"{where}: it can run on {able} GPUs")


def _check_drained(outcome: Outcome) -> None:
    """Every job has one record, and is finished or rejected: nobody is left waiting for ever."""
    ids = sorted(record.job_id for record in outcome.records)
    submitted = sorted(job.job_id for job in outcome.case.jobs)
    _require(ids == submitted, f"records of jobs {ids} for the submitted jobs {submitted}")
    for record in outcome.records:
        done = record.state in ("finished", "rejected")
        _require(done, f"job {record.job_id} is {record.state}: {record.reason}")


def _check_sums(outcome: Outcome) -> None:
    """GPU-seconds are conserved, progress is the integral of the rate, the records say what the log says."""
    logs: dict[str, list[EventRecord]] = {}
    for event in outcome.events:
        logs.setdefault(event.job_id, []).append(event)
    for job in outcome.case.jobs:
        record, sums = outcome.of(job.job_id), _Sums.of(logs.get(job.job_id, []), outcome.curve(job))
        work = job.duration_s if job.kind == "duration" else job.iterations
        if record.state == "finished":
            text = f"job {job.job_id} finished after {sums.work:g} of {work:g} units of work"
            _require(_close(sums.work, work), text)
        for name in ("gpu_seconds", "overhead_gpu_s", "start_s", "finish_s"):
            logged, recorded = getattr(sums, name), getattr(record, name)
            text = f"job {job.job_id}: {name} is {recorded} in its record, {logged} by the event log"
            _require(_close(logged, recorded), text)


@dataclass
class _Sums:
    """What a job's log adds up to."""

    gpu_seconds: float = 0.0
    overhead_gpu_s: float = 0.0
    work: float = 0.0
    start_s: float | None = None
    finish_s: float | None = None

    @classmethod
    def of(cls, log: list[EventRecord], curve: Curve | None) -> _Sums:
        sums = cls()
        for given, event in zip([None, *log], log, strict=False):
            if given is not None and given.event in _GIVES and curve is not None:
                spent = event.time_s - given.time_s
                paid = min(spent, given.overhead_s)
                sums.gpu_seconds += spent * given.gpus
                sums.overhead_gpu_s += paid * given.gpus
                sums.work += (spent - paid) / curve.unit_s[given.gpus]
            if event.event == "start":
                sums.start_s = event.time_s
            elif event.event == "finish":
                sums.finish_s = event.time_s
        return sums


def _check_overheads(outcome: Outcome) -> None:
    """Every start, restart, resize and migration pays what the overheads say, once."""
    curves = {job.job_id: outcome.curve(job) for job in outcome.case.jobs}
    overheads = outcome.case.overheads
    for event in outcome.events:
        curve = curves.get(event.job_id)
        due = 0.0
        if event.event == "start":
            due = overheads.start_s()
        elif event.event in _GIVES and curve is not None:
            due = overheads.restart_s(curve.parameters, len(event.placement))
        what = f"t={event.time_s:g}: {event.event} of job {event.job_id}"
        text = f"{what} paid {event.overhead_s:g} s, due {due:g} s"
        _require(_close(event.overhead_s, due), text)


def _close(a: float | None, b: float | None) -> bool:
    if a is None or b is None:
        return a is b
    return isclose(a, b, rel_tol=1e-9, abs_tol=1e-6)
