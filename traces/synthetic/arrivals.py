"""When jobs arrive: point processes of a given rate, or scaled to a given window of time."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from itertime.errors import UnknownName, UserError, quoted

__all__ = ["ARRIVALS", "DAY_S", "arrival_times", "arrivals_within", "weibull_shape"]

ARRIVALS = ("poisson", "bursty", "batches", "day-night", "regular", "at-zero")
BURSTY_CV = 4.0  # ITP clusters: 3.3 to 4.9, where no lull of several days dominates it
BATCHES_CV = 3.0  # batches of 5 jobs on average
DAY_S = 86_400.0
DAY_TO_NIGHT = 2.0  # busiest over quietest rate; 1.9 on ITP cluster04 by hour of the day
_MAX_CV = 50.0
_WITHOUT_CV = ("poisson", "regular", "at-zero")


def arrival_times(
    kind: str, count: int, rate_per_s: float, rng: np.random.Generator, cv: float | None = None
) -> NDArray[np.float64]:
    """Submission times in s of `count` jobs, ascending, the first at 0; shape (count,).

    | kind | gaps, of mean 1 / rate_per_s |
    |---|---|
    | poisson | exponential |
    | bursty | Weibull of coefficient of variation `cv` (default 4) |
    | batches | jobs in batches of one instant, exponential gaps between batches (`_batches`) |
    | day-night | Weibull with `cv` (default 1); the rate swings 2:1 over 24 hours (`_day_night`) |
    | regular | constant |
    | at-zero | none: all jobs arrive at 0 |

    Weibull gaps reproduce the short gaps of logs: with cluster04's mean (325 s) and cv (4.7), 25 % of the
    gaps are below 1 s, and 29 % in the log. A hyper-exponential (balanced means) gives 1 %, a gamma 69 %.
    Raises UnknownName for another kind, UserError for an unusable `cv`.
    """
    times = _at_rate_one(kind, count, rng, cv) / rate_per_s
    return _day_night(times) if kind == "day-night" else times


def arrivals_within(
    kind: str, count: int, window_s: float, rng: np.random.Generator, cv: float | None = None
) -> NDArray[np.float64]:
    """The same processes, with the first job at 0 and the last at `window_s`; shape (count,).

    The draws are those of `arrival_times`, and time is scaled. So the gaps keep their ratios, and with them
    their coefficient of variation. A Poisson process of which the first and the last event are given has
    uniform order statistics in between, whatever its rate (Cox and Lewis, The Statistical Analysis of Series
    of Events, 1966, section 2.1). The scaled times are exactly that. With day-night the day keeps its 24
    hours: the scaling takes place before the change of time.

    All times are 0 if the process puts all jobs at one instant: one job, at-zero, or a single batch.
    """
    times = _at_rate_one(kind, count, rng, cv)
    if times[-1] == 0:
        return times
    shares = times / times[-1]  # exactly 1 at the end
    if kind == "day-night":
        swing = _SWING_S * (1 - math.cos(2 * math.pi * window_s / DAY_S))
        shares = _day_night(shares * (window_s + swing))
        return np.minimum(shares * (window_s / shares[-1]), window_s)  # the last digit of bisection
    return shares * window_s


def _at_rate_one(kind: str, count: int, rng: np.random.Generator, cv: float | None) -> NDArray[np.float64]:
    """Times of mean gap 1, the first at 0; those of day-night before the change of time."""
    if kind not in ARRIVALS:
        raise UnknownName("arrivals", kind, ARRIVALS)
    if cv is not None and kind in _WITHOUT_CV:
        names = ", ".join(name for name in ARRIVALS if name not in _WITHOUT_CV)
        remedy = f"leave it out, or use one of {names}"
        raise UserError(f"cv={cv:g}: arrivals {quoted(kind)} take no cv; {remedy}")
    if kind == "at-zero":
        return np.zeros(count)
    if kind == "regular":
        return np.arange(count, dtype=np.float64)
    if kind == "batches":
        return _batches(count, rng, BATCHES_CV if cv is None else cv)
    if cv is None:
        cv = BURSTY_CV if kind == "bursty" else 1.0
    shape = weibull_shape(cv)
    gaps = rng.weibull(shape, count - 1) / math.gamma(1 + 1 / shape)
    return np.concatenate([[0.0], np.cumsum(gaps)])


def _batches(count: int, rng: np.random.Generator, cv: float) -> NDArray[np.float64]:
    """Batches at the times of a Poisson process, as of users that submit a sweep of several jobs at once.

    The size of a batch is geometric with mean m (batch Poisson arrivals: Tijms, A First Course in Stochastic
    Models, 2003, section 9.3.2). A gap between jobs is 0 with probability 1 - 1/m, else exponential with mean
    m. So its mean is 1 and its squared coefficient of variation 2 m - 1; `cv` determines m.
    """
    mean_size = (_checked(cv) ** 2 + 1) / 2
    starts = rng.random(count - 1) * mean_size < 1
    gaps = np.where(starts, rng.exponential(mean_size, count - 1), 0.0)
    return np.concatenate([[0.0], np.cumsum(gaps)])


def weibull_shape(cv: float) -> float:
    """The shape k of the Weibull distribution with this coefficient of variation, from 1 (exponential) to 50.

    cv^2 = Gamma(1 + 2/k) / Gamma(1 + 1/k)^2 - 1 (Johnson, Kotz and Balakrishnan, Continuous Univariate
    Distributions, volume 1, 1994, chapter 21), solved by bisection.

    >>> weibull_shape(1.0)
    1.0
    """
    if _checked(cv) == 1.0:
        return 1.0
    low, high = 0.1, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        squared = math.exp(math.lgamma(1 + 2 / middle) - 2 * math.lgamma(1 + 1 / middle)) - 1
        low, high = (middle, high) if squared > cv**2 else (low, middle)
    return (low + high) / 2


def _checked(cv: float) -> float:
    if not 1.0 <= cv <= _MAX_CV:
        raise UserError(f"cv={cv:g}: must be between 1 (Poisson) and {_MAX_CV:g}")
    return cv


_SWING_S = (DAY_TO_NIGHT - 1) / (DAY_TO_NIGHT + 1) * DAY_S / (2 * math.pi)


def _day_night(times: NDArray[np.float64]) -> NDArray[np.float64]:
    """Move times of a process of constant rate r so that its rate is r (1 + a sin(2 pi t / day)), a = 1/3.

    Time change (Cinlar, Introduction to Stochastic Processes, 1975, section 4.7): t solves L(t) = time,
    where L(t) = t + a day / 2 pi (1 - cos(2 pi t / day)) is the integral of 1 + a sin. L increases, so
    bisection finds t.
    """
    low, high = times - 2 * _SWING_S, times.copy()
    for _ in range(80):
        middle = (low + high) / 2
        early = middle + _SWING_S * (1 - np.cos(2 * math.pi * middle / DAY_S)) < times
        low, high = np.where(early, middle, low), np.where(early, high, middle)
    return np.maximum(high, 0.0)
