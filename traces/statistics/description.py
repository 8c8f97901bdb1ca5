"""A trace in numbers."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .arrivals import arrivals
from .columns import HOUR_S, JobColumns
from .shares import by_name, quantiles, size_classes

__all__ = ["describe"]

_PERIODS = 12


def describe(columns: JobColumns, cluster_gpus: int | None = None) -> dict[str, Any]:
    """The trace as a JSON-ready mapping; keys without data are None. Times in s, GPU time in GPU-hours.

    | key | meaning |
    |---|---|
    | jobs, span_s, gpu_hours | jobs, first to last submission, GPUs x run time of all |
    | sizes | by class of GPU counts: jobs, GPU-hours, their shares, quantiles of run times |
    | gpus, run_time, wait | quantiles of GPUs, of run times, of the logged time from submission to start |
    | arrivals | see `arrivals` |
    | tenants, users, states | how many, Gini coefficients, and the first ten by jobs |
    | estimates | quantiles of estimate over run time, share of run times within the estimate |
    | load | see `_load` |
    """
    name_columns = [("tenants", columns.tenant), ("users", columns.user), ("states", columns.state)]
    return {
        "jobs": len(columns),
        "span_s": columns.span_s,
        "gpu_hours": float(columns.gpu_s.sum()) / HOUR_S,
        "gpus": quantiles(columns.gpus),
        "run_time": quantiles(columns.run_s),
        "wait": quantiles(columns.wait_s),
        "sizes": _sizes(columns),
        "arrivals": arrivals(columns),
        **{name: by_name(columns, names) if (names != "").any() else None for name, names in name_columns},
        "estimates": _estimates(columns),
        "load": _load(columns, cluster_gpus),
    }


def _sizes(columns: JobColumns) -> list[dict[str, Any]]:
    total = columns.gpu_s.sum() or 1.0
    return [
        {
            "gpus": name,
            "jobs": int(mask.sum()),
            "share": float(mask.mean()),
            "gpu_hours": float(columns.gpu_s[mask].sum()) / HOUR_S,
            "share_of_gpu_hours": float(columns.gpu_s[mask].sum() / total),
            "run_time": quantiles(columns.run_s[mask]),
        }
        for name, mask in size_classes(columns)
    ]


def _estimates(columns: JobColumns) -> dict[str, Any] | None:
    factors = columns.estimate_s / columns.run_s
    stated_factors = factors[~np.isnan(factors)]
    if not len(stated_factors):
        return None
    share_within = float((stated_factors >= 1).mean())
    return {
        "jobs": len(stated_factors),
        "over_run_time": quantiles(stated_factors),
        "run_time_within": share_within,
    }


def _load(columns: JobColumns, cluster_gpus: int | None) -> dict[str, Any] | None:
    """GPU time submitted in each twelfth of the span, over that of the cluster.

    Without `cluster_gpus` the cluster is as large as the trace asks for on average. `held` are the GPUs held
    on average by logged starts and run times, where all jobs state both.
    """
    mean_gpus = float(columns.gpu_s.sum()) / columns.span_s if columns.span_s else 0.0
    if not mean_gpus:
        return None
    gpus = cluster_gpus or max(1, round(mean_gpus))
    ends = np.linspace(columns.submit_s[0], columns.submit_s[-1], _PERIODS + 1)
    period_s = columns.span_s / _PERIODS
    periods = np.minimum((columns.submit_s - columns.submit_s[0]) // period_s, _PERIODS - 1).astype(np.intp)
    offered = np.bincount(periods, weights=columns.gpu_s, minlength=_PERIODS) / (gpus * period_s)
    return {
        "gpus": gpus,
        "mean_gpus": mean_gpus,
        "mean": mean_gpus / gpus,
        "period_s": period_s,
        "offered": offered.tolist(),
        "held": _held(columns, ends).tolist() if not np.isnan(columns.wait_s + columns.run_s).any() else None,
    }


def _held(columns: JobColumns, ends: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean number of GPUs held between consecutive `ends`, by logged starts and run times."""
    start_s = columns.submit_s + columns.wait_s
    stop_s = start_s + columns.run_s
    gpu_s = [
        (np.clip(np.minimum(stop_s, high) - np.maximum(start_s, low), 0, None) * columns.gpus).sum()
        for low, high in pairwise(ends)
    ]
    return np.array(gpu_s) / np.diff(ends)
