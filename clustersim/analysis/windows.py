"""Metrics of a part of the jobs: of a window without the filling and the draining of the cluster, and of the
jobs that two runs finished.

The window is warm-up deletion (Law, Simulation Modeling and Analysis, section 9.5). Runs, reports and grids
share these definitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from clustersim.cluster import Cluster
from clustersim.records import Run
from itertime.errors import UserError
from itertime.spec import DEFAULT_USD_PER_GPU_HOUR

from .arrays import Jobs, Snapshots, Usage, Value, job_columns
from .demand import arrival_window, offered_load, share_of_gpus, waiting
from .metrics import METRICS, completion_times, queueing, slowdowns, summarise
from .tables import finished, jobs_of, per_run

__all__ = [
    "OVER_FINISHED",
    "UNDEFINED_IN_A_WINDOW",
    "PairedMetrics",
    "check_window",
    "measured_jobs",
    "paired_metrics",
    "window_metrics",
    "window_summary",
    "with_window",
]

UNDEFINED_IN_A_WINDOW = (
    "makespan_s", "tail_jobs", "tail_ratio", "gpu_useful_ratio", "events",
    "jct_over_bound", "makespan_over_bound", "deadlines_of_bound",
)  # fmt: skip
"""Makespan, tail, bounds and length of the event log belong to a whole run. Useful GPU time needs overheads
by time, and records state overheads by job.
"""

_OF_THE_MACHINE = ("wall_s", "policy_wall_s")
_HALF_STEP_S = 5e-7
"""Times are recorded to a microsecond, so a job submitted this little before a limit is submitted at it."""


def window_metrics(
    jobs: Jobs, snapshots: Snapshots, cluster: Cluster, *,
    warmup_s: float, measure_s: float | None, price_usd_per_gpu_h: float = DEFAULT_USD_PER_GPU_HOUR,
) -> dict[str, Value]:  # fmt: skip
    """The metrics of a window.

    The window begins at T0 + `warmup_s` and ends `measure_s` later, or just after the last submission if
    `measure_s` is None. Jobs submitted in the window count, however late they finish. Ratios of allocated and
    stranded GPUs are time averages over the window, at most until the last submission that the run reached:
    after it the cluster drains. The offered load refers to the same time. The metrics of
    `UNDEFINED_IN_A_WINDOW` are None.
    """
    columns = job_columns(jobs)
    from_s, until_s, end_s = _bounds(jobs, warmup_s, measure_s)
    submit_s = columns["submit_s"] + _HALF_STEP_S
    window_jobs = columns.where((submit_s >= from_s) & (submit_s < end_s))
    usage = Usage.of(snapshots, until_s)
    values = summarise(
        window_jobs, snapshots, cluster, end_s=usage.end_s, events=0, price_usd_per_gpu_h=price_usd_per_gpu_h
    )
    values |= dict.fromkeys(UNDEFINED_IN_A_WINDOW)
    values |= offered_load(window_jobs, cluster, (from_s, until_s))
    allocated, stranded = (
        share_of_gpus(gpus, usage, cluster, (from_s, until_s)) for gpus in (usage.allocated, usage.stranded)
    )
    values |= {"gpu_allocated_ratio": allocated, "gpu_allocated_arrival_ratio": allocated}
    return values | {"fragmentation_ratio": stranded}


def _bounds(jobs: Jobs, warmup_s: float, measure_s: float | None) -> tuple[float, float, float]:
    """(beginning of the window, end of the time in which the cluster is measured, end for submissions)."""
    columns = job_columns(jobs)
    first_s = float(columns["submit_s"].min()) if len(columns) else 0.0
    arrivals = arrival_window(columns)
    from_s = first_s + warmup_s
    end_s = inf if measure_s is None else from_s + measure_s
    last_s = first_s if arrivals is None else arrivals[1]
    return from_s, max(from_s, min(end_s, last_s)), end_s


def window_summary(
    jobs: Jobs, snapshots: Snapshots, cluster: Cluster, *,
    warmup_s: float, measure_s: float | None, price_usd_per_gpu_h: float = DEFAULT_USD_PER_GPU_HOUR,
) -> dict[str, Value]:  # fmt: skip
    """What `summary.json` states as `window`: the settings, `from_s` and `until_s` on the trace's clock, then
    the metrics that a window has.
    """
    columns = job_columns(jobs)
    values = window_metrics(
        columns, snapshots, cluster,
        warmup_s=warmup_s, measure_s=measure_s, price_usd_per_gpu_h=price_usd_per_gpu_h,
    )  # fmt: skip
    from_s, until_s, _ = _bounds(columns, warmup_s, measure_s)
    absent = (*UNDEFINED_IN_A_WINDOW, *_OF_THE_MACHINE)
    return {
        "warmup_s": warmup_s,
        "measure_s": measure_s,
        "from_s": from_s,
        "until_s": until_s,
        **{name: values[name] for name in METRICS if name not in absent},
    }


def check_window(submits: Iterable[float], warmup_s: float, measure_s: float | None) -> None:
    """UserError, with a remedy, if no job is submitted in the window. `submits`: in ascending order."""
    first_s = last_s = None
    for submit_s in submits:
        first_s = submit_s if first_s is None else first_s
        last_s = submit_s - first_s
        if last_s >= warmup_s - _HALF_STEP_S:
            if measure_s is None or last_s < warmup_s + measure_s - _HALF_STEP_S:
                return
            problem = f"no job is submitted from {warmup_s:,g} to {warmup_s + measure_s:,g} s after the first"
            remedy = f"the next comes after {last_s:,g} s: measure longer, or choose another warm-up"
            raise UserError(f"warmup_s={warmup_s:g}, measure_s={measure_s:g}: {problem}; {remedy}")
    if last_s is None:
        raise UserError(f"warmup_s={warmup_s:g}: the trace has no job, so there is nothing to measure")
    problem = f"no job is submitted later than {last_s:,g} s after the first"
    raise UserError(f"warmup_s={warmup_s:g}: {problem}; choose a shorter warm-up")


@per_run
def measured_jobs(run: Run) -> np.ndarray:
    """For each job, whether the window of the run covers it; without a window, all are covered."""
    window = run.summary.get("window")
    if not isinstance(window, Mapping):
        return np.ones(len(run.jobs), bool)
    numbers = [window.get(name) for name in ("warmup_s", "measure_s")]
    warmup_s, measure_s = (float(n) if isinstance(n, int | float) else None for n in numbers)
    from_s, _, end_s = _bounds(run.jobs, warmup_s or 0.0, measure_s)
    submit_s = jobs_of(run)["submit_s"] + _HALF_STEP_S
    return (from_s <= submit_s) & (submit_s < end_s)


OVER_FINISHED = (
    "jct_mean_s", "jct_p50_s", "jct_p90_s", "jct_p99_s", "queue_mean_s", "queue_p99_s",
    "wait_mean_s", "wait_p99_s", "slowdown_mean", "jain_index",
)  # fmt: skip
"""The metrics that are averages over finished jobs, which differ where policies finish different jobs."""


@dataclass(frozen=True)
class PairedMetrics:
    """The metrics `OVER_FINISHED` of a run and of its baseline, over the `jobs` that both finished.
    `is_whole`: these are all the jobs that each of the two finished.
    """

    jobs: int
    variant: Mapping[str, float | None]
    baseline: Mapping[str, float | None]
    is_whole: bool


def paired_metrics(run: Run, baseline: Run) -> PairedMetrics | None:
    """What every comparison of two runs of one trace is made of: averages over the same jobs. None for runs
    of different jobs.
    """
    run_jobs, baseline_jobs = jobs_of(run), jobs_of(baseline)
    if any(run_jobs.values(name) != baseline_jobs.values(name) for name in ("job_id", "submit_s")):
        return None
    run_finished, baseline_finished = (
        measured_jobs(pair_run) & finished(pair_run) for pair_run in (run, baseline)
    )
    common_jobs = run_finished & baseline_finished
    return PairedMetrics(
        jobs=int(common_jobs.sum()),
        variant=_of_jobs(run, common_jobs),
        baseline=_of_jobs(baseline, common_jobs),
        is_whole=bool((run_finished == baseline_finished).all()),
    )


def _of_jobs(run: Run, jobs: np.ndarray) -> dict[str, float | None]:
    """The metrics `OVER_FINISHED` over some finished jobs of a run."""
    columns = job_columns(run.jobs).where(jobs)
    values = {**completion_times(columns), **queueing(columns), **waiting(columns), **slowdowns(columns)}
    return {name: None if (value := values[name]) is None else float(value) for name in OVER_FINISHED}


def with_window(run: Run, warmup_s: float, measure_s: float | None) -> Run:
    """The run with the metrics of a window in its summary. UserError for a window without jobs."""
    check_window(sorted(job.submit_s for job in run.jobs), warmup_s, measure_s)
    price = run.manifest.get("price_usd_per_gpu_h", DEFAULT_USD_PER_GPU_HOUR)
    window = window_summary(
        run.jobs, run.snapshots, run.cluster,
        warmup_s=warmup_s, measure_s=measure_s, price_usd_per_gpu_h=price,
    )  # fmt: skip
    return replace(run, summary={**run.summary, "window": window})
