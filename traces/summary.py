"""A trace in numbers: jobs, kinds, models, GPU counts, deadlines, arrivals, load."""

from __future__ import annotations

import statistics
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from math import fsum, log
from typing import Any

from traces.attempts import parse_attempts
from traces.job import Job

__all__ = ["Request", "cautions", "demand", "load_of", "stated_request", "summarise"]

_RESOLVED_S = 1e-6  # the resolution of tables: submissions closer together are simultaneous
_LARGE_SHARE = 0.1  # of the work, in one job

Request = Callable[[Job], tuple[int, float] | None]
"""The GPUs that a job requests, and its run time on them in s; None if either is not known."""


def stated_request(job: Job) -> tuple[int, float] | None:
    """The request and the run time that the trace states, of all runs of a job that was started again; None
    for a job that was cancelled while it waited, whose run time its log cannot know.
    """
    if job.gpus is None or job.duration_s is None:
        return None
    if job.attempts is not None:
        return job.gpus, sum(attempt.run_s for attempt in parse_attempts(job.attempts))
    is_unrun = job.cancel_s is not None and job.logged_start_s is None and job.state is not None
    return None if is_unrun else (job.gpus, job.duration_s)


def demand(jobs: Iterable[Job], request: Request = stated_request) -> dict[str, Any]:
    """Requested GPU-seconds and the arrival window `span_s` (last - first submit_s).

    | key | meaning |
    |---|---|
    | jobs | jobs that count: those with a `request` |
    | gpu_seconds | sum over them of GPUs x run time |
    | span_s | arrival window |
    | mean_gpus | gpu_seconds / span_s, the load times the GPUs of a cluster; None for a window of nothing |
    | longest_s, largest_gpu_seconds | the longest run time, the most GPU-seconds of one job; or None |
    """
    total = _Asked()
    for job in jobs:
        total.add(job, request(job))
    return total.demand()


def load_of(demand: Mapping[str, Any], cluster_gpus: int) -> float | None:
    """The offered load of a `demand`: its GPU-seconds over those of `cluster_gpus` GPUs in the window.

    The window has one gap less than jobs, and a job that arrives late is served after it. So the load of a
    few long jobs says little about queueing; `cautions` says when.
    """
    mean_gpus = demand["mean_gpus"]
    return None if mean_gpus is None else mean_gpus / cluster_gpus


def cautions(demand: Mapping[str, Any]) -> list[str]:
    """Reasons not to take the load of a `demand` at its word, as sentences without a full stop."""
    if not demand["jobs"]:
        return []
    if demand["mean_gpus"] is None:
        return ["all jobs are submitted at one time, so there is no load"]
    texts = []
    if demand["longest_s"] > demand["span_s"]:
        longest, window = demand["longest_s"] / 3600, demand["span_s"] / 3600
        texts.append(
            f"the longest job runs {longest:,.3g} h, longer than the arrival window of {window:,.3g} h: the"
            " makespan says more about this job than about a policy; more jobs give a longer window"
        )
    share = demand["largest_gpu_seconds"] / demand["gpu_seconds"]
    if share > _LARGE_SHARE and demand["jobs"] > 1:
        texts.append(
            f"one job is {share:.0%} of the work: the load says little about queueing; more jobs even it out"
        )
    return texts


class _Asked:
    """Submissions and GPU-seconds of jobs, a few numbers of each."""

    def __init__(self) -> None:
        self.submits, self.gpu_seconds, self.run_times = array("d"), array("d"), array("d")

    def add(self, job: Job, request: tuple[int, float] | None) -> None:
        self.submits.append(job.submit_s)
        if request is not None:
            gpus, run_s = request
            self.run_times.append(run_s)
            self.gpu_seconds.append(gpus * run_s * (job.gpu_fraction or 1))

    def demand(self) -> dict[str, Any]:
        total = fsum(self.gpu_seconds)  # exact, so independent of the order of the jobs
        span_s = max(self.submits) - min(self.submits)
        return {
            "jobs": len(self.gpu_seconds),
            "gpu_seconds": total,
            "span_s": span_s,
            "mean_gpus": total / span_s if span_s >= _RESOLVED_S and self.gpu_seconds else None,
            "longest_s": max(self.run_times, default=None),
            "largest_gpu_seconds": max(self.gpu_seconds, default=None),
        }


def summarise(
    jobs: Iterable[Job], cluster_gpus: int = 1024, request: Request = stated_request
) -> dict[str, Any]:
    """Summarise a trace as a JSON-ready mapping; `load` is on `cluster_gpus` GPUs, of the `request`s.

    The jobs (at least one) are read once, in any order; memory holds a few numbers of each.
    `deadlines.below_run_time` counts jobs that miss their deadline even if they start at submission on the
    GPUs they request. `larger_than_cluster` counts jobs that request more than `cluster_gpus`.
    `stated_work` is about the jobs with `stated_iterations`; None if there are none.
    """
    total, kinds, models, gpus = _Asked(), Counter[Any](), Counter[Any](), Counter[Any]()
    tenants, larger, deadlines, tight = set[str](), 0, 0, 0
    factors = array("d")
    for job in jobs:
        requested = request(job)
        total.add(job, requested)
        kinds[job.kind] += 1
        models[job.model] += 1
        gpus[job.gpus] += 1
        tenants.add(job.tenant)
        larger += (job.gpus or job.min_gpus or 0) > cluster_gpus
        if job.stated_iterations is not None and job.iterations is not None:
            factors.append(job.stated_iterations / job.iterations)
        if job.deadline_s is not None:
            deadlines += 1
            tight += job.deadline_s < job.submit_s + (requested[1] if requested else 0.0)
    figures = total.demand()
    return {
        "jobs": len(total.submits),
        "kinds": _shown(kinds),
        "tenants": len(tenants),
        "span_s": figures["span_s"],
        "gaps": _gaps(sorted(total.submits)),
        "run_time": _run_time(sorted(total.run_times)),
        "demand": figures,
        "cluster_gpus": cluster_gpus,
        "load": load_of(figures, cluster_gpus),
        "cautions": cautions(figures),
        "larger_than_cluster": larger,
        "models": _shown(models),
        "gpus": _shown(gpus),
        "deadlines": {"jobs": deadlines, "below_run_time": tight},
        "stated_work": _stated_work(factors),
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


def _stated_work(factors: array[float]) -> dict[str, float] | None:
    """Stated over true work; sigma is the standard deviation of its logarithm."""
    if not factors:
        return None
    sigma = statistics.pstdev(map(log, factors))
    return {"jobs": len(factors), "median_factor": statistics.median(factors), "sigma": sigma}


def _run_time(run_times: list[float]) -> dict[str, float] | None:
    if not run_times:
        return None
    return {
        "mean_s": statistics.fmean(run_times),
        "median_s": statistics.median(run_times),
        "max_s": run_times[-1],
    }
