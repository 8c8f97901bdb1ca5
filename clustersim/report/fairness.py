"""Results by class of jobs: by tenant, and by requested GPUs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import fsum

import numpy as np

from clustersim.analysis.arrays import mean
from clustersim.analysis.tables import RecordTable, finished, jobs_of, numbered, rows_by_number
from clustersim.records import Run

from .numbers import duration
from .runs import Named, named

__all__ = ["SIZES", "Class", "by_size", "by_tenant", "mean_known", "size_numbers", "slowdowns"]

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
        jobs = jobs_of(run)
        numbers, tenants = numbered(jobs.values("tenant"))
        for tenant, rows in zip(tenants, rows_by_number(numbers, len(tenants)), strict=True):
            held.setdefault(tenant, []).extend(jobs["gpu_seconds"][rows].tolist())
    tenants = sorted(held, key=lambda tenant: (-fsum(held[tenant]), tenant))
    if len(tenants) < 2:
        return []
    place_of_tenant = {tenant: i for i, tenant in enumerate(tenants[:_MOST_TENANTS])}
    others_text = f"{len(tenants) - _MOST_TENANTS:,} other tenants"

    def number_of(jobs: RecordTable) -> np.ndarray:
        return np.array([place_of_tenant.get(tenant, _MOST_TENANTS) for tenant in jobs.values("tenant")])

    return _classes(runs, number_of, [*place_of_tenant, others_text])


def by_size(runs: Sequence[Run]) -> list[Class]:
    """Classes by requested GPUs, without empty classes."""
    return _classes(runs, size_numbers, [name for _, name in SIZES])


def size_numbers(jobs: RecordTable) -> np.ndarray:
    """For each job, the index in `SIZES` of its class. Jobs that state no GPUs belong to the first."""
    gpus = jobs["gpus"]
    return np.searchsorted([upper_gpus for upper_gpus, _ in SIZES], np.where(gpus > 0, gpus, 1.0))


def slowdowns(jobs: RecordTable) -> np.ndarray:
    """For each job, the ratio of JCT to run time on the requested GPUs; NaN unless both are positive."""
    jct_s, isolated_s = jobs["jct_s"], jobs["isolated_s"]
    is_defined = (jct_s > 0) & (isolated_s > 0)  # not for NaN
    return np.divide(jct_s, isolated_s, out=np.full(len(jobs), np.nan), where=is_defined)


def mean_known(values: np.ndarray) -> float | None:
    """The mean of the values that are not NaN; None if there are none."""
    return mean(values[~np.isnan(values)])


def _classes(
    runs: Sequence[Run], number_of: Callable[[RecordTable], np.ndarray], names: Sequence[str]
) -> list[Class]:
    class_members: list[list[tuple[Named, np.ndarray]]] = [[] for _ in names]
    for named_run in named(runs):
        numbers = number_of(jobs_of(named_run.run))
        for i, members in enumerate(class_members):
            if (numbers == i).any():
                members.append((named_run, numbers == i))
    times = (
        s for members in class_members for named_run, jobs in members for s in _times(named_run.run, jobs)
    )
    longest_s = max((s for s in times if s is not None), default=0.0)
    rows = [
        [(named_run, _cells(named_run.run, jobs, longest_s)) for named_run, jobs in members]
        for members in class_members
    ]
    return [Class(name, tuple(row)) for name, row in zip(names, rows, strict=True) if row]


def _times(run: Run, mask: np.ndarray) -> tuple[float | None, float | None]:
    """Mean queueing and mean JCT of the chosen jobs that finished."""
    jobs, done = jobs_of(run), mask & finished(run)
    return mean_known(jobs["queue_s"][done]), mean_known(jobs["jct_s"][done])


def _cells(run: Run, mask: np.ndarray, longest_s: float) -> tuple[str, ...]:
    """`longest_s`: the longest time of the table, which decides the unit of all of them."""
    jobs, done = jobs_of(run), mask & finished(run)
    held, all_held = (fsum(jobs["gpu_seconds"][rows].tolist()) for rows in (mask, slice(None)))
    queued_s, jct_s = _times(run, mask)
    slowdown = mean_known(slowdowns(jobs)[done])
    has_deadline = mask & ~np.isnan(jobs["deadline_s"])
    met = has_deadline & (jobs["deadline_met"] == 1)
    return (
        f"{mask.sum():,}",
        f"{done.sum():,}",
        f"{held / 3600:,.0f}",
        f"{100 * held / all_held:.1f} %" if all_held else "–",
        duration(queued_s, longest_s),
        duration(jct_s, longest_s),
        "–" if slowdown is None else f"{slowdown:,.2f}",
        f"{100 * met.sum() / has_deadline.sum():.1f} %" if has_deadline.any() else "–",
    )
