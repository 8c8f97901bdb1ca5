"""How jobs and GPU time are shared out: by size, owner and state."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .columns import JobColumns

__all__ = ["by_name", "gini", "quantiles", "ranked", "size_classes"]

LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
_MOST_SIZES, _MOST_NAMES = 12, 10


def quantiles(values: NDArray[np.float64]) -> dict[str, float] | None:
    """Mean, quantiles and maximum of numbers, NaN left out; None if there are none."""
    numbers = values[~np.isnan(values)]
    if not len(numbers):
        return None
    levels = np.quantile(numbers, LEVELS)
    summary = {f"p{100 * level:g}": float(value) for level, value in zip(LEVELS, levels, strict=True)}
    return {"mean": float(numbers.mean()), **summary, "max": float(numbers.max())}


def size_classes(columns: JobColumns) -> list[tuple[str, NDArray[np.bool_]]]:
    """Classes of GPU counts, ascending, each with its name and its jobs.

    Every count is a class if there are at most twelve; else those between powers of two are one, as 5-8.
    """
    gpu_counts = np.unique(columns.gpus[~np.isnan(columns.gpus)])
    if len(gpu_counts) <= _MOST_SIZES:
        classes = [(f"{int(count):,}", columns.gpus == count) for count in gpu_counts]
    else:
        tops = 2.0 ** np.arange(0, np.ceil(np.log2(gpu_counts[-1])) + 1)
        lows = np.concatenate([[0.0], tops[:-1]])
        classes = [
            (f"{int(top):,}" if top - low <= 1 else f"{int(low) + 1:,}-{int(top):,}",
             (columns.gpus > low) & (columns.gpus <= top))
            for low, top in zip(lows, tops, strict=True)
        ]  # fmt: skip
        classes = [(name, mask) for name, mask in classes if mask.any()]
    unknown = np.isnan(columns.gpus)
    return [*classes, ("not stated", unknown)] if unknown.any() else classes


def by_name(columns: JobColumns, names: NDArray[np.str_]) -> dict[str, Any]:
    """Shares of jobs and of GPU time by a text column: how many names, how unequal, and the first ten."""
    distinct_names, of_job = np.unique(names, return_inverse=True)
    jobs = np.bincount(of_job, minlength=len(distinct_names)).astype(np.float64)
    gpu_s = np.bincount(of_job, weights=columns.gpu_s, minlength=len(distinct_names)).astype(np.float64)
    order = sorted(range(len(distinct_names)), key=lambda i: (-jobs[i], str(distinct_names[i])))
    total = gpu_s.sum() or 1.0
    return {
        "count": len(distinct_names),
        "gini_jobs": gini(jobs),
        "gini_gpu_hours": gini(gpu_s),
        "first": [
            {
                "name": str(distinct_names[i]),
                "jobs": int(jobs[i]),
                "share": float(jobs[i] / jobs.sum()),
                "share_of_gpu_hours": float(gpu_s[i] / total),
            }
            for i in order[:_MOST_NAMES]
        ],
    }


def gini(amounts: NDArray[np.float64]) -> float | None:
    """The Gini coefficient: 0 if all have the same, near 1 if one has everything; None if there is nothing.

    Half of the mean absolute difference over the mean (Gini 1912), computed from the ordered amounts.

    >>> gini(np.array([1.0, 1.0, 1.0, 1.0])), gini(np.array([0.0, 0.0, 0.0, 4.0]))
    (0.0, 0.75)
    """
    total, count = float(amounts.sum()), len(amounts)
    if not total:
        return None
    ranks = 2 * np.arange(1, count + 1) - count - 1
    return abs(float((ranks * np.sort(amounts)).sum() / (count * total)))


def ranked(of_jobs: NDArray[np.intp]) -> NDArray[np.float64]:
    """Shares of the jobs by owner, the largest first."""
    counts = np.sort(np.unique(of_jobs, return_counts=True)[1])[::-1]
    return counts / counts.sum()
