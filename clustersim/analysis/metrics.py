"""Metrics of a run, from records alone; three of them also divide by a bound of the run (`against_bound`).
`docs/metrics.md` lists every formula.

Notation: a job j has submit_j, start_j (its first start), finish_j, isolated_j (`isolated_s`) and gpus_j. F
is the set of finished jobs, G the number of GPUs of the cluster, T0 the first submission and T1 the last
finish of any job. An undefined metric (no finished job, no deadline) is None, never NaN. Sums are exact and
rounded once (`math.fsum`), so neither vector units nor the order of summation change a digit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import fsum

import numpy as np

from clustersim.cluster import Cluster
from clustersim.energy import Energy
from clustersim.records import FINISHED, STATES, Columns
from itertime.spec import DEFAULT_USD_PER_GPU_HOUR

from .arrays import (
    Array,
    Jobs,
    Snapshots,
    Usage,
    Value,
    job_columns,
    mean,
    of_finished,
    percentiles,
    requested_gpus,
    span,
)
from .demand import admitted, arrival_window, offered_load, share_of_gpus, tail, waiting

__all__ = [
    "METRICS",
    "against_bound",
    "completion_times",
    "cost_usd",
    "deadlines",
    "disruptions",
    "energy_kwh",
    "finish_time_fairness",
    "host_summary",
    "job_counts",
    "makespan_s",
    "queueing",
    "slowdowns",
    "summarise",
    "utilisation",
]

METRICS = (
    "jobs", *STATES, "offered_load", "arrival_window_s", "load_jobs",
    "jct_mean_s", "jct_p50_s", "jct_p90_s", "jct_p99_s", "queue_mean_s", "queue_p99_s",
    "wait_mean_s", "wait_p99_s", "waited_ratio", "makespan_s", "tail_jobs", "tail_ratio",
    "gpu_allocated_ratio", "gpu_allocated_arrival_ratio", "gpu_useful_ratio", "fragmentation_ratio",
    "deadline_jobs", "deadline_met_ratio",
    "jct_over_bound", "makespan_over_bound", "deadlines_of_bound",
    "preemptions", "resizes", "restarts", "migrations", "interruptions", "lost_gpu_h", "slowdown_mean",
    "finish_time_fairness_max", "jain_index", "cost_usd", "wall_s", "policy_wall_s", "events", "covers",
)  # fmt: skip
"""The names of all metrics, in the order of a summary."""


def summarise(
    jobs: Jobs, snapshots: Snapshots, cluster: Cluster, *,
    end_s: float, events: int, price_usd_per_gpu_h: float = DEFAULT_USD_PER_GPU_HOUR,
    bound: Mapping[str, float | None] | None = None,
) -> dict[str, Value]:  # fmt: skip
    """All metrics of one run, by name, in the order of `METRICS`.

    `jobs`: the record of every submitted job; `snapshots`: the use of the cluster; both as records or as
    columns. `end_s`: the end of the run on the trace's clock. `events`: the length of the event log.
    `bound`: what no policy can do better, for `against_bound`. `wall_s` and `policy_wall_s` are None because
    they depend on the machine; the manifest states them under `timings`. So equal inputs give equal
    summaries, byte for byte.
    """
    usage, jobs = Usage.of(snapshots, end_s), job_columns(jobs)
    arrivals = arrival_window(jobs)
    values: dict[str, Value] = {
        **job_counts(jobs),
        **offered_load(jobs, cluster, arrivals),
        **completion_times(jobs),
        **queueing(jobs),
        **waiting(jobs),
        "makespan_s": makespan_s(jobs),
        **tail(jobs, usage),
        **utilisation(jobs, usage, cluster),
        "gpu_allocated_arrival_ratio": share_of_gpus(usage.allocated, usage, cluster, arrivals),
        **deadlines(jobs),
        **disruptions(jobs),
        **slowdowns(jobs),
        "finish_time_fairness_max": finish_time_fairness(jobs, usage, cluster),
        "cost_usd": cost_usd(jobs, price_usd_per_gpu_h),
        "wall_s": None,
        "policy_wall_s": None,
        "events": events,
        "covers": _covers(jobs),
    }
    values |= against_bound(values, bound)
    return {name: values[name] for name in METRICS}


def job_counts(jobs: Jobs) -> dict[str, Value]:
    """jobs = finished + rejected + unfinished + failed: every submitted job has one of these states."""
    columns = job_columns(jobs)
    counts: dict[str, Value] = {"jobs": len(columns)}
    for state in STATES:
        counts[state] = int(columns.equal("state", state).sum())
    return counts


def completion_times(jobs: Jobs) -> dict[str, Value]:
    """Job completion time, JCT_j = finish_j - submit_j over F: mean and percentiles.

    Percentiles interpolate linearly between order statistics (type 7 of Hyndman and Fan, 1996).
    """
    jct = of_finished(jobs, "jct_s")
    p50, p90, p99 = percentiles(jct, 50, 90, 99)
    return {"jct_mean_s": mean(jct), "jct_p50_s": p50, "jct_p90_s": p90, "jct_p99_s": p99}


def queueing(jobs: Jobs) -> dict[str, Value]:
    """Queueing delay, start_j - submit_j over F: the wait until the first start, without later waits."""
    queue = of_finished(jobs, "queue_s")
    return {"queue_mean_s": mean(queue), "queue_p99_s": percentiles(queue, 99)[0]}


def makespan_s(jobs: Jobs) -> float | None:
    """T1 - T0: the last finish minus the first submission; None if no job finished."""
    interval = span(jobs)
    return interval[1] - interval[0] if interval else None


def utilisation(jobs: Jobs, usage: Usage, cluster: Cluster) -> dict[str, Value]:
    """Shares of the GPU-seconds that the cluster had until the last finish, G x (T1 - T0).

    Allocated: the integral of the allocated GPUs over [T0, T1], equal to the sum of gpu_seconds if every job
    that ran has finished. Useful: allocated minus the sums of overhead_gpu_s and lost_work_gpu_s. If jobs
    still ran at the end, useful is a lower bound (of at least 0), because it counts overheads paid after T1.
    Fragmentation: the integral of the free GPUs on partly used nodes.
    """
    interval = span(jobs)
    if interval is None or interval[1] <= interval[0]:
        return dict.fromkeys(("gpu_allocated_ratio", "gpu_useful_ratio", "fragmentation_ratio"))
    available = cluster.gpus * (interval[1] - interval[0])
    allocated = usage.integral(usage.allocated, *interval)
    useful = max(0.0, allocated - _lost_gpu_s(job_columns(jobs)))
    return {
        "gpu_allocated_ratio": allocated / available,
        "gpu_useful_ratio": useful / available,
        "fragmentation_ratio": usage.integral(usage.stranded, *interval) / available,
    }


def host_summary(jobs: Jobs, cluster: Cluster, end_s: float, packs: int = 1) -> dict[str, Value] | None:
    """What jobs held of the cores and the host memory; None where no node states any, and for a policy that
    runs several jobs on the same GPUs (`packs`), whose parts of GPUs the records do not state.

    cpu_h: the sum of cpus_per_gpu_j x GPU-hours_j, in core-hours, where a job on part of a GPU counts as one
    of 1 GPU. cpu_ratio: cpu_h over the core-hours of all nodes from T0 to the end of the run; None if some
    nodes state no cores. memory_gb_h, memory_ratio: the same of host memory.
    """
    if not cluster.states_host or packs > 1:
        return None
    columns = job_columns(jobs)
    gpu_h = columns["gpu_seconds"] / np.nan_to_num(columns["gpu_fraction"], nan=1.0) / 3600
    hours = (end_s - float(columns["submit_s"].min())) / 3600 if len(columns) else 0.0
    figures: dict[str, Value] = {}
    for name, unit, field, of_node in (
        ("cpu", "cpu_h", "cpus_per_gpu", "cpus_per_node"),
        ("memory", "memory_gb_h", "host_gb_per_gpu", "host_memory_gb_per_node"),
    ):
        held = fsum((np.nan_to_num(columns[field]) * gpu_h).tolist())
        amounts = [(getattr(group, of_node), group.nodes) for group in cluster.groups]
        had = hours * sum((amount or 0) * nodes for amount, nodes in amounts)
        is_limited = had > 0 and all(amount is not None for amount, _ in amounts)
        figures |= {unit: held, f"{name}_ratio": held / had if is_limited else None}
    return figures


def energy_kwh(jobs: Jobs, cluster: Cluster, end_s: float, energy: Energy) -> float:
    """Kilowatt-hours of all GPUs of the cluster from the first submission to the end of the run: a job's GPUs
    train but in its overhead_gpu_s, and all others are idle.
    """
    columns = job_columns(jobs)
    if not len(columns):
        return 0.0
    held, overheads = (fsum(columns[name].tolist()) for name in ("gpu_seconds", "overhead_gpu_s"))
    gpu_s = cluster.gpus * (end_s - float(columns["submit_s"].min()))
    return energy.kwh(max(gpu_s, held), max(0.0, held - overheads))


def deadlines(jobs: Jobs) -> dict[str, Value]:
    """deadline_jobs: submitted jobs with a deadline; deadline_met_ratio: those with finish_j <= deadline_j.

    Rejected, failed and unfinished jobs count as missed.
    """
    columns = job_columns(jobs)
    met = columns["deadline_met"][~np.isnan(columns["deadline_s"])] == 1.0
    return {"deadline_jobs": len(met), "deadline_met_ratio": int(met.sum()) / len(met) if len(met) else None}


def against_bound(values: Mapping[str, Value], bound: Mapping[str, float | None] | None) -> dict[str, Value]:
    """Metrics over what no policy can do better: jct_over_bound = jct_mean_s / its bound (at least 1),
    makespan_over_bound = makespan_s / its bound (at least 1), deadlines_of_bound = deadline_met_ratio / its
    bound (at most 1).

    `values`, `bound`: by the names of these three metrics. None where either is unknown, or the bound is 0.
    """
    names = {
        "jct_over_bound": "jct_mean_s",
        "makespan_over_bound": "makespan_s",
        "deadlines_of_bound": "deadline_met_ratio",
    }
    ratios: dict[str, Value] = {}
    for ratio, name in names.items():
        value, best = values[name], (bound or {}).get(name)
        ratios[ratio] = value / best if best and isinstance(value, int | float) else None
    return ratios


def disruptions(jobs: Jobs) -> dict[str, Value]:
    """Sums over all jobs; lost_gpu_h = sum of (overhead_gpu_s + lost_work_gpu_s) / 3600, the GPU-hours held
    without lasting progress.
    """
    columns = job_columns(jobs)
    sums: dict[str, Value] = {}
    for name in ("preemptions", "resizes", "restarts", "migrations", "interruptions"):
        sums[name] = int(columns[name].sum())
    return {**sums, "lost_gpu_h": _lost_gpu_s(columns) / 3600}


def _lost_gpu_s(jobs: Columns) -> float:
    return fsum(jobs["overhead_gpu_s"].tolist()) + fsum(jobs["lost_work_gpu_s"].tolist())


def slowdowns(jobs: Jobs) -> dict[str, Value]:
    """slowdown_j = JCT_j / isolated_j over F, and Jain's index of its inverse x_j = isolated_j / JCT_j.

    jain_index = (sum x)^2 / (|F| sum x^2) (Jain, Chiu and Hawe, DEC-TR-301, 1984): 1 if all jobs are slowed
    alike, 1/|F| at worst.
    """
    alone = _comparable(jobs)
    x = alone.isolated_s / alone.jct_s
    jain = fsum(x.tolist()) ** 2 / (len(x) * fsum((x * x).tolist())) if len(x) else None
    return {"slowdown_mean": mean(alone.jct_s / alone.isolated_s), "jain_index": jain}


def finish_time_fairness(jobs: Jobs, usage: Usage, cluster: Cluster) -> float | None:
    """The largest rho_j over F: time in the shared cluster over time on a private 1/N of it.

    rho_j = JCT_j / (isolated_j x max(1, gpus_j x N_j / G)), where N_j is the time average of the jobs in the
    system (running and waiting) during j's life (finish-time fairness: Themis, Mahajan et al., NSDI 2020). A
    job that asks for more than its share of G / N_j GPUs is assumed to be slowed in proportion. A job with
    rho <= 1 loses nothing by sharing.
    """
    alone = _comparable(jobs)
    if not len(alone.jct_s):
        return None
    present = usage.averages(usage.jobs, alone.submit_s, alone.finish_s)
    private_s = alone.isolated_s * np.maximum(1.0, alone.gpus * present / cluster.gpus)
    return float(np.max(alone.jct_s / private_s))


def cost_usd(jobs: Jobs, price_usd_per_gpu_h: float) -> float:
    """Sum of what the GPUs held by all jobs cost, with or without progress: by the prices of the GPU types
    where the cluster states some, else gpu_seconds / 3600 x price.
    """
    by_type = job_columns(jobs)["cost_usd"]
    if not np.isnan(by_type).all():
        return fsum(by_type[~np.isnan(by_type)].tolist())
    return fsum(job_columns(jobs)["gpu_seconds"].tolist()) / 3600 * price_usd_per_gpu_h


@dataclass(frozen=True)
class _Comparable:
    """The finished jobs that took time both alone and in this run, so that ratios of the two are defined."""

    submit_s: Array
    finish_s: Array
    jct_s: Array
    isolated_s: Array
    gpus: Array


def _comparable(jobs: Jobs) -> _Comparable:
    columns = job_columns(jobs)
    submit_s, finish_s, gpus = columns["submit_s"], columns["finish_s"], requested_gpus(columns)
    jct_s, isolated_s = columns["jct_s"], columns["isolated_s"]
    mask = columns.equal("state", FINISHED) & (finish_s > submit_s)  # False for NaN
    for values in (jct_s, isolated_s, gpus):
        mask &= (values != 0) & ~np.isnan(values)
    return _Comparable(submit_s[mask], finish_s[mask], jct_s[mask], isolated_s[mask], gpus[mask])


def _covers(jobs: Columns) -> str:
    """The jobs that the averages cover, in words."""
    finished, comparable = int(jobs.equal("state", FINISHED).sum()), len(_comparable(jobs).jct_s)
    remainder = "the same" if comparable == finished else f"the {comparable:,} of them that took time"
    load, waiting = int((~np.isnan(jobs["isolated_s"])).sum()), int(admitted(jobs).sum())
    return (
        f"jct_*, queue_*, wait_*: the {finished:,} finished of {len(jobs):,} submitted jobs; "
        f"offered_load: the {load:,} that can run here; waited_ratio: the {waiting:,} admitted; "
        f"slowdown_mean, finish_time_fairness_max, jain_index: {remainder}; "
        "deadline_met_ratio: all submitted jobs with a deadline; counts and sums: all submitted jobs"
    )
