"""Traces made of a trace: a part of it, or the whole with other times, GPUs or number of jobs."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace

from itertime.errors import UserError
from traces.job import MAX_GPUS, Job
from traces.native import unreadable
from traces.summary import Request, demand, stated_request
from traces.workload import stream

__all__ = ["Scaling", "TraceSelection", "scaled", "sliced"]

_MOST_FACTOR = 1e6
_MOST_JOBS = 10_000_000
_TIMES = ("deadline_s", "logged_start_s")


@dataclass(frozen=True)
class TraceSelection:
    """Which jobs of a trace are kept.

    | field | meaning |
    |---|---|
    | from_s, until_s | those submitted from this time to before that one, on the trace's clock |
    | users | those whose user or tenant is one of these; empty: of all |
    | least_gpus, most_gpus | those that ask for so many GPUs; a job without a request counts its least |
    | sample, seed | a random share of all jobs of the trace, drawn before anything else is looked at |
    | first | of the jobs that remain the first so many |
    """

    from_s: float = 0.0
    until_s: float = math.inf
    users: Collection[str] = ()
    least_gpus: int = 1
    most_gpus: int = MAX_GPUS
    sample: float = 1.0
    seed: int = 0
    first: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.from_s < self.until_s:
            raise UserError(f"--from {self.from_s:g} --to {self.until_s:g}: must be 0 <= from < to")
        if not 1 <= self.least_gpus <= self.most_gpus:
            raise UserError(f"--gpus {self.least_gpus}..{self.most_gpus}: must be 1 <= MIN <= MAX")
        if not 0 < self.sample <= 1:
            raise UserError(f"--sample {self.sample:g}: must be above 0 and at most 1")
        if self.first is not None and self.first < 1:
            raise UserError(f"--first {self.first}: must be at least 1")

    def __contains__(self, job: Job) -> bool:
        gpus = job.gpus or job.min_gpus or 1
        owned = not self.users or job.user in self.users or job.tenant in self.users
        in_time = self.from_s <= job.submit_s < self.until_s
        return in_time and owned and self.least_gpus <= gpus <= self.most_gpus


@dataclass(frozen=True)
class Scaling:
    """What is changed of a trace, in this order.

    | field | meaning |
    |---|---|
    | jobs, seed | so many jobs at the same rate: a random sample with shorter gaps, or the trace repeated |
    | gpus | factor of the GPUs that jobs ask for, rounded, at least 1; run times stay |
    | time | factor of the gaps between submissions |
    | load, on_gpus | the factor of the gaps is the one that gives this load on so many GPUs |
    """

    jobs: int | None = None
    gpus: float = 1.0
    time: float = 1.0
    load: float | None = None
    on_gpus: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("gpus", "time"):
            if not 1 / _MOST_FACTOR <= getattr(self, name) <= _MOST_FACTOR:
                raise UserError(f"--{name} {getattr(self, name):g}: must be from 1e-6 to 1e6")
        if self.jobs is not None and not 1 <= self.jobs <= _MOST_JOBS:
            raise UserError(f"--jobs {self.jobs}: must be from 1 to {_MOST_JOBS:,}")
        if (self.load is None) != (self.on_gpus is None):
            raise UserError("--load X and --on GPUS: state both, the load and the GPUs that it refers to")
        if self.load is not None and (not 0 < self.load < math.inf or self.time != 1):
            raise UserError(f"--load {self.load:g}: must be above 0, and without --time, which it determines")


def sliced(jobs: Iterable[Job], part: TraceSelection) -> tuple[list[Job], float]:
    """The jobs of a part, in their order, and the time that becomes 0 of the clock: that of the first.

    Deadlines and logged starts keep their distance from the submission. Raises UserError if no job is left.
    """
    rows = list(jobs)
    drawn = stream(part.seed, "sample").random(len(rows)) < part.sample
    selected_jobs = [
        job for job, is_drawn in zip(rows, drawn.tolist(), strict=True) if is_drawn and job in part
    ]
    selected_jobs = selected_jobs[: part.first]
    if not selected_jobs:
        raise UserError(f"none of the {len(rows):,} jobs is left; widen the selection")
    zero_s = selected_jobs[0].submit_s
    return [_moved(job, job.submit_s - zero_s) for job in selected_jobs], zero_s


def scaled(
    jobs: Iterable[Job], scaling: Scaling, request: Request = stated_request
) -> tuple[list[Job], float]:
    """The jobs of a scaled trace in the same order, and the factor by which the gaps were multiplied.

    The first submission stays where it is. Run times, iterations, estimates, and the distances of deadlines
    and logged starts from the submission do not change. `request` says what a job asks for, by which the load
    counts. Raises UserError for a load that no factor gives, and for a job that a trace cannot hold.
    """
    rows = list(jobs)
    rows, factor = _of_number(rows, scaling.jobs, scaling.seed)
    rows = [_with_gpus(job, scaling.gpus) for job in rows]
    factor *= scaling.time
    if scaling.load is not None and scaling.on_gpus is not None:
        mean_gpus = demand(rows, request)["mean_gpus"]
        if mean_gpus is None:
            raise UserError(f"--load {scaling.load:g}: the trace has no load: no run times, or one instant")
        factor = mean_gpus / scaling.on_gpus / scaling.load
    zero_s = rows[0].submit_s
    rows = [_moved(job, zero_s + (job.submit_s - zero_s) * factor) for job in rows]
    for job in rows:
        if reason := unreadable(job):
            raise UserError(f"job {job.job_id}: {reason[0]}, so that no trace can hold it; scale by less")
    return rows, factor


def _of_number(rows: list[Job], count: int | None, seed: int) -> tuple[list[Job], float]:
    """So many jobs, and the factor of their gaps that keeps the number of jobs a second."""
    if count is None or count == len(rows):
        return rows, 1.0
    if count > len(rows):
        return list(_repeated(rows, count)), 1.0
    order = stream(seed, "sample").permutation(len(rows))[:count]
    order.sort()
    drawn_jobs = [rows[i] for i in order.tolist()]
    span_s, of_kept_s = (jobs[-1].submit_s - jobs[0].submit_s for jobs in (rows, drawn_jobs))
    wanted_s = span_s * (count - 1) / (len(rows) - 1)
    return drawn_jobs, wanted_s / of_kept_s if of_kept_s else 1.0


def _repeated(rows: list[Job], count: int) -> Iterator[Job]:
    """The jobs again and again, a mean gap after the last; `~2` marks the ids of the second time."""
    first_s, last_s = rows[0].submit_s, rows[-1].submit_s
    period_s = (last_s - first_s) * len(rows) / max(1, len(rows) - 1)
    for i in range(count):
        turn, job = divmod(i, len(rows))
        again = _moved(rows[job], rows[job].submit_s + turn * period_s)
        yield replace(again, job_id=f"{again.job_id}~{turn + 1}") if turn else again


def _with_gpus(job: Job, factor: float) -> Job:
    if factor == 1:
        return job
    fields = {name: getattr(job, name) for name in ("gpus", "min_gpus", "max_gpus")}
    return replace(
        job, **{name: max(1, round(value * factor)) for name, value in fields.items() if value is not None}
    )


def _moved(job: Job, submit_s: float) -> Job:
    """The job submitted at another time, its other times at their distance from the submission."""
    if submit_s == job.submit_s:
        return job
    times = {name: getattr(job, name) for name in _TIMES}
    moved = {
        name: max(submit_s, submit_s + (time_s - job.submit_s))
        for name, time_s in times.items()
        if time_s is not None
    }
    return replace(job, submit_s=submit_s, **moved)
