"""The slowest of independent ranks, exactly: the largest of n draws of a sum.

A rank's work is a sum of independent parts, so its distribution is a convolution. The largest of n ranks has
the distribution function F^n, and the mean of a variable x >= a is a + the integral of 1 - F^n from a on
(David and Nagaraja 2003, "Order Statistics", sections 2.1 and 3.1).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.fft import irfft, next_fast_len, rfft

__all__ = ["Maximum", "Part", "SumDistribution", "sum_distribution"]

GRID_POINTS = 2**14  # of a sum

Array = NDArray[np.float64]


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
        below = np.minimum(np.cumsum(self.probabilities), 1.0) ** draws
        mean = self.start + self.step * float((1 - below[:-1]).sum())
        low, high = np.searchsorted(below, [0.05 - 1e-12, 0.95 - 1e-12])
        return Maximum(mean, self.start + self.step * int(low), self.start + self.step * int(high))


def sum_distribution(parts: Sequence[Part], step: float | None = None) -> SumDistribution:
    """The sum of all draws of all parts, by multiplying Fourier transforms.

    Works that lie between two points of a grid count for both, in proportion to their distance, which keeps
    the mean. Where all are on the grid of width `step`, the result is exact. Without `step`, the sum has
    about `GRID_POINTS` points.
    """
    start = math.fsum(part.number * float(part.works.min()) for part in parts)
    span = math.fsum(part.number * float(np.ptp(part.works)) for part in parts)
    if span <= 0:
        return SumDistribution(start, 1.0, np.ones(1))
    width = span / GRID_POINTS if step is None else step
    grids = [_on_grid(part, width) for part in parts]
    points = 1 + sum(part.number * (len(grid) - 1) for part, grid in zip(parts, grids, strict=True))
    size = next_fast_len(points, real=True)
    product = np.ones(size // 2 + 1, dtype=complex)
    for part, grid in zip(parts, grids, strict=True):
        product *= rfft(grid, size) ** part.number
    probabilities = np.maximum(irfft(product, size)[:points], 0.0)
    return SumDistribution(start, width, probabilities / probabilities.sum())


def _on_grid(part: Part, step: float) -> Array:
    """Probabilities of the least work + i `step`."""
    places = (part.works - part.works.min()) / step
    below = np.floor(places + 1e-9).astype(int)
    above = np.maximum(places - below, 0.0)
    shares = part.shares / part.shares.sum()
    grid = np.bincount(below, shares * (1 - above), minlength=int(below.max()) + 2)
    grid += np.bincount(below + 1, shares * above, minlength=len(grid))
    return np.asarray(grid if grid[-1] > 0 else grid[:-1], dtype=float)
