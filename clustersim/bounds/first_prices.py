"""Breakpoints and prices to begin with, from the schedule that a single machine would have."""

from __future__ import annotations

import numpy as np

from .area import alone_s, areas, srpt_ends_s, type_weights
from .columns import Floats, OptionColumns

__all__ = ["breakpoints_s", "first_ends_s", "first_prices", "jobs_in_system", "spread_evenly"]

_TAIL = np.array([0.04, 0.1, 0.2, 0.4, 0.8, 1.4, 2.02])  # of the longest job alone, after the last breakpoint
_FEWEST, _MOST_PARTS = 48, 2  # intervals in all; of one between two times
_APART = 1e-9  # of the latest time: nearer breakpoints are one, as parts between them would round to nothing
_SPREADING = 1.3  # GPU-seconds that jobs hold in good schedules, over the least


def first_ends_s(columns: OptionColumns) -> Floats:
    """When each job is done on one machine under SRPT, and no earlier than alone. A guess: jobs run on more
    GPUs than where they are most efficient.
    """
    ends_s = columns.release_s + alone_s(columns)
    weights = type_weights(columns)[-1]
    area_s = _SPREADING * areas(columns, weights) / float(weights @ columns.gpus)
    return np.maximum(ends_s, srpt_ends_s(columns.release_s, area_s))


def breakpoints_s(columns: OptionColumns, ends_s: Floats, visits: int) -> Floats:
    """Some of the releases and `ends_s` (see `spread_evenly`), then a tail in which every job can be done
    alone.
    """
    edges_s = spread_evenly(columns.release_s, ends_s, visits)
    tail_s = edges_s[-1] + _TAIL * max(float(alone_s(columns).max()), 1e-6)
    return np.concatenate([edges_s, tail_s[tail_s > edges_s[-1]]])


def spread_evenly(release_s: Floats, ends_s: Floats, visits: int) -> Floats:
    """Breakpoints, chosen evenly among releases and ends, the first and the last included: as many as there
    may be for jobs to see `visits` intervals between release and end, in all. Where there are few, the
    intervals are divided into equal parts.
    """
    times_s = np.unique(np.concatenate([release_s, ends_s]))
    times_s = times_s[np.diff(times_s, prepend=-np.inf) > _APART * np.abs(times_s).max()]
    first_edges, last_edges = (np.searchsorted(times_s, edges_s) for edges_s in (release_s, ends_s))
    seen, intervals = max(int((last_edges - first_edges).sum()), 1), len(times_s) - 1
    if seen > visits and intervals > _FEWEST:
        most_intervals = max(_FEWEST, int(intervals * visits / seen))
        return times_s[np.unique(np.linspace(0, intervals, most_intervals + 1).round().astype(np.int64))]
    if not intervals:
        return times_s
    parts = max(_FEWEST // intervals, min(_MOST_PARTS, visits // seen), 1)
    between: Floats = np.interp(np.arange(parts * intervals + 1) / parts, np.arange(intervals + 1), times_s)
    return between


def jobs_in_system(
    release_s: Floats, ends_s: Floats, edges_s: Floats, weights: Floats | None = None
) -> Floats:
    """The mean number of jobs between release and end, by interval; each counts its weight, or 1."""
    weights = np.ones(len(release_s)) if weights is None else weights

    def passed(times_s: Floats) -> Floats:
        """The sum of weight x (edge - time) over the times before each edge."""
        order = np.argsort(times_s, kind="stable")
        sums, sum_of_times = (
            np.concatenate([[0.0], np.cumsum(values[order])])
            for values in (weights, weights * (times_s - edges_s[0]))
        )
        counts_before = np.searchsorted(times_s[order], edges_s, "right")
        return (edges_s - edges_s[0]) * sums[counts_before] - sum_of_times[counts_before]

    mean: Floats = np.diff(passed(release_s) - passed(ends_s)) / np.diff(edges_s)
    return np.maximum(mean, 0.0)


def first_prices(columns: OptionColumns, ends_s: Floats, edges_s: Floats) -> Floats:
    """Jobs in the system per GPU, as (GPU type, interval): what a GPU-second delays is what it is worth."""
    present = jobs_in_system(columns.release_s, ends_s, edges_s)
    present[edges_s[:-1] >= ends_s.max()] = 0.0
    weights = type_weights(columns)[-1]
    return np.outer(weights, present) / float(weights @ columns.gpus)
