"""A distribution as a table of quantiles, with logarithms interpolated between them."""

from __future__ import annotations

import math
from bisect import bisect_right
from functools import cached_property
from itertools import pairwise
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from pydantic.dataclasses import dataclass

from itertime.io import CONFIG, Positive, Share

__all__ = ["QuantileTable"]

_MOST_POINTS = 100


@dataclass(frozen=True, config=CONFIG)
class QuantileTable:
    """Pairs (share, value): so many of the draws are at most this value. The logarithm of the value is linear
    in the share between two pairs. Shares ascend from 0 to 1, values do not fall.

    >>> table = QuantileTable(((0, 1), (0.5, 10), (1, 1000)))
    >>> table.quantile(0.5), round(table.quantile(0.75), 6)
    (10.0, 100.0)
    """

    points: Annotated[tuple[tuple[Share, Positive], ...], Field(min_length=2, max_length=_MOST_POINTS)]

    def __post_init__(self) -> None:
        if self.points[0][0] != 0 or self.points[-1][0] != 1:
            raise ValueError("the shares go from 0 to 1; state the least and the largest value")
        for (share, value), (later, larger) in pairwise(self.points):
            if later <= share or larger < value:
                raise ValueError(f"shares ascend and values do not fall, unlike {share:g} to {later:g}")

    def expected(self) -> float:
        """The mean: (b - a) / ln(b / a) between consecutive values a and b, by their shares."""
        return math.fsum(
            (later - share) * (b if a == b else (b - a) / math.log(b / a))
            for (share, a), (later, b) in pairwise(self.points)
        )

    def quantile(self, uniform: float) -> float:
        """The value that a share `uniform` in [0, 1] of the draws stays below."""
        i = min(bisect_right(self._shares, uniform), len(self._shares) - 1)
        (share, value), (later, larger) = self.points[i - 1], self.points[i]
        if uniform >= later:
            return larger
        fraction = (uniform - share) / (later - share)
        return min(max(value * math.exp(fraction * math.log(larger / value)), value), larger)

    def quantiles(self, uniforms: NDArray[np.float64]) -> NDArray[np.float64]:
        """The same of many shares; of the shape of `uniforms`."""
        values = np.log([value for _, value in self.points])
        return np.exp(np.interp(uniforms, self._shares, values))

    @cached_property
    def _shares(self) -> list[float]:
        return [share for share, _ in self.points]
