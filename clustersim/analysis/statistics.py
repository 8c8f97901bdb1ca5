"""Paired differences across seeds: means with bootstrap intervals, and corrected tests.

Two policies run on the same traces and give one pair of results per seed. The variation between seeds cancels
in the differences (common random numbers: Law, Simulation Modeling and Analysis, chapter 11). All random
draws are seeded, so equal results give equal statistics.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from math import inf, sqrt

import numpy as np

__all__ = [
    "LEAST_PAIRS",
    "PairedDifference",
    "bootstrap_t_interval",
    "holm",
    "mean_difference",
    "paired_difference",
    "sign_flip_p",
]

LEAST_PAIRS = 5
"""Fewer pairs get no interval, because they have too few distinct resamples."""

RESAMPLES, LEVEL, EXACT_PAIRS = 10_000, 0.95, 14

LEAST_SPREAD = 0.2
"""The least standard error of a resample, as a share of the standard error of the pairs; see
`bootstrap_t_interval`.
"""

Array = np.ndarray


@dataclass(frozen=True)
class PairedDifference:
    """A metric under a variant against a baseline, over pairs of runs with one seed each.

    `difference` = mean of variant - baseline, in the metric's unit, within [`low`, `high`]; `relative` =
    difference / baseline mean, within [`relative_low`, `relative_high`]. `p`: two-sided sign-flip test of no
    difference. Undefined values are None: intervals and p for fewer than `LEAST_PAIRS` pairs, intervals also
    if too few pairs differ, relative values for a baseline mean of 0. Pairs that are all equal count as one,
    because their seeds changed nothing. `left_out` pairs had no value on one side.
    """

    pairs: int
    left_out: int
    baseline: float | None
    variant: float | None
    difference: float | None
    low: float | None
    high: float | None
    relative: float | None
    relative_low: float | None
    relative_high: float | None
    p: float | None


def paired_difference(
    baseline: Sequence[float | None], variant: Sequence[float | None], *, seed: int = 0, limit: float = inf
) -> PairedDifference:
    """Compare `variant` with `baseline`: one value per seed, in the same order, None if undefined.

    `limit`: the largest possible difference (1 for shares); intervals end there. If no value is negative, the
    interval of the relative difference ends at -1.
    """
    value_pairs = [(b, v) for b, v in zip(baseline, variant, strict=True) if b is not None and v is not None]
    left_out = len(baseline) - len(value_pairs)
    if not value_pairs:
        return PairedDifference(0, left_out, *[None] * 9)
    pairs = np.array(value_pairs, dtype=float)
    means = pairs.mean(axis=0)
    enough = len(value_pairs) >= LEAST_PAIRS and bool(np.any(pairs != pairs[0]))  # equal pairs count as one
    low, high = bootstrap_t_interval(pairs, mean_difference, seed) if enough else (None, None)
    if low is not None and high is not None:
        low, high = max(low, -limit), min(high, limit)
    relative = relative_low = relative_high = None
    if abs(means[0]) > 1e-12 * abs(means[1]):
        relative = float(means[1] / means[0] - 1)
        if enough and (np.all(pairs[:, 0] > 0) or np.all(pairs[:, 0] < 0)):
            relative_low, relative_high = bootstrap_t_interval(pairs, _relative_difference, seed)
            if relative_low is not None and np.all(pairs >= 0):
                relative_low = max(relative_low, -1.0)
    p = sign_flip_p(pairs[:, 1] - pairs[:, 0], seed) if enough else None
    return PairedDifference(
        pairs=len(value_pairs),
        left_out=left_out,
        baseline=float(means[0]),
        variant=float(means[1]),
        difference=float(means[1] - means[0]),
        low=low,
        high=high,
        relative=relative,
        relative_low=relative_low,
        relative_high=relative_high,
        p=p,
    )


def mean_difference(samples: Array) -> tuple[Array, Array]:
    """The mean difference of each resample, and its standard error; `samples`: resamples x pairs x 2."""
    differences = samples[:, :, 1] - samples[:, :, 0]
    return differences.mean(axis=1), _standard_error(differences)


def _relative_difference(samples: Array) -> tuple[Array, Array]:
    """The ratio of the means less 1, and its standard error by the delta method.

    Cochran, Sampling Techniques (1977), chapter 6.
    """
    base, variant = samples[:, :, 0], samples[:, :, 1]
    ratio = variant.mean(axis=1) / base.mean(axis=1)
    residuals = variant - ratio[:, None] * base
    return ratio - 1, _standard_error(residuals) / np.abs(base.mean(axis=1))


def _standard_error(values: Array) -> Array:
    return np.asarray(values.std(axis=1, ddof=1) / sqrt(values.shape[1]))


def bootstrap_t_interval(
    rows: Array, statistic: Callable[[Array], tuple[Array, Array]], seed: int = 0, *, level: float = LEVEL
) -> tuple[float, float] | tuple[None, None]:
    """The bootstrap-t interval of `statistic` over resampled `rows`.

    Efron and Tibshirani, An Introduction to the Bootstrap (1993), section 12.5: the error of each resample,
    divided by its own standard error, has about the distribution of the error of the estimate, divided by its
    standard error. With 5 to 40 pairs the interval keeps its level far better than a percentile interval
    (measured by the project's tests). `statistic` maps samples (resamples, n, ...) to estimates and standard
    errors (resamples,).

    A resample of few pairs may consist of nearly equal pairs. Its standard error is then close to 0 and would
    make the interval arbitrarily long. Therefore every standard error counts as at least `LEAST_SPREAD` of
    the standard error of the pairs. This shortens the longest intervals several times at the same coverage
    (benchmarks/intervals.py measures both). Equal rows give an interval of zero width. Rows that are nearly
    all equal (a metric that seldom differs) give no interval: too many resamples have no spread.
    """
    n = len(rows)
    (estimate,), (error,) = statistic(rows[None])
    if not np.isfinite(error):
        return None, None
    if error <= 1e-12 * abs(estimate):
        return float(estimate), float(estimate)
    picks = np.random.default_rng(seed).integers(0, n, (RESAMPLES, n))
    estimates, errors = statistic(rows[picks])
    if float(np.mean(errors <= 1e-9 * error)) > (1 - level) / 2:
        return None, None
    scaled = (estimates - estimate) / np.maximum(errors, LEAST_SPREAD * error)
    high, low = np.quantile(scaled, [(1 - level) / 2, (1 + level) / 2], method="nearest")
    return float(estimate - low * error), float(estimate - high * error)


def sign_flip_p(differences: Array, seed: int = 0) -> float:
    """Two-sided p value of the paired randomisation test: without a difference, signs would be coin flips.

    Fisher, The Design of Experiments (1935), section 21. Exact up to 14 pairs; beyond that, over 10,000 drawn
    flips and the observed ones. With n pairs p is at least 2 / 2^n.
    """
    values = np.asarray(differences, dtype=float)
    n = len(values)
    if n <= EXACT_PAIRS:
        flips = np.array(list(product((1.0, -1.0), repeat=n)))
    else:
        drawn = np.random.default_rng(seed).integers(0, 2, (RESAMPLES, n)) * 2.0 - 1.0
        flips = np.vstack([np.ones(n), drawn])
    sums = np.abs(flips @ values)
    return float(np.mean(sums >= sums[0] - 1e-9 * np.sum(np.abs(values))))


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """p values adjusted for their number, in the same order; None stays None and does not count.

    Holm, "A Simple Sequentially Rejective Multiple Test Procedure", Scandinavian Journal of Statistics 6
    (1979): the k-th smallest of m is multiplied by m - k + 1, then raised to at least the adjusted value
    before it, at most 1. The chance of any false rejection stays below the level.

    >>> holm([0.01, 0.04, None, 0.03])
    [0.03, 0.06, None, 0.06]
    """
    order = sorted((p, i) for i, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for rank, (p, i) in enumerate(order):
        largest = max(largest, min(1.0, p * (len(order) - rank)))
        adjusted[i] = largest
    return adjusted
