"""Bounds of how many jobs meet their deadlines, and of the 99th percentile of JCT, which follows."""

from __future__ import annotations

from math import floor, inf

import numpy as np

from .area import alone_s, areas, type_weights
from .ascent import ascend
from .columns import Floats, OptionColumns
from .first_prices import jobs_in_system, spread_evenly
from .relaxation import Relaxation

__all__ = ["met_at_most", "p99_s"]

_ERROR = 1e-9  # relative, of times
_WHOLE = 1e-6  # jobs; a count so near a whole number is that number
_SHARE = 0.99  # of the percentile
_TRIAL_STEPS = 12  # after which the search goes on only if prices prove that some jobs are late


def met_at_most(
    columns: OptionColumns, deadline_s: Floats, *, steps: int, visits: int, enough: float = -inf
) -> int:
    """How many of the jobs can be done by their deadline at most; NaN: a job has none.

    `steps`: of the ascent; 0 counts the jobs that meet it alone. `visits`: how many intervals jobs may see in
    all. The search ends once at most `enough` jobs are left, or where it will hardly find a job that is late.

    *Statement.* Take prices lam >= 0. Let K_j be the least price of the GPU-seconds of a plan of job j that
    ends by its deadline, infinite if there is none. The number of jobs that meet their deadline is at most
    the price of all GPUs over all time + sum over jobs of max(0, 1 - K_j).

    *Proof.* Let y_j = 1 for jobs that meet it, else 0. Their plans hold no more than all GPUs, so the sum of
    y_j is at most itself + the price of the GPU-seconds that they leave. That is the price of all GPUs + the
    sum of y_j (1 - price of what j holds), and what j holds costs at least K_j. Jobs that are late only hold
    more. []

    A plan may hold nothing for a while before it ends. So plans that end exactly at the deadline cover those
    that end earlier, and K_j is computed over them (`Relaxation`). A job with K_j > 1 adds nothing. The count
    is rounded down.
    """
    slack_s = _ERROR * np.abs(deadline_s - columns.release_s) + columns.clock_error_s
    least_s = alone_s(columns)
    able = columns.release_s + least_s <= deadline_s + slack_s  # False for NaN
    possible = int(able.sum())
    rows = np.nonzero(able & (columns.work > 0))[0]
    if not steps or not len(rows) or possible <= enough:
        return possible
    job_columns = columns.part(rows)
    until_s = (deadline_s + slack_s)[rows]
    edges_s = spread_evenly(job_columns.release_s, until_s, visits)
    weights = type_weights(job_columns)[-1]
    gpus = float(weights @ job_columns.gpus)
    area = areas(job_columns, weights)
    unit_price = 1.0 / float(np.percentile(area, 90))
    demand = (
        jobs_in_system(job_columns.release_s, until_s, edges_s, area / (until_s - job_columns.release_s))
        / gpus
    )
    price = np.outer(weights, unit_price * (demand - 0.5).clip(0.0, 1.0))
    relaxation, nothing = Relaxation(job_columns, edges_s, until_s, free_end=False), np.zeros(len(rows))
    most_met = possible
    for part in (min(steps, _TRIAL_STEPS), steps - _TRIAL_STEPS):
        if part <= 0:
            break
        ascent = ascend(
            relaxation,
            price,
            part,
            lower_bounds=nothing,
            unit_price=0.1 * unit_price,
            enough=possible - enough - 1 + _WHOLE,
            known=_WHOLE,
        )
        most_met = min(most_met, floor(possible - ascent.dual + _WHOLE))
        if ascent.dual <= 0 or most_met <= enough:
            break  # without any sign of contention more steps find none
        price = ascent.price
    return most_met


def p99_s(columns: OptionColumns, alone: Floats, *, steps: int, visits: int, trials: int) -> float:
    """The least 99th percentile of JCT, interpolated between order statistics as in the metric (type 7 of
    Hyndman and Fan). `alone`: the least JCT of each job. `trials`: how many JCTs are tried for a statistic.

    *Statement.* With n jobs let h = 0.99 (n - 1) and m = floor(h) + 1. The percentile is the m-th shortest
    JCT + (h - floor(h)) x the difference to the next. The m-th shortest JCT is at least the m-th smallest of
    `alone`. It is above x if fewer than m jobs can be done within x of their release (`met_at_most`).

    *Proof.* Each JCT is at least its bound, so in order they are, too. If the m-th shortest were at most x,
    then m jobs would be done within x. The percentile grows with both statistics. []
    """
    place = _SHARE * (len(columns) - 1)
    rank, fraction = floor(place) + 1, place - floor(place)
    sorted_times = np.sort(alone)

    def proved_s(count: int, from_s: float) -> float:
        """The largest x found for which fewer than `count` jobs can be done within x; `from_s` if none."""
        low_s, high_s = from_s, np.inf
        for _ in range(trials):
            x = 2.0 * low_s if high_s == np.inf else float(np.sqrt(low_s * high_s))
            if x <= 0 or high_s <= 1.02 * low_s:
                break
            met = met_at_most(columns, columns.release_s + x, steps=steps, visits=visits, enough=count - 1)
            low_s, high_s = (x, high_s) if met < count else (low_s, x)
        return low_s

    lower_s = proved_s(rank, float(sorted_times[rank - 1]))
    if not fraction:
        return lower_s
    upper_s = proved_s(rank + 1, max(lower_s, float(sorted_times[rank])))
    return lower_s + fraction * (upper_s - lower_s)
