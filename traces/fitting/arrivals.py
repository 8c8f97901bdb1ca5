"""Fits the rhythm of arrivals: rates of hours, days and weeks, and the gaps that remain."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from traces.statistics import JobColumns
from traces.synthetic import QuantileTable, Rhythm, normal_scores

from .run_times import table_of

__all__ = ["fit_arrivals"]

_HOUR_S, _DAY_S = 3600.0, 86_400.0
_DAYS_OF_HOURS, _DAYS_OF_WEEKS, _DAYS_OF_DAYS = 3, 21, 7  # that a log needs for a profile of these
_LEAST = 0.05  # of a rate, over the mean
_MOST_CORRELATION, _MOST_SIGMA = 0.95, 3.0

Numbers = NDArray[np.float64]


def fit_arrivals(columns: JobColumns) -> Rhythm:
    """The rhythm of a trace.

    Hours and days of the week are those of the calendar where the trace knows it, else of its own clock; they
    are fitted to logs of 3 and of 21 days or more. What a day's submissions differ from that by is the rate
    of the day, for logs of 7 days or more: a log-normal factor of the variance and correlation that the days
    have, less the variance of counts of a Poisson process. Gaps are then measured on a clock that runs with
    the rate.
    """
    moment_s = columns.submit_s + (columns.zero_s or 0.0)
    first_s = np.floor(moment_s[0] / _DAY_S) * _DAY_S
    at_hour = ((moment_s - first_s) // _HOUR_S).astype(np.intp)
    from_hour, span_days = at_hour[0], columns.span_s / _DAY_S
    hours = np.arange(at_hour[-1] + 1)
    counts = np.bincount(at_hour, minlength=len(hours)).astype(np.float64)
    weekday = (columns.weekday[0] + hours // 24) % 7
    in_operation = hours >= from_hour
    of_hours = _rates(counts, hours % 24, in_operation, 24) if span_days >= _DAYS_OF_HOURS else ()
    of_days = _rates(counts, weekday, in_operation, 7) if span_days >= _DAYS_OF_WEEKS else ()
    rate = np.array(of_hours or [1.0])[(hours % 24) % len(of_hours or [1])]
    rate = rate * np.array(of_days or [1.0])[weekday % len(of_days or [1])]
    sigma, correlation, of_day = 0.0, 0.0, np.ones(len(hours) // 24 + 1)
    if span_days >= _DAYS_OF_DAYS:
        by_day = (
            np.bincount(hours // 24, weights=of).astype(np.float64) for of in (counts, rate * in_operation)
        )
        sigma, correlation, of_day = _busy_days(*by_day)
    clock = np.concatenate([[0.0], np.cumsum(rate * of_day[hours // 24])])
    gaps = np.diff(np.interp((moment_s - first_s) / _HOUR_S, np.arange(len(clock)), clock))
    positive = gaps[gaps > 0]
    if len(positive) < 2:
        positive = np.ones(2)
    return Rhythm(
        jobs_per_day=_digits(len(gaps) / span_days),
        gaps=QuantileTable(table_of(positive / positive.mean())),
        zero_share=_digits(float((gaps <= 0).mean())),
        gap_correlation=_correlation(normal_scores(gaps)),
        hours=of_hours,
        weekdays=of_days,
        day_sigma=sigma,
        day_correlation=correlation,
    )


def _rates(
    counts: Numbers, of_hour: NDArray[np.intp], in_operation: NDArray[np.bool_], bins: int
) -> tuple[float, ...]:
    """Rate of each hour of the day, or day of the week, over the mean; shape (bins,)."""
    exposed = np.bincount(of_hour[in_operation], minlength=bins)
    rates = np.bincount(of_hour[in_operation], weights=counts[in_operation], minlength=bins) / np.maximum(
        exposed, 1
    )
    return tuple(_digits(rate) for rate in np.maximum(rates / rates.mean(), _LEAST).tolist())


def _busy_days(counts: Numbers, expected: Numbers) -> tuple[float, float, Numbers]:
    """Standard deviation and correlation of the logarithms of days' rates; these rates, shape (days,)."""
    expected = expected * counts.sum() / expected.sum()
    expects_jobs = expected > 0
    factors = np.ones(len(counts))
    factors[expects_jobs] = (counts[expects_jobs] + 0.5) / (expected[expects_jobs] + 0.5)
    ratios = counts[expects_jobs] / expected[expects_jobs]
    excess = float(ratios.var() - (1 / expected[expects_jobs]).mean())
    if excess <= 0:
        return 0.0, 0.0, factors
    variance = min(float(np.log1p(excess)), _MOST_SIGMA**2)
    correlation = float(np.log1p(_correlation(ratios) * np.expm1(variance))) / variance
    return _digits(variance**0.5), _digits(min(correlation, _MOST_CORRELATION)), factors


def _correlation(values: Numbers) -> float:
    """Correlation of neighbours, from 0 to 0.95."""
    if len(values) < 3 or not values.std():
        return 0.0
    correlation = float(np.corrcoef(values[:-1], values[1:])[0, 1])
    return _digits(min(max(correlation, 0.0), _MOST_CORRELATION)) if np.isfinite(correlation) else 0.0


def _digits(value: float) -> float:
    return float(f"{value:.4g}")
