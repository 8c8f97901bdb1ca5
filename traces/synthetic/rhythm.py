"""Arrivals with the rhythm of a log: burstiness, hours of the day, days of the week, busy and quiet days."""

from __future__ import annotations

import math
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from pydantic.dataclasses import dataclass

from itertime.io import CONFIG, NonNegative, Positive, Share

from .quantile_table import QuantileTable

__all__ = ["Rhythm", "normal_scores"]

_HOUR_S = 3600.0
_FEWEST_HOURS = 24 * 7
_LEAST_RATE = 1e-3  # of an hour, over the mean: the clock goes on in an hour without jobs

Times = NDArray[np.float64]


@dataclass(frozen=True, config=CONFIG)
class Rhythm:
    """Arrivals of a preset.

    | field | unit | meaning |
    |---|---|---|
    | jobs_per_day | 1/d | mean rate |
    | gaps | | quantiles of the gaps between submissions, in any unit: only their ratios count |
    | zero_share | | share of the gaps that are 0 |
    | gap_correlation | | of the normal scores of consecutive gaps |
    | hours | | rate by hour of the day over the mean: 24 numbers, or none |
    | weekdays | | rate by day of the week over the mean: 7 numbers, or none |
    | day_sigma | | standard deviation of the logarithm of a day's rate, over what the week says |
    | day_correlation | | of the logarithms of consecutive days |

    Gaps are drawn on a clock that runs as fast as the rate of the hour, and moved to the clock of the trace
    (time change: Cinlar, Introduction to Stochastic Processes, 1975, section 4.7). The rates of days are a
    log-normal process of first order, which makes the arrivals a log-Gaussian Cox process with gaps of their
    own (Moller, Syversveen and Waagepetersen, Scandinavian Journal of Statistics 25, 1998).
    """

    jobs_per_day: Positive
    gaps: QuantileTable
    zero_share: Annotated[Share, Field(lt=1)] = 0.0
    gap_correlation: Annotated[Share, Field(lt=1)] = 0.0
    hours: tuple[NonNegative, ...] = ()
    weekdays: tuple[NonNegative, ...] = ()
    day_sigma: Annotated[NonNegative, Field(le=5)] = 0.0
    day_correlation: Annotated[Share, Field(lt=1)] = 0.0

    def __post_init__(self) -> None:
        for name, rates, count in (("hours", self.hours, 24), ("weekdays", self.weekdays, 7)):
            if rates and (len(rates) != count or not sum(rates)):
                raise ValueError(f"{name}: needs {count} numbers, not all 0, or none")

    def times(
        self, count: int, rng: np.random.Generator, days: np.random.Generator, jobs_per_day: float
    ) -> Times:
        """Submission times in s, ascending, the first at 0; shape (count,). Gaps are drawn from `rng`, the
        rates of days from `days`.
        """
        return self._moved(self._operational(count, rng) / (jobs_per_day / 24), days)

    def times_within(
        self, count: int, window_s: float, rng: np.random.Generator, days: np.random.Generator
    ) -> Times:
        """The same, with the last job at `window_s`: the rate is the one that takes so long."""
        done = self._operational(count, rng)
        if done[-1] == 0:
            return done
        elapsed = self._elapsed(math.ceil(window_s / _HOUR_S) + 1, days)
        until = np.interp(window_s / _HOUR_S, np.arange(len(elapsed)), elapsed)
        times = np.interp(done * (until / done[-1]), elapsed, np.arange(len(elapsed))) * _HOUR_S
        times[-1] = window_s
        return np.minimum(times, window_s)

    def _operational(self, count: int, rng: np.random.Generator) -> Times:
        """Times of mean gap 1, the first at 0, on the clock that runs with the rate."""
        from scipy.special import ndtr  # takes longer than all other imports of a run

        uniforms = ndtr(_first_order(rng.standard_normal(count - 1), self.gap_correlation))
        positions = (uniforms - self.zero_share) / (1 - self.zero_share)
        gaps = np.where(uniforms < self.zero_share, 0.0, self.gaps.quantiles(np.clip(positions, 0, 1)))
        mean = self.gaps.expected() * (1 - self.zero_share)
        return np.concatenate([[0.0], np.cumsum(gaps / mean)])

    def _moved(self, hours: Times, days: np.random.Generator) -> Times:
        """Times in hours at constant rate, moved to those of the rhythm, in s."""
        hour_count = _FEWEST_HOURS + math.ceil(hours[-1])
        state = days.bit_generator.state
        while (elapsed := self._elapsed(hour_count, days))[-1] < hours[-1]:
            hour_count *= 2
            days.bit_generator.state = state  # the same days, and more of them
        moved: Times = np.interp(hours, elapsed, np.arange(len(elapsed))) * _HOUR_S
        return moved

    def _elapsed(self, hours: int, days: np.random.Generator) -> Times:
        """The integral of the rate over its mean, at the beginning of each hour; shape (hours + 1,)."""
        hour = np.arange(hours)
        rates = np.ones(hours)
        for profile, unit in ((self.hours, 1), (self.weekdays, 24)):
            if profile:
                shape = np.array(profile) / np.mean(profile)
                rates *= np.maximum(shape, _LEAST_RATE)[(hour // unit) % len(profile)]
        if self.day_sigma:
            scores = _first_order(days.standard_normal(-(-hours // 24)), self.day_correlation)
            rates *= np.exp(self.day_sigma * scores - self.day_sigma**2 / 2)[hour // 24]
        return np.concatenate([[0.0], np.cumsum(rates)])


def _first_order(scores: Times, correlation: float) -> Times:
    """A stationary process of standard normal values with this correlation of neighbours."""
    if not correlation:
        return scores
    for i in range(1, len(scores)):
        scores[i] = correlation * scores[i - 1] + math.sqrt(1 - correlation**2) * scores[i]
    return scores


def normal_scores(values: Times) -> Times:
    """The standard normal deviate of each value's rank, ties in the middle of theirs; shape as `values`."""
    from scipy.special import ndtri
    from scipy.stats import rankdata

    scores: Times = ndtri((rankdata(values) - 0.5) / len(values))
    return scores
