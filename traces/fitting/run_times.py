"""Fits sizes and run times: which GPU counts, and a table of quantiles for each."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from traces.statistics import JobColumns
from traces.synthetic import Quantiles, QuantileTable, SizeClass

__all__ = ["LEVELS", "fit_sizes", "table_of"]

LEVELS = (0.0, 0.02, 0.1, 0.25, 0.4, 0.5, 0.6, 0.75, 0.9, 0.97, 0.99, 0.998, 1.0)
_MOST_SIZES = 16
_FEWEST_JOBS = 40  # of a table of their own
_LEAST_S = 1e-3

Numbers = NDArray[np.float64]


def fit_sizes(columns: JobColumns) -> tuple[SizeClass, ...]:
    """The GPU counts of the jobs with a run time, ascending: at most 16, with quantiles of their run times.

    Those 16 are listed that hold most of the jobs and of the GPU time; jobs of other counts go to the nearest
    one, by ratio. A count of fewer than 40 jobs shares the run times of its neighbours, as many as give 40.
    """
    has_size = ~np.isnan(columns.run_s) & ~np.isnan(columns.gpus)
    gpus, run_s, gpu_s = columns.gpus[has_size], columns.run_s[has_size], columns.gpu_s[has_size]
    counts, of_job = np.unique(gpus, return_inverse=True)
    weight = np.bincount(of_job) / len(gpus) + np.bincount(of_job, weights=gpu_s) / gpu_s.sum()
    listed = np.sort(counts[np.argsort(-weight, kind="stable")[:_MOST_SIZES]])
    nearest = abs(np.log(counts)[:, None] - np.log(listed)[None, :]).argmin(axis=1)[of_job]
    classes = []
    for i, count in enumerate(listed):
        mask = nearest == i
        for reach in range(1, len(listed)):
            if mask.sum() >= _FEWEST_JOBS:
                break
            mask = abs(nearest - i) <= reach
        law = Quantiles(table_of(run_s[mask]))
        classes.append(SizeClass(gpus=int(count), share=int((nearest == i).sum()), quantiles=law))
    return tuple(classes)


def table_of(values: Numbers) -> tuple[tuple[float, float], ...]:
    """The quantiles of values above 0 at `LEVELS`, of four digits; shape as `QuantileTable` takes it.

    Between its levels a table is smooth and the values are not, so its mean may differ. The last level but
    one is moved, between its neighbours, to where the mean is that of the values, or comes nearest to it.
    """
    quantiles = np.maximum(np.quantile(values, LEVELS), _LEAST_S)
    low, high = quantiles[-3], quantiles[-1]
    for _ in range(60):
        quantiles[-2] = np.sqrt(low * high)
        points = tuple(zip(LEVELS, quantiles.tolist(), strict=True))
        low, high = (
            (low, quantiles[-2])
            if QuantileTable(points).expected() > values.mean()
            else (quantiles[-2], high)
        )
    rounded = np.maximum.accumulate([float(f"{value:.4g}") for value in quantiles])
    return tuple(zip(LEVELS, rounded.tolist(), strict=True))
