"""GPUs for each of many jobs at the largest sum of values: a price decides for most jobs, a program for the
rest.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .reallocation import Options, best_division

__all__ = ["priced_division"]

_ABOVE = 1 + 1e-12  # a price just above one at which two options are worth the same
_ROUNDING = 1e-9  # of sums of values


def priced_division(jobs: Sequence[Options], gpus: int) -> list[int]:
    """The index of an option for each job such that their GPUs add up to at most `gpus` and their values to
    the most that is possible, as `best_division` finds it. Every job lists an option without GPUs first.

    At a price q of a GPU no division is worth more than B = q gpus + the sum over jobs of the largest v - q n
    of their options (n, v): Lagrange's bound. If some division is worth L, an option whose v - q n is more
    than B - L below the largest of its job is part of no better one. That leaves most jobs one option
    (Pisinger, "A minimal algorithm for the multiple-choice knapsack problem", 1995); `best_division` chooses
    among the rest.

    >>> priced_division([((0, 1, 2), (0.0, 3.0, 5.0)), ((0, 2), (0.0, 4.0))], 3)
    [1, 1]
    """
    if not jobs:
        return []
    widest = max(len(counts) for counts, _ in jobs)
    counts = np.zeros((len(jobs), widest), dtype=np.int64)
    values = np.full((len(jobs), widest), -np.inf)
    for i, (of, worth) in enumerate(jobs):
        counts[i, : len(of)], values[i, : len(of)] = of, worth
    values[counts > gpus] = -np.inf
    price, columns = _price(counts, values, gpus)
    net = values - price * counts
    best = net.max(axis=1)
    rows = np.arange(len(jobs))
    _fill(counts, values, columns, gpus)
    value = float(values[rows, columns].sum())
    bound = price * gpus + float(best.sum())
    slack = bound - value + _ROUNDING * (1.0 + abs(bound) + float(np.abs(values[rows, columns]).sum()))
    open_ = net >= best[:, None] - slack
    open_[rows, columns] = True
    core = np.flatnonzero(open_.sum(axis=1) > 1)
    least_counts = np.where(open_, counts, np.iinfo(np.int64).max).min(axis=1)
    core_gpus = (
        gpus - int(counts[rows, columns].sum()) + int((counts[rows, columns] - least_counts)[core].sum())
    )
    open_columns = [np.flatnonzero(open_[i]) for i in core]
    ways = [
        ((counts[i, options] - least_counts[i]).tolist(), values[i, options])
        for i, options in zip(core, open_columns, strict=True)
    ]
    if not ways:
        return [int(k) for k in columns]
    again = columns.copy()
    for job, options, way in zip(core, open_columns, best_division(ways, core_gpus), strict=True):
        again[job] = options[way]
    better = float(values[rows, again].sum()) >= value
    return [int(k) for k in (again if better else columns)]


def _price(
    counts: NDArray[np.int64], values: NDArray[np.float64], gpus: int
) -> tuple[float, NDArray[np.int64]]:
    """The least price, but for rounding, at which the options that are worth most take at most `gpus`, with
    these options; the first among equals.
    """
    rows = np.arange(len(counts))

    def at(price: float) -> NDArray[np.int64]:
        return (values - price * counts).argmax(axis=1)

    def used(columns: NDArray[np.int64]) -> int:
        return int(counts[rows, columns].sum())

    columns = at(0.0)
    if used(columns) <= gpus:
        return 0.0, columns
    # Between two prices at which options of some job are worth the same, all choices stay as they are.
    prices = _equal_prices(counts, values)
    low, high = 0, len(prices) - 1
    while low < high:
        middle = (low + high) // 2
        if used(at(prices[middle])) <= gpus:
            high = middle
        else:
            low = middle + 1
    return prices[high], at(prices[high])


def _equal_prices(counts: NDArray[np.int64], values: NDArray[np.float64]) -> list[float]:
    """The prices above 0, ascending, just above which an option of a job is worth less than one with fewer
    GPUs for the first time. From the last of them on, no job gets more than the fewest GPUs.
    """
    prices = []
    possible = np.isfinite(values)
    for i in range(counts.shape[1]):
        added_gpus = counts - counts[:, i : i + 1]
        more = (added_gpus > 0) & possible & possible[:, i : i + 1]
        rows = np.nonzero(more)[0]
        prices.append((values[more] - values[rows, i]) / added_gpus[more])
    distinct = np.unique(np.concatenate(prices))
    return [float(price) for price in distinct[distinct > 0.0] * _ABOVE]


def _fill(
    counts: NDArray[np.int64], values: NDArray[np.float64], columns: NDArray[np.int64], gpus: int
) -> None:
    """Give what `columns` leaves free to the options that add most, one after the other."""
    rows = np.arange(len(counts))
    free_gpus = gpus - int(counts[rows, columns].sum())
    while free_gpus > 0:
        added_gpus = counts - counts[rows, columns][:, None]
        gain = np.where(added_gpus <= free_gpus, values - values[rows, columns][:, None], -np.inf)
        i, k = divmod(int(gain.argmax()), gain.shape[1])
        if not gain[i, k] > 0:
            return
        free_gpus -= int(added_gpus[i, k])
        columns[i] = k
