"""Fits the tenants of a trace, and how often jobs repeat what was submitted before."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from traces.statistics import JobColumns
from traces.synthetic import Owners

__all__ = ["fit_owners", "repeat_share"]

_MOST_EXPONENT, _MOST_SHIFT = 10.0, 1000.0


def fit_owners(columns: JobColumns) -> Owners | None:
    """Tenants, or users where all jobs are of one tenant; None if there is one owner.

    Exponent and shift are those of the largest likelihood of the jobs' ranks.
    """
    counts = np.sort(np.bincount(columns.owner))[::-1].astype(np.float64)
    counts = counts[counts > 0]
    if len(counts) < 2:
        return None
    ranks = np.arange(1, len(counts) + 1)

    def loss(parameters: NDArray[np.float64]) -> float:
        logs = -parameters[0] * np.log(ranks + parameters[1])
        return float(-(counts * (logs - np.log(np.exp(logs - logs.max()).sum()) - logs.max())).sum())

    bounds = [(0.0, _MOST_EXPONENT), (0.0, _MOST_SHIFT)]
    starts = [np.array([1.0, 0.0]), np.array([3.0, 5.0])]
    best = min(
        (minimize(loss, start, bounds=bounds, method="L-BFGS-B") for start in starts), key=lambda r: r.fun
    )
    exponent, shift = (float(f"{value:.4g}") for value in best.x)
    return Owners(count=len(counts), exponent=exponent, shift=shift)


def repeat_share(columns: JobColumns) -> float:
    """The share of jobs that repeat GPUs and owner of the job before.

    Of jobs drawn independently a share c would do so by chance: that of two jobs with the same owner times
    that of two with the same GPUs. If a share p repeats, p + (1 - p) c of the jobs are as the one before.
    """
    if len(columns) < 3:
        return 0.0
    sizes = np.unique(columns.gpus, return_inverse=True)[1]
    same_size_and_owner = (sizes[1:] == sizes[:-1]) & (columns.owner[1:] == columns.owner[:-1])
    by_chance = float(np.prod([(np.bincount(of) ** 2).sum() / len(of) ** 2 for of in (sizes, columns.owner)]))
    if by_chance >= 1:
        return 0.0
    return float(f"{min(max((same_size_and_owner.mean() - by_chance) / (1 - by_chance), 0.0), 0.99):.4g}")
