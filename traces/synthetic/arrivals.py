"""When jobs arrive: renewal processes of a given rate and burstiness, with or without day and night."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from itertime.errors import UnknownName, UserError, quoted

__all__ = ["ARRIVALS", "arrival_times", "weibull_shape"]

ARRIVALS = ("poisson", "bursty", "day-night", "at-zero")
BURSTY_CV = 4.0  # ITP clusters: 3.3 to 4.9, where no lull of several days dominates it
DAY_S = 86_400.0
DAY_TO_NIGHT = 2.0  # busiest over quietest rate; 1.9 on ITP cluster04 by hour of the day
_MAX_CV = 50.0


def arrival_times(
    kind: str, count: int, rate_per_s: float, rng: np.random.Generator, cv: float | None = None
) -> NDArray[np.float64]:
    """Submission times in s of `count` jobs, ascending, the first at 0; shape (count,).

    | kind | gaps |
    |---|---|
    | poisson | exponential with mean 1 / rate_per_s |
    | bursty | Weibull with that mean and coefficient of variation `cv` (default 4) |
    | day-night | Weibull with `cv` (default 1); the rate swings 2:1 over 24 hours (`_day_night`) |
    | at-zero | none: all jobs arrive at 0 |

    Weibull gaps reproduce the short gaps of logs: with cluster04's mean (325 s) and cv (4.7), 25 % of the
    gaps are below 1 s, and 29 % in the log. A hyper-exponential (balanced means) gives 1 %, a gamma 69 %.
    Raises UnknownName for another kind, UserError for an unusable `cv`.
    """
    if kind not in ARRIVALS:
        raise UnknownName("arrivals", kind, ARRIVALS)
    if cv is not None and kind in ("poisson", "at-zero"):
        raise UserError(f"cv={cv:g}: arrivals {quoted(kind)} take no cv; use bursty or day-night")
    if kind == "at-zero":
        return np.zeros(count)
    if cv is None:
        cv = BURSTY_CV if kind == "bursty" else 1.0
    shape = weibull_shape(cv)
    gaps = rng.weibull(shape, count - 1) / math.gamma(1 + 1 / shape)
    times = np.concatenate([[0.0], np.cumsum(gaps)]) / rate_per_s
    return _day_night(times) if kind == "day-night" else times


def weibull_shape(cv: float) -> float:
    """The shape k of the Weibull distribution with this coefficient of variation, from 1 (exponential) to 50.

    cv^2 = Gamma(1 + 2/k) / Gamma(1 + 1/k)^2 - 1 (Johnson, Kotz and Balakrishnan, Continuous Univariate
    Distributions, volume 1, 1994, chapter 21), solved by bisection.

    >>> weibull_shape(1.0)
    1.0
    """
    if not 1.0 <= cv <= _MAX_CV:
        raise UserError(f"cv={cv:g}: must be between 1 (Poisson) and {_MAX_CV:g}")
    if cv == 1.0:
        return 1.0
    low, high = 0.1, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        squared = math.exp(math.lgamma(1 + 2 / middle) - 2 * math.lgamma(1 + 1 / middle)) - 1
        low, high = (middle, high) if squared > cv**2 else (low, middle)
    return (low + high) / 2


def _day_night(times: NDArray[np.float64]) -> NDArray[np.float64]:
    """Move times of a process of constant rate r so that its rate is r (1 + a sin(2 pi t / day)), a = 1/3.

    Time change (Cinlar, Introduction to Stochastic Processes, 1975, section 4.7): t solves L(t) = time,
    where L(t) = t + a day / 2 pi (1 - cos(2 pi t / day)) is the integral of 1 + a sin. L increases, so
    bisection finds t.
    """
    swing = (DAY_TO_NIGHT - 1) / (DAY_TO_NIGHT + 1) * DAY_S / (2 * math.pi)
    low, high = times - 2 * swing, times.copy()
    for _ in range(80):
        middle = (low + high) / 2
        early = middle + swing * (1 - np.cos(2 * math.pi * middle / DAY_S)) < times
        low, high = np.where(early, middle, low), np.where(early, high, middle)
    return np.maximum(high, 0.0)
