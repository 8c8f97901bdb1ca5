"""GPUs in use over time, and the capacity that a log shows.

Rules
- **Peak.** The capacity is the most GPUs that were in use at once for at least a minute in all, or for a
  thousandth of the time in which any were in use if that is less. So the second that a log's rounding makes
  a job overlap with its successor adds no GPU. It is at least the largest request.
- **Reduced capacity.** While jobs wait, and even the largest of them would fit beside what is in use, no
  scheduler that uses what it has would leave them waiting. If that goes on for at least six hours, in which
  no job starts within a minute of its submission, and use stays near its top (its mean is at least 0.8 of
  it) or is zero, the capacity in that time is the most that was in use. Jobs on hold and limits of users
  can look the same; the jobs that start at once beside them tell most such times apart.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .logged import Floats, Rows

__all__ = ["Reduced", "in_use", "mean_difference", "mean_use", "peak", "reduced"]

_LEAST_S, _LEAST_SHARE = 60.0, 0.001  # for which a level of use counts as capacity
_REDUCED_S = 6 * 3600.0
_NEAR_TOP = 0.8
_AT_ONCE_S = 60.0


@dataclass(frozen=True)
class Reduced:
    """From `from_s` to `until_s`, only `gpus` were there."""

    from_s: float
    until_s: float
    gpus: int


def in_use(start_s: Floats, run_s: Floats, gpus: Rows) -> tuple[Floats, Floats]:
    """Times in ascending order, and the GPUs in use from each of them to the next. Jobs without a start (NaN)
    hold nothing.
    """
    has_start = ~np.isnan(start_s)
    times = np.concatenate([start_s[has_start], start_s[has_start] + run_s[has_start]])
    change = np.concatenate([gpus[has_start], -gpus[has_start]]).astype(np.float64)
    moments, places = np.unique(times, return_inverse=True)
    return moments, np.cumsum(np.bincount(places, weights=change, minlength=len(moments)))


def peak(start_s: Floats, run_s: Floats, gpus: Rows) -> int:
    """The capacity by the rule of the peak; 0 without a start."""
    moments, gpus_in_use = in_use(start_s, run_s, gpus)
    if not len(moments):
        return 0
    lasted = np.diff(moments, append=moments[-1])
    levels = np.argsort(-gpus_in_use, kind="stable")
    above = np.cumsum(lasted[levels])
    least_s = min(_LEAST_S, _LEAST_SHARE * float(lasted[gpus_in_use > 0].sum()))
    reached = int(np.searchsorted(above, least_s))
    return int(gpus_in_use[levels[min(reached, len(levels) - 1)]])


def mean_use(start_s: Floats, run_s: Floats, gpus: Rows, from_s: float, until_s: float) -> float:
    """GPUs in use on average between two times; 0 for a window of nothing."""
    if until_s <= from_s:
        return 0.0
    held = np.clip(np.minimum(start_s + run_s, until_s) - np.maximum(start_s, from_s), 0, None)
    return float(np.nansum(held * gpus)) / (until_s - from_s)


def mean_difference(curve_a: tuple[Floats, Floats], curve_b: tuple[Floats, Floats], until_s: float) -> float:
    """The mean over time, from 0 to `until_s`, of how far two curves of use are apart, in GPUs."""
    if until_s <= 0:
        return 0.0
    moments = np.unique(np.concatenate([curve_a[0], curve_b[0], [0.0, until_s]]))
    moments = moments[(moments >= 0) & (moments <= until_s)]
    differences = np.abs(_at(curve_a, moments) - _at(curve_b, moments))[:-1]
    return float((differences * np.diff(moments)).sum()) / until_s


def _at(curve: tuple[Floats, Floats], moments: Floats) -> Floats:
    places = np.searchsorted(curve[0], moments, side="right")
    return np.concatenate([[0.0], curve[1]])[places]


def reduced(
    submit_s: Floats, start_s: Floats, run_s: Floats, gpus: Rows, capacity: int, until_s: float
) -> list[Reduced]:
    """Times of reduced capacity before `until_s`, by the rule above, in order of time."""
    moments, gpus_in_use, waiting = _with_queue(submit_s, start_s, run_s, gpus)
    unexplained = (waiting > 0) & (gpus_in_use + waiting <= capacity)
    spans = [
        part
        for mask in (unexplained & (gpus_in_use == 0), unexplained & (gpus_in_use > 0))
        for part in _parts(moments, gpus_in_use, mask, until_s)
        if not (
            (submit_s >= part.from_s) & (start_s < part.until_s) & (start_s - submit_s <= _AT_ONCE_S)
        ).any()
    ]
    return sorted(spans, key=lambda part: part.from_s)


def _parts(
    moments: Floats, gpus_in_use: Floats, mask: NDArray[np.bool_], until_s: float
) -> Iterator[Reduced]:
    """The long stretches of the mask in which use stays near its top."""
    edges = np.flatnonzero(np.diff(mask.astype(np.int8), prepend=0, append=0))
    for start, end in zip(edges[::2], edges[1::2], strict=True):
        from_s, to_s = float(moments[start]), min(float(moments[min(end, len(moments) - 1)]), until_s)
        if to_s - from_s < _REDUCED_S:
            continue
        lasted = np.clip(np.diff(np.append(np.minimum(moments[start:end], to_s), to_s)), 0, None)
        top = float(gpus_in_use[start:end][lasted > 0].max())
        mean = float((gpus_in_use[start:end] * lasted).sum()) / (to_s - from_s)
        if mean >= _NEAR_TOP * top:
            yield Reduced(from_s, to_s, int(top))


def _with_queue(
    submit_s: Floats, start_s: Floats, run_s: Floats, gpus: Rows
) -> tuple[Floats, Floats, Floats]:
    """As `in_use`, with the largest request that waits from each time to the next; 0 if none waits."""
    started_rows = np.flatnonzero(~np.isnan(start_s))
    steps: list[tuple[float, int, int]] = []  # (time, kind, GPUs): 0 an end, 1 a submission, 2 a start
    for i in started_rows:
        n = int(gpus[i])
        steps += [(float(start_s[i] + run_s[i]), 0, n), (float(submit_s[i]), 1, n), (float(start_s[i]), 2, n)]
    steps.sort()
    moments: list[float] = []
    gpus_in_use: list[float] = []
    largest: list[float] = []
    held, queue = 0, list[int]()
    for time_s, kind, n in steps:
        if kind == 0:
            held -= n
        elif kind == 1:
            insort(queue, n)
        else:
            queue.pop(bisect_left(queue, n))
            held += n
        if moments and moments[-1] == time_s:
            gpus_in_use[-1], largest[-1] = held, queue[-1] if queue else 0
        else:
            moments.append(time_s)
            gpus_in_use.append(held)
            largest.append(queue[-1] if queue else 0)
    return np.array(moments), np.array(gpus_in_use, dtype=float), np.array(largest, dtype=float)
