"""What a trace asks for, in numbers: jobs, kinds, models, GPU counts, deadlines, arrivals, load."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from traces.job import Job

__all__ = ["demand", "summarise"]


def demand(jobs: Sequence[Job]) -> dict[str, Any]:
    """Requested GPU-seconds over the span of submissions (last - first submit_s).

    `mean_gpus` is their ratio: on G GPUs the load is mean_gpus / G. It is None if all jobs are submitted at
    once. Only jobs that state `gpus` and `duration_s` can be counted; `jobs` says how many do.
    """
    counted = [job for job in jobs if job.gpus is not None and job.duration_s is not None]
    gpu_seconds = sum((job.gpus or 0) * (job.duration_s or 0.0) for job in counted)
    span_s = _span_s(jobs)
    mean_gpus = gpu_seconds / span_s if span_s > 0 and counted else None
    return {"jobs": len(counted), "gpu_seconds": gpu_seconds, "span_s": span_s, "mean_gpus": mean_gpus}


def summarise(jobs: Sequence[Job], cluster_gpus: int = 1024) -> dict[str, Any]:
    """A summary of the trace as a JSON-ready mapping; `load` is on `cluster_gpus` GPUs.

    `deadlines.below_run_time` counts jobs whose deadline comes before they could finish on the GPUs they
    ask for, started at once; `larger_than_cluster` counts jobs that ask for more than `cluster_gpus`.
    """
    asked = demand(jobs)
    load = None if asked["mean_gpus"] is None else asked["mean_gpus"] / cluster_gpus
    return {
        "jobs": len(jobs),
        "kinds": _counted(job.kind for job in jobs),
        "tenants": len({job.tenant for job in jobs}),
        "span_s": asked["span_s"],
        "gaps": _gaps(jobs),
        "run_time": _run_time(jobs),
        "demand": asked,
        "cluster_gpus": cluster_gpus,
        "load": load,
        "larger_than_cluster": sum((job.gpus or job.min_gpus or 0) > cluster_gpus for job in jobs),
        "models": _counted(job.model for job in jobs),
        "gpus": _counted(job.gpus for job in jobs),
        "deadlines": _deadlines(jobs),
    }


def _span_s(jobs: Sequence[Job]) -> float:
    submits = [job.submit_s for job in jobs]
    return max(submits) - min(submits)


def _counted(values: Any) -> dict[str, int]:
    """Value -> number of jobs, numbers ascending, then names; "not stated" for None."""
    counts = Counter(values)
    order = sorted(counts, key=lambda v: (v is None, isinstance(v, str), v if v is not None else 0))
    return {"not stated" if v is None else str(v): counts[v] for v in order}


def _gaps(jobs: Sequence[Job]) -> dict[str, float | None]:
    """Mean and coefficient of variation (standard deviation / mean) of the gaps between submissions."""
    submits = sorted(job.submit_s for job in jobs)
    gaps = [later - earlier for earlier, later in pairwise(submits)]
    mean = statistics.fmean(gaps) if gaps else 0.0
    return {"mean_s": mean if gaps else None, "cv": statistics.pstdev(gaps) / mean if mean > 0 else None}


def _run_time(jobs: Sequence[Job]) -> dict[str, float] | None:
    stated = sorted(job.duration_s for job in jobs if job.duration_s is not None)
    if not stated:
        return None
    return {"mean_s": statistics.fmean(stated), "median_s": statistics.median(stated), "max_s": stated[-1]}


def _deadlines(jobs: Sequence[Job]) -> dict[str, int]:
    given = [job for job in jobs if job.deadline_s is not None]
    tight = sum((job.deadline_s or 0.0) < job.submit_s + (job.duration_s or 0.0) for job in given)
    return {"jobs": len(given), "below_run_time": tight}
