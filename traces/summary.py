"""A trace in numbers: jobs, kinds, models, GPU counts, deadlines, arrivals, load."""

from __future__ import annotations

import statistics
from array import array
from collections import Counter
from collections.abc import Iterable
from math import fsum
from typing import Any

from traces.job import Job

__all__ = ["demand", "summarise"]

_RESOLVED_S = 1e-6  # the resolution of tables: submissions closer together are simultaneous


def demand(jobs: Iterable[Job]) -> dict[str, Any]:
    """Requested GPU-seconds over the span of submissions (last - first submit_s).

    `mean_gpus` is their ratio: on G GPUs the load is mean_gpus / G. It is None if all jobs are submitted at
    the same time. Only jobs that state `gpus` and `duration_s` count; `jobs` is their number.
    """
    submits, gpu_seconds = array("d"), array("d")
    for job in jobs:
        submits.append(job.submit_s)
        if job.gpus is not None and job.duration_s is not None:
            gpu_seconds.append(job.gpus * job.duration_s)
    return _demand(gpu_seconds, max(submits) - min(submits))


def _demand(gpu_seconds: array[float], span_s: float) -> dict[str, Any]:
    total = fsum(gpu_seconds)  # exact, so independent of the order of the jobs
    mean_gpus = total / span_s if span_s >= _RESOLVED_S and gpu_seconds else None
    return {"jobs": len(gpu_seconds), "gpu_seconds": total, "span_s": span_s, "mean_gpus": mean_gpus}


def summarise(jobs: Iterable[Job], cluster_gpus: int = 1024) -> dict[str, Any]:
    """Summarise a trace as a JSON-ready mapping; `load` is on `cluster_gpus` GPUs.

    The jobs (at least one) are read once, in any order; memory holds a few numbers of each.
    `deadlines.below_run_time` counts jobs that miss their deadline even if they start at submission on the
    GPUs they request. `larger_than_cluster` counts jobs that request more than `cluster_gpus`.
    """
    submits, run_times, gpu_seconds = array("d"), array("d"), array("d")
    kinds, models, gpus = Counter[Any](), Counter[Any](), Counter[Any]()
    tenants, larger, deadlines, tight = set[str](), 0, 0, 0
    for job in jobs:
        submits.append(job.submit_s)
        kinds[job.kind] += 1
        models[job.model] += 1
        gpus[job.gpus] += 1
        tenants.add(job.tenant)
        larger += (job.gpus or job.min_gpus or 0) > cluster_gpus
        if job.duration_s is not None:
            run_times.append(job.duration_s)
            if job.gpus is not None:
                gpu_seconds.append(job.gpus * job.duration_s)
        if job.deadline_s is not None:
            deadlines += 1
            tight += job.deadline_s < job.submit_s + (job.duration_s or 0.0)
    ordered = sorted(submits)
    asked = _demand(gpu_seconds, ordered[-1] - ordered[0])
    return {
        "jobs": len(submits),
        "kinds": _shown(kinds),
        "tenants": len(tenants),
        "span_s": asked["span_s"],
        "gaps": _gaps(ordered),
        "run_time": _run_time(sorted(run_times)),
        "demand": asked,
        "cluster_gpus": cluster_gpus,
        "load": None if asked["mean_gpus"] is None else asked["mean_gpus"] / cluster_gpus,
        "larger_than_cluster": larger,
        "models": _shown(models),
        "gpus": _shown(gpus),
        "deadlines": {"jobs": deadlines, "below_run_time": tight},
    }


def _shown(counts: Counter[Any]) -> dict[str, int]:
    """Value -> number of jobs, numbers ascending, then names; "not stated" for None."""
    order = sorted(counts, key=lambda v: (v is None, isinstance(v, str), v if v is not None else 0))
    return {"not stated" if v is None else str(v): counts[v] for v in order}


def _gaps(submits: list[float]) -> dict[str, float | None]:
    """Mean and coefficient of variation (standard deviation / mean) of the gaps between submissions."""
    gaps = array("d", map(float.__sub__, submits[1:], submits))
    mean = statistics.fmean(gaps) if gaps else 0.0
    return {"mean_s": mean if gaps else None, "cv": statistics.pstdev(gaps) / mean if mean > 0 else None}


def _run_time(stated: list[float]) -> dict[str, float] | None:
    if not stated:
        return None
    return {"mean_s": statistics.fmean(stated), "median_s": statistics.median(stated), "max_s": stated[-1]}
