"""How many GPUs jobs request and how long they run: size classes with their run-time distributions.

A sizes file (YAML) lists classes of GPU counts with shares of the jobs. `load_sizes` takes the name of a
bundled file (`traces/rules/NAME.sizes.yaml`) or the path of another one.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from functools import cache, cached_property
from itertools import accumulate
from pathlib import Path
from statistics import NormalDist
from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from itertime.errors import UnknownName
from itertime.io import CONFIG, Count, Name, NonNegative, Positive, construct, names_file, read_mapping
from traces.job import MAX_GPUS
from traces.native import MAX_SECONDS, MIN_SECONDS
from traces.workload import FOLDER

from .quantile_table import QuantileTable

__all__ = [
    "Exponential",
    "LogNormal",
    "Quantiles",
    "SizeClass",
    "Sizes",
    "list_sizes",
    "load_sizes",
    "sizes_path",
]

_ENDING = ".sizes.yaml"
_NORMAL = NormalDist()
_SHORTEST_S = 1000 * MIN_SECONDS  # of typical run times, so that hardly any draw is below what tables resolve
_LARGEST_SIGMA = 10.0  # a factor of 22,000 between the median and one standard deviation above it

_LEAST_EXACT = 1e-6

Seconds = Annotated[float, Field(ge=_SHORTEST_S, le=MAX_SECONDS)]


@dataclass(frozen=True, config=CONFIG)
class LogNormal:
    """Run times exp(N(ln median_s, sigma)), conditioned to lie between min_s and max_s."""

    median_s: Seconds
    sigma: Positive
    max_s: Seconds
    min_s: NonNegative = 0.0

    def __post_init__(self) -> None:
        if self.sigma > _LARGEST_SIGMA:
            problem = (
                f"sigma={self.sigma:g}: is above {_LARGEST_SIGMA:g}; it is the standard deviation of the"
            )
            raise ValueError(
                f"{problem} logarithm of the run times (check that median_s is not swapped with it)"
            )
        low, high = self._mass
        if high - low < 1e-6:
            raise ValueError("practically no run time lies between min_s and max_s; move them apart")

    @property
    def _bounds(self) -> tuple[float, float]:
        """min_s and max_s as standard normal deviates."""
        low = math.log(self.min_s / self.median_s) / self.sigma if self.min_s else -math.inf
        return low, math.log(self.max_s / self.median_s) / self.sigma

    @cached_property
    def _mass(self) -> tuple[float, float]:
        low, high = self._bounds
        return _NORMAL.cdf(low), _NORMAL.cdf(high)

    def expected_s(self) -> float:
        """m exp(s^2/2) (Phi(b - s) - Phi(a - s)) / (Phi(b) - Phi(a)), a and b the bounds as normal deviates.

        The mean of a truncated log-normal: Johnson, Kotz and Balakrishnan, Continuous Univariate
        Distributions, volume 1 (1994), chapter 14.
        """
        (a, b), (low, high) = self._bounds, self._mass
        probability = _NORMAL.cdf(b - self.sigma) - _NORMAL.cdf(a - self.sigma)
        if (
            probability < _LEAST_EXACT
        ):  # the difference of two tails has no digits left; that of logarithms has
            from scipy.special import log_ndtr

            low_log, high_log = log_ndtr(a - self.sigma), log_ndtr(b - self.sigma)
            mass_log = high_log + math.log1p(-math.exp(low_log - high_log))
            return self.median_s * math.exp(self.sigma**2 / 2 + mass_log) / (high - low)
        return self.median_s * math.exp(self.sigma**2 / 2) * probability / (high - low)

    def quantile_s(self, uniform: float) -> float:
        """The run time that a share `uniform` in [0, 1) of the jobs stays below."""
        low, high = self._mass
        p = min(max(low + uniform * (high - low), 1e-300), 1 - 1e-16)
        run_s = self.median_s * math.exp(self.sigma * _NORMAL.inv_cdf(p))
        return min(max(run_s, self.min_s), self.max_s)


@dataclass(frozen=True, config=CONFIG)
class Exponential:
    """Exponential run times."""

    mean_s: Seconds

    def expected_s(self) -> float:
        return self.mean_s

    def quantile_s(self, uniform: float) -> float:
        """The run time that a share `uniform` in [0, 1) of the jobs stays below."""
        return -self.mean_s * math.log1p(-uniform)


@dataclass(frozen=True, config=CONFIG)
class Quantiles:
    """Run times by a table of quantiles: pairs of a share of the jobs and a run time in s."""

    table: tuple[tuple[float, Seconds], ...]

    def __post_init__(self) -> None:
        _ = self._law

    @cached_property
    def _law(self) -> QuantileTable:
        return QuantileTable(self.table)

    def expected_s(self) -> float:
        return self._law.expected()

    def quantile_s(self, uniform: float) -> float:
        """The run time that a share `uniform` in [0, 1) of the jobs stays below."""
        return self._law.quantile(uniform)


@dataclass(frozen=True, config=CONFIG)
class SizeClass:
    """Jobs that request `gpus` GPUs: their share (of the sum of shares) and one run-time distribution."""

    gpus: Annotated[Count, Field(le=MAX_GPUS)]
    share: Positive
    log_normal: LogNormal | None = None
    exponential: Exponential | None = None
    quantiles: Quantiles | None = None

    def __post_init__(self) -> None:
        if sum(law is not None for law in (self.log_normal, self.exponential, self.quantiles)) != 1:
            raise ValueError("needs exactly one of log_normal, exponential and quantiles")

    @property
    def run_time(self) -> LogNormal | Exponential | Quantiles:
        distribution = self.log_normal or self.exponential or self.quantiles
        assert distribution is not None
        return distribution


@dataclass(frozen=True, config=CONFIG)
class Sizes:
    """A sizes file."""

    source: Name
    sizes: Annotated[tuple[SizeClass, ...], Field(min_length=1)]

    @property
    def shares(self) -> tuple[float, ...]:
        """Each class's share of the jobs; their sum is 1."""
        total = math.fsum(size.share for size in self.sizes)
        return tuple(size.share / total for size in self.sizes)

    def choose(self, uniform: float) -> SizeClass:
        """The class at quantile `uniform` in [0, 1) of the shares."""
        return self.sizes[min(bisect_right(self._ends, uniform), len(self.sizes) - 1)]

    @cached_property
    def _ends(self) -> list[float]:
        return list(accumulate(self.shares))


def list_sizes() -> list[str]:
    """Names of the bundled size mixes, sorted."""
    return sorted(path.name.removesuffix(_ENDING) for path in FOLDER.glob(f"*{_ENDING}"))


def sizes_path(name_or_path: str | Path) -> Path:
    """The file of a size mix: a path (ending in .yaml, .yml or .json), or that of a bundled name."""
    name = str(name_or_path)
    if names_file(name):
        return Path(name)
    if name not in list_sizes():
        raise UnknownName("sizes", name, list_sizes())
    return FOLDER / f"{name}{_ENDING}"


def load_sizes(name_or_path: str | Path) -> Sizes:
    """Load a bundled size mix by name, or a file. Raises UserError, naming file and key, if unusable."""
    path = sizes_path(name_or_path)
    return _shipped_sizes(path) if path.parent == FOLDER else _sizes_of(path)


def _sizes_of(path: Path) -> Sizes:
    return construct(Sizes, read_mapping(path), path)


_shipped_sizes = cache(_sizes_of)
