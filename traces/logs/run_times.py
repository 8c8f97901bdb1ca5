"""Run times that a log does not state: from speeds of the same model and batch, or from time limits.

Gavel's jobs state iterations, those of Sia not even these; a job that has not ended states its limit at best.
Nothing is guessed: a job whose run time has no source is dropped, with the reason.
"""

from __future__ import annotations

import statistics
from array import array
from bisect import bisect
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import exp, log

from itertime.errors import TableError
from traces.native import PackedJobs

from .log import Dropped, Log, LoggedJob
from .throughputs import TableRow

__all__ = ["Speeds", "rates_of", "settled", "with_speeds", "with_work", "work_of"]

Kind = tuple[str, int]
"""Model and global batch."""


@dataclass(frozen=True)
class Speeds:
    """Iterations/s. `rates`: kind of job -> (GPUs, iterations/s), GPUs ascending. `source`: its name."""

    rates: Mapping[Kind, tuple[tuple[int, float], ...]]
    source: str

    @classmethod
    def of(cls, table_rows: Iterable[TableRow], source: str) -> Speeds:
        """From single speeds; of several for the same model, batch and GPUs, the median counts."""
        rates_of_kind: dict[Kind, dict[int, list[float]]] = {}
        for model, batch, gpus, rate in table_rows:
            rates_of_kind.setdefault((model, batch), {}).setdefault(gpus, []).append(rate)
        return cls(
            {
                kind: tuple((n, statistics.median(rates)) for n, rates in sorted(by_gpus.items()))
                for kind, by_gpus in rates_of_kind.items()
            },
            source,
        )

    def rows(self) -> list[TableRow]:
        """The speeds as rows of a throughput table."""
        return [TableRow(*kind, *point) for kind, points in sorted(self.rates.items()) for point in points]

    def on(self, model: str, batch: int, gpus: int) -> tuple[float, bool] | None:
        """Iterations/s, and whether they are stated for this number of GPUs; None if they are not known.

        Between two stated numbers of GPUs, the speed is on the straight line through both in logarithms.

        >>> speeds = Speeds.of([TableRow("m", 8, 2, 10.0), TableRow("m", 8, 8, 40.0)], "here")
        >>> speeds.on("m", 8, 8), speeds.on("m", 8, 16)
        ((40.0, True), None)
        >>> round(speeds.on("m", 8, 4)[0], 9)
        20.0
        """
        points = self.rates.get((model, batch), ())
        place = bisect(points, (gpus, float("inf")))
        if place and points[place - 1][0] == gpus:
            return points[place - 1][1], True
        if not 0 < place < len(points):
            return None
        (fewer, slow), (more_gpus, fast) = points[place - 1], points[place]
        share = log(gpus / fewer) / log(more_gpus / fewer)
        return exp(log(slow) + share * log(fast / slow)), False


def rates_of(jobs: Iterable[LoggedJob], source: str) -> list[TableRow]:
    """The speeds of jobs that state model, batch, iterations and run time. TableError if there are none."""
    rates = [
        TableRow(job.model, job.global_batch, job.gpus, job.iterations / job.duration_s)
        for job in jobs
        if job.model and job.global_batch and job.iterations and job.duration_s
    ]
    if not rates:
        problem = "no job states model, batch, iterations and run time"
        raise TableError(f"{source}: {problem}; name a log of jobs that do, or a folder of throughput tables")
    return rates


def work_of(jobs: Iterable[LoggedJob], source: str) -> dict[Kind, float]:
    """Kind of job -> the median of its iterations. Raises TableError if no job states them."""
    rates: dict[Kind, list[float]] = {}
    for job in jobs:
        if job.model and job.global_batch and job.iterations:
            rates.setdefault((job.model, job.global_batch), []).append(job.iterations)
    if not rates:
        raise TableError(f"{source}: no job states model, batch and iterations; name a log of jobs that do")
    return {kind: statistics.median(counts) for kind, counts in rates.items()}


def with_work(logged: Log, work: Mapping[Kind, float], source: str) -> Log:
    """The log, its jobs without iterations having those of `work`."""
    rows = logged.jobs.rows("iterations", "model", "global_batch")
    iterations = [
        work.get((model, batch)) if count is None and model and batch else count
        for count, model, batch in rows
    ]
    without = sum(count is None for count in logged.jobs.column("iterations"))
    count = without - iterations.count(None)
    note = f"{count:,} jobs have the median of the iterations of jobs in {source} of the same model and batch"
    jobs = logged.jobs.replaced(iterations=iterations)
    return replace(logged, jobs=jobs, assumptions=(*logged.assumptions, note))


def with_speeds(logged: Log, speeds: Speeds) -> Log:
    """The log, its jobs without run time having iterations over speed; those of unknown speed are dropped."""
    jobs, dropped, ways = PackedJobs(LoggedJob), list(logged.dropped), Counter[bool]()
    for job in logged.jobs:
        if job.duration_s is not None or not (job.model and job.global_batch and job.iterations):
            jobs.append(job)
            continue
        speed = speeds.on(job.model, job.global_batch, job.gpus)
        if speed is None:
            lacks = f"{speeds.source} has no speed of this model and batch on so many GPUs"
            of_what = f"{job.model}, {job.global_batch:,}, {job.gpus:,}"
            dropped.append(Dropped(job.line, job.job_id, f"{lacks}: {of_what}", lacks))
            continue
        rate, is_stated = speed
        ways[is_stated] += 1
        jobs.append(replace(job, duration_s=job.iterations / rate))
    note = (
        f"the run time of {ways.total():,} jobs is their iterations over the speed in {speeds.source} of the "
        f"same model and batch; for {ways[False]:,} of them it lies between those on fewer and on more GPUs"
    )
    return replace(logged, jobs=jobs, dropped=tuple(dropped), assumptions=(*logged.assumptions, note))


def settled(logged: Log) -> Log:
    """The log with every job as one that a trace can hold: by run time, or by iterations of a model.

    A job that has not ended runs for its estimate. One without estimate and iterations is dropped.
    """
    jobs, dropped, ways = logged.jobs, list(logged.dropped), Counter[str]()
    if logged.only_run_times:
        jobs = PackedJobs(LoggedJob, map(_by_run_time, jobs))
    places, run_times = array("q"), list[float | None]()
    facts = ("line", "job_id", "duration_s", "estimate_s", "model", "global_batch", "iterations")
    for place, (line, job_id, run_s, estimate_s, model, batch, iterations) in enumerate(jobs.rows(*facts)):
        if run_s is None and not (model and batch and iterations):
            if estimate_s is None:
                dropped.append(_without_run_time(line, job_id, bool(model and batch)))
                continue
            ways["estimate"] += 1
            run_s = estimate_s
        elif run_s is None:
            ways["iterations"] += 1
        places.append(place)
        run_times.append(run_s)
    jobs = jobs.taken(places)
    if ways["estimate"]:
        jobs = jobs.replaced(duration_s=run_times)
    assumptions, warnings = list(logged.assumptions), list(logged.warnings)
    if count := ways["estimate"]:
        assumptions.append(
            f"{count:,} jobs had not ended: each is taken to run for its estimate, the time limit"
        )
        warnings.append(f"{count:,} jobs had not ended: their run times are their time limits")
    if count := ways["iterations"]:
        problem = f"{count:,} jobs state iterations of a model and no run time"
        warnings.append(f"{problem}: the trace runs with a throughput table; --speeds SOURCE gives run times")
    return replace(
        logged,
        jobs=jobs,
        dropped=tuple(dropped),
        assumptions=tuple(assumptions),
        warnings=tuple(warnings),
    )


def _without_run_time(line: int, job_id: str, states_kind: bool) -> Dropped:
    """The row of a job of unknown run time; `states_kind`: whether it states model and batch."""
    if not states_kind:
        return Dropped(line, job_id, "has not ended, and states no time limit")
    lacks = "states neither run time nor iterations"
    remedy = "--work-of LOG and --speeds SOURCE take them from jobs of the same model and batch"
    return Dropped(line, job_id, f"{lacks}; {remedy}", lacks)


def _by_run_time(job: LoggedJob) -> LoggedJob:
    """The job without the work of a model, if it states its run time."""
    if job.duration_s is None:
        return job
    return replace(job, model=None, global_batch=None, iterations=None)
