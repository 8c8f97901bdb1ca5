"""What jobs ask for and how long they wait: offered load, waiting, the tail of a run. From records alone.

Notation as in `metrics`: G is the number of GPUs of the cluster, T0 the first submission, T1 the last finish.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import fsum

import numpy as np

from clustersim.cluster import Cluster
from clustersim.records import REJECTED, SERVED, Columns

from .arrays import (
    Array,
    Jobs,
    Usage,
    Value,
    job_columns,
    mean,
    of_finished,
    percentiles,
    reached,
    requested_gpus,
    span,
)

__all__ = [
    "HARDLY_ANY",
    "LONG_TAIL",
    "NEAR_BEST",
    "NEGLIGIBLE_WAIT",
    "admitted",
    "arrival_window",
    "differs_from_stated",
    "has_waited",
    "offered_load",
    "says_little",
    "share_of_gpus",
    "tail",
    "waiting",
]

NEGLIGIBLE_WAIT = 0.01
"""A job has waited if it was without GPUs for more than this share of its run time alone."""

HARDLY_ANY = 0.01
"""Where a smaller share of the jobs has waited, a run says little about scheduling."""
NEAR_BEST = 0.05
"""An elastic policy within this distance of the best possible leaves other policies little to gain."""

LONG_TAIL = 0.25
"""A tail of this share of the makespan deserves a note."""

_LOAD_TOLERANCE = 0.05  # of the load that a generated trace states
_ROUNDED_S = 2e-6  # two times that differ by less may be one, in tables of a microsecond
_FEW_JOBS = 0.01  # of all jobs: so few are the tail of a run
_SHORTEST_S = 1e-6  # of an arrival window; times are recorded to a microsecond

Interval = tuple[float, float]


def arrival_window(jobs: Jobs) -> Interval | None:
    """(first, last) submission of the jobs that the run reached; None without such a job."""
    columns = job_columns(jobs)
    submits = columns["submit_s"][reached(columns)]
    return (float(submits.min()), float(submits.max())) if len(submits) else None


def offered_load(jobs: Jobs, cluster: Cluster, window: Interval | None) -> dict[str, Value]:
    """offered_load = sum of gpus_j x isolated_j / (G x length of the window); `load_jobs`: the jobs in the
    sum. gpus_j of a job that shares a GPU is its part.

    The sum is over submitted jobs that can run here, admitted or not. isolated_j is the run time on the
    requested GPUs under the planner that runs, without waiting or overheads. On a cluster of several GPU
    types, both are those of the type that runs the request best, and G counts the GPUs of all types alike.
    The load is None if all jobs are submitted within a microsecond.
    """
    columns = job_columns(jobs)
    gpu_s = requested_gpus(columns) * columns["isolated_s"]
    covered = ~np.isnan(gpu_s)
    length_s = _length_s(window)
    load = None
    if length_s is not None and length_s >= _SHORTEST_S:
        load = fsum(gpu_s[covered].tolist()) / (cluster.gpus * length_s)
    return {"offered_load": load, "arrival_window_s": length_s, "load_jobs": int(covered.sum())}


def differs_from_stated(load: float, stated_load: float) -> bool:
    """Whether jobs offer another load than their trace states, by more than 5 %."""
    return abs(load / stated_load - 1) > _LOAD_TOLERANCE


def says_little(metrics: Mapping[str, object], elastic: bool) -> bool:
    """Whether the metrics of a run say little about scheduling: of the admitted jobs hardly any has waited.

    An `elastic` policy can run jobs on fewer GPUs where others let them wait. Its run says little only if
    mean JCT is also near the best possible; without a bound, if mean slowdown is as near to 1.
    """
    waited_ratio, over_bound, slowdown = (
        value if isinstance(value := metrics.get(name), int | float) else None
        for name in ("waited_ratio", "jct_over_bound", "slowdown_mean")
    )
    if waited_ratio is None or waited_ratio >= HARDLY_ANY:
        return False
    distance = slowdown if over_bound is None else over_bound
    return not elastic or distance is None or distance <= 1 + NEAR_BEST


def share_of_gpus(gpus: Array, usage: Usage, cluster: Cluster, window: Interval | None) -> float | None:
    """The integral over the window of `gpus`, one value per row of `usage`, / (G x length of the window).

    None for a window as short as where `offered_load` has none.
    """
    length_s = _length_s(window)
    if window is None or length_s is None or length_s < _SHORTEST_S:
        return None
    return usage.integral(gpus, *window) / (cluster.gpus * length_s)


def _length_s(window: Interval | None) -> float | None:
    return None if window is None else max(0.0, window[1] - window[0])


def waiting(jobs: Jobs) -> dict[str, Value]:
    """All time without GPUs, before the first start and after preemptions and failures: its mean and 99th
    percentile over F, and the share of admitted jobs that have waited (`NEGLIGIBLE_WAIT`).

    A job that pays an overhead holds its GPUs, so it does not wait.
    """
    columns = job_columns(jobs)
    waits = of_finished(columns, "wait_s")
    among = int(admitted(columns).sum())
    share = int(has_waited(columns).sum()) / among if among else None
    return {"wait_mean_s": mean(waits), "wait_p99_s": percentiles(waits, 99)[0], "waited_ratio": share}


def admitted(jobs: Columns) -> Array:
    """For each job, whether it can run here and the policy accepted it; not for instances of services."""
    not_admitted = jobs.equal("state", REJECTED) | jobs.equal("state", SERVED)
    return ~np.isnan(jobs["isolated_s"]) & ~not_admitted


def has_waited(jobs: Columns, beyond_s: float = 0.0) -> Array:
    """For each job, whether it was admitted, and was without GPUs for `beyond_s` seconds more than a
    negligible time.
    """
    return admitted(jobs) & (jobs["wait_s"] > NEGLIGIBLE_WAIT * jobs["isolated_s"] + beyond_s)


def tail(jobs: Jobs, usage: Usage) -> dict[str, Value]:
    """The end of the run that a few jobs have to themselves: `tail_jobs`, and its share of the makespan.

    The tail begins after the last submission, when for the last time before T1 more than a hundredth of all
    jobs (at least one) were running or waiting. It ends at T1. `tail_jobs` are in the system as it begins.
    """
    columns, interval = job_columns(jobs), span(jobs)
    if interval is None or interval[1] <= interval[0]:
        return {"tail_jobs": None, "tail_ratio": None}
    first_s, last_s = interval
    many = (usage.jobs > max(1.0, _FEW_JOBS * len(columns))) & (usage.time_s < last_s)
    window = arrival_window(columns)
    from_s = first_s if window is None else window[1]
    if many.any():
        until_s = np.append(usage.time_s[1:], usage.end_s)  # of each row
        from_s = max(from_s, float(until_s[many][-1]))
    if from_s >= last_s:
        return {"tail_jobs": 0, "tail_ratio": 0.0}
    row = int(np.searchsorted(usage.time_s, from_s + _ROUNDED_S, side="right")) - 1
    job_count = int(usage.jobs[row]) if row >= 0 else 0
    return {"tail_jobs": job_count, "tail_ratio": (last_s - from_s) / (last_s - first_s)}
