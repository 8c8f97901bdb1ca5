"""How jobs arrive: rate, burstiness, and the profile of a day and a week."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .columns import DAY_S, HOUR_S, JobColumns

__all__ = ["arrivals", "dispersion", "profile"]

_LEAST_BINS, _MOST_BINS = 10, 20_000_000
_SIMULTANEOUS_S = 1.0


def arrivals(columns: JobColumns) -> dict[str, Any]:
    """The arrivals of a trace in numbers, JSON-ready; None where a trace is too short to tell.

    | key | meaning |
    |---|---|
    | jobs_per_hour | jobs over the span of submissions |
    | gap_mean_s, gap_median_s | between consecutive submissions |
    | gap_cv | standard deviation over mean of the gaps; 1 for a Poisson process |
    | within_1s | share of gaps below a second |
    | dispersion | variance over mean of the submissions per minute, hour, day (`dispersion`) |
    | hours, weekdays | share of submissions by hour of the day, by day of the week |
    | calendar | whether these are hours and days of a calendar, or of the trace's own clock |
    """
    gaps = columns.gap_s[1:]
    mean = float(gaps.mean()) if len(gaps) else 0.0
    return {
        "jobs_per_hour": len(gaps) / columns.span_s * HOUR_S if columns.span_s else None,
        "gap_mean_s": mean if len(gaps) else None,
        "gap_median_s": float(np.median(gaps)) if len(gaps) else None,
        "gap_cv": float(gaps.std()) / mean if mean else None,
        "within_1s": float((gaps < _SIMULTANEOUS_S).mean()) if len(gaps) else None,
        "dispersion": {
            name: dispersion(columns, bin_s)
            for name, bin_s in (("minute", 60.0), ("hour", HOUR_S), ("day", DAY_S))
        },
        "hours": profile(columns.hour, 24).tolist() if columns.span_s >= DAY_S else None,
        "weekdays": profile(columns.weekday, 7).tolist() if columns.span_s >= 7 * DAY_S else None,
        "calendar": columns.zero_s is not None,
    }


def dispersion(columns: JobColumns, bin_s: float) -> float | None:
    """Variance over mean of the number of submissions in whole bins of `bin_s`; None for fewer than ten bins
    or more than 20 million.

    The index of dispersion for counts (Cox and Lewis, The Statistical Analysis of Series of Events, 1966,
    section 4.3): 1 for a Poisson process, more where submissions come in bursts.
    """
    bins = int(columns.span_s // bin_s)
    if not _LEAST_BINS <= bins <= _MOST_BINS:
        return None
    bin_index = ((columns.submit_s - columns.submit_s[0]) // bin_s).astype(np.intp)
    counts = np.bincount(bin_index[bin_index < bins], minlength=bins)
    return float(counts.var() / counts.mean())


def profile(of_jobs: NDArray[np.intp], bins: int) -> NDArray[np.float64]:
    """Share of the jobs in each of so many bins; shape (bins,)."""
    return np.bincount(of_jobs, minlength=bins) / len(of_jobs)
