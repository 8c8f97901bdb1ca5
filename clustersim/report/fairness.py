"""Results by class of jobs: by tenant, and by requested GPUs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import fsum

from clustersim.records import FINISHED, JobRecord, Run

from .numbers import duration
from .runs import Named, named

__all__ = ["SIZES", "Class", "by_size", "by_tenant", "mean_slowdown", "size_of"]

_MOST_TENANTS = 12
SIZES = ((1, "1 GPU"), (7, "2 to 7"), (8, "8"), (63, "9 to 63"), (511, "64 to 511"), (10**9, "512 and more"))


@dataclass(frozen=True)
class Class:
    """One class of jobs. Cells per run: submitted, finished, GPU-hours, share of GPU-hours, mean queueing,
    mean JCT, mean slowdown, deadlines met.
    """

    name: str
    rows: tuple[tuple[Named, tuple[str, ...]], ...]


def by_tenant(runs: Sequence[Run]) -> list[Class]:
    """Classes by tenant, most GPU-hours first. The tenants after the first twelve share a class. Empty for a
    single tenant.
    """
    held: dict[str, list[float]] = {}
    for run in runs:
        for job in run.jobs:
            held.setdefault(job.tenant, []).append(job.gpu_seconds)
    tenants = sorted(held, key=lambda tenant: (-fsum(held[tenant]), tenant))
    if len(tenants) < 2:
        return []
    shown = {tenant: i for i, tenant in enumerate(tenants[:_MOST_TENANTS])}
    rest = f"{len(tenants) - _MOST_TENANTS:,} other tenants"
    return _classes(runs, lambda job: shown.get(job.tenant, _MOST_TENANTS), [*shown, rest])


def by_size(runs: Sequence[Run]) -> list[Class]:
    """Classes by requested GPUs, without empty classes."""
    return _classes(runs, size_of, [name for _, name in SIZES])


def size_of(job: JobRecord) -> int:
    """The index in `SIZES` of a job's class. Jobs that state no GPUs belong to the first."""
    return next(i for i, (most, _) in enumerate(SIZES) if (job.gpus or 1) <= most)


def mean_slowdown(jobs: Sequence[JobRecord]) -> float | None:
    """Mean ratio of JCT to run time on the requested GPUs; None if no job has both."""
    ratios = [job.jct_s / job.isolated_s for job in jobs if job.jct_s and job.isolated_s]
    return fsum(ratios) / len(ratios) if ratios else None


def _classes(runs: Sequence[Run], number: Callable[[JobRecord], int], names: Sequence[str]) -> list[Class]:
    rows: list[list[tuple[Named, tuple[str, ...]]]] = [[] for _ in names]
    for one in named(runs):
        members: list[list[JobRecord]] = [[] for _ in names]
        for job in one.run.jobs:
            members[number(job)].append(job)
        all_held = fsum(job.gpu_seconds for job in one.run.jobs)
        for i, jobs in enumerate(members):
            if jobs:
                rows[i].append((one, _cells(jobs, all_held)))
    return [Class(name, tuple(row)) for name, row in zip(names, rows, strict=True) if row]


def _cells(jobs: Sequence[JobRecord], all_held: float) -> tuple[str, ...]:
    finished = [job for job in jobs if job.state == FINISHED]
    held = fsum(job.gpu_seconds for job in jobs)
    queued_s = _mean([job.queue_s for job in finished if job.queue_s is not None])
    jct_s = _mean([job.jct_s for job in finished if job.jct_s is not None])
    slowdown = mean_slowdown(finished)
    met = [bool(job.deadline_met) for job in jobs if job.deadline_s is not None]
    return (
        f"{len(jobs):,}",
        f"{len(finished):,}",
        f"{held / 3600:,.0f}",
        f"{100 * held / all_held:.1f} %" if all_held else "–",
        duration(queued_s, max(queued_s or 0.0, jct_s or 0.0)),
        duration(jct_s, max(queued_s or 0.0, jct_s or 0.0)),
        "–" if slowdown is None else f"{slowdown:,.2f}",
        f"{100 * sum(met) / len(met):.1f} %" if met else "–",
    )


def _mean(values: Sequence[float]) -> float | None:
    return fsum(values) / len(values) if values else None
