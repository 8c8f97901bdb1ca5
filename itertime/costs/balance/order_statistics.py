"""The slowest of independent ranks, exactly: the largest of n draws of a sum.

A rank's work is a sum of independent parts, so its distribution is a convolution. The largest of n ranks has
the distribution function F^n, and the mean of a variable x >= a is a + the integral of 1 - F^n from a on
(David and Nagaraja 2003, "Order Statistics", sections 2.1 and 3.1).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.fft import irfft, rfft
from numpy.typing import NDArray

from itertime.arrays import Array

GRID_POINTS, MOST_POINTS = 2**13, 2**20  # of a sum
PART_POINTS = 16  # between the least and the largest value of a part, at least
ON_GRID = 1e-9  # steps from a point of the grid that count as none


class Part(NamedTuple):
    """`number` independent draws of `works`, which have the probabilities `shares`."""

    works: Array
    shares: Array
    number: int


class Maximum(NamedTuple):
    """The largest of several independent draws: its mean, and its 5th and 95th percentile."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class SumDistribution:
    """A sum that is `start` + i `step` with the probability `probabilities[i]`."""

    start: float
    step: float
    probabilities: Array

    @property
    def mean(self) -> float:
        """Expected value."""
        return self.start + self.step * float(np.arange(len(self.probabilities)) @ self.probabilities)

    def maximum(self, draws: int) -> Maximum:
        """The largest of `draws` independent sums."""
        below = _power(np.minimum(np.cumsum(self.probabilities), 1.0), draws)
        mean = self.start + self.step * float((1 - below[:-1]).sum())
        low, high = np.searchsorted(below, [0.05 - 1e-12, 0.95 - 1e-12])
        return Maximum(mean, self.start + self.step * int(low), self.start + self.step * int(high))


def sum_distribution(parts: Sequence[Part], step: float | None = None) -> SumDistribution:
    """The sum of all draws of all parts, by multiplying Fourier transforms.

    Works that lie between two points of a grid count for both, in proportion to their distance, which keeps
    the mean. Where all are on the grid of width `step`, the result is exact. Without `step`, the sum has
    about `GRID_POINTS` points between its least and its largest value or, if that is less, as far from its
    mean as `_reach` says; more points if parts need them, and at most `MOST_POINTS`.
    """
    start = math.fsum(part.number * float(part.works.min()) for part in parts)
    span = math.fsum(part.number * float(np.ptp(part.works)) for part in parts)
    if span <= 0:
        return SumDistribution(start, 1.0, np.ones(1))
    furthest = max(float(np.ptp(part.works)) for part in parts)
    mean, variance = _moments(parts)
    reach = _reach(variance, furthest)
    cut = step is None and 2 * reach < span
    grid_points = GRID_POINTS
    while cut and grid_points < MOST_POINTS and 2 * reach / grid_points > furthest / PART_POINTS:
        grid_points *= 2
    step = step or min(span, 2 * reach) / grid_points
    points = 1 + sum(part.number * math.ceil(np.ptp(part.works) / step - ON_GRID) for part in parts)
    size = grid_points if cut else _fast_size(points)
    product = np.ones(size // 2 + 1, dtype=complex)
    for part in parts:
        product *= _power(rfft(_on_grid(part, step, size)), part.number)
    probabilities = np.maximum(irfft(product, size), 0.0)
    offset = 0
    if cut:  # the transform counts points modulo `size`
        offset = round((mean - start) / step) - size // 2
        probabilities = np.roll(probabilities, -(offset % size))
    else:
        probabilities = probabilities[:points]
    return SumDistribution(start + offset * step, step, probabilities / probabilities.sum())


def _fast_size(points: int) -> int:
    """The least number from `points` on without a prime factor above 5, whose transform is fast.

    >>> _fast_size(8191), _fast_size(1021)
    (8192, 1024)
    """
    best = odd = 1
    while best < points:
        best *= 2
    while odd < best:
        factor = odd
        while factor < best:
            best = min(best, factor << (-(-points // factor) - 1).bit_length())
            factor *= 3
        odd *= 5
    return best


def _power(values: NDArray[Any], exponent: int) -> NDArray[Any]:
    """Each value to a whole power of at least 1, by squaring: for large ones far faster than `**`."""
    product = None
    while exponent:
        if exponent % 2:
            product = values if product is None else product * values
        exponent //= 2
        values = values * values if exponent else values
    assert product is not None
    return product


def _moments(parts: Sequence[Part]) -> tuple[float, float]:
    """Mean and variance of the sum."""
    mean = variance = 0.0
    for part in parts:
        shares = part.shares / part.shares.sum()
        mean_work = float(part.works @ shares)
        mean += part.number * mean_work
        variance += part.number * float((part.works - mean_work) ** 2 @ shares)
    return mean, variance


def _reach(variance: float, furthest: float) -> float:
    """How far a sum of this variance is from its mean with a probability of at least 1 - 2e-18.

    Bernstein's inequality: a sum of variance v, whose draws are within r = `furthest` of their means, is t
    above its mean with a probability of at most exp(-t^2 / 2 / (v + r t / 3)) (Boucheron, Lugosi and Massart
    2013, "Concentration Inequalities", section 2.8).
    """
    exponent = 18 * math.log(10)
    linear = exponent * furthest / 3
    return linear + math.sqrt(linear**2 + 2 * exponent * variance)


def _on_grid(part: Part, step: float, size: int) -> Array:
    """Probabilities of the least work + i `step`, i modulo `size`."""
    places = (part.works - part.works.min()) / step
    below = np.floor(places + ON_GRID).astype(int)
    above = np.maximum(places - below, 0.0)
    shares = part.shares / part.shares.sum()
    grid = np.bincount(below % size, shares * (1 - above), minlength=size)
    grid += np.bincount((below + 1) % size, shares * above, minlength=size)
    return np.asarray(grid, dtype=float)
