"""Breakpoints and prices to begin with, from a simple schedule of the jobs."""

from __future__ import annotations

from heapq import heappop, heappush
from math import inf
from typing import NamedTuple

import numpy as np

from .area import alone_s, areas, srpt_ends_s, type_weights
from .columns import Floats, OptionColumns

__all__ = [
    "FirstSchedule",
    "breakpoints_s",
    "first_prices",
    "first_schedule",
    "jobs_in_system",
    "spread_evenly",
]

_TAIL = np.array([0.04, 0.1, 0.2, 0.4, 0.8, 1.4, 2.02])  # of the longest job alone, after the last breakpoint
_FEWEST, _MOST_PARTS = 48, 2  # intervals in all; of one between two times
_APART = 1e-9  # of the latest time: nearer breakpoints are one, as parts between them would round to nothing
_SPREADING = 1.3  # GPU-seconds that jobs hold in good schedules, over the least
_BEGUN = 0.25  # of its run, for which a job that has waited still counts
_MOST_LISTED, _SHORT_WAITS = 2000, 0.2  # jobs; of their run times


class FirstSchedule(NamedTuple):
    """When each job ends in a schedule, and from when until when it adds its share to the price. `near`:
    whether these prices are so good that few steps are enough.
    """

    ends_s: Floats
    from_s: Floats
    until_s: Floats
    near: bool = False


def first_schedule(columns: OptionColumns) -> FirstSchedule:
    """A guess of a good schedule: on one machine under SRPT, no job earlier than alone. All jobs in the
    system add to the price.

    Where rigid jobs wait little, what they wait for is decided by when others end. So they have a better
    schedule, `_smallest_first`, unless there are so many that intervals are long beside their runs.
    """
    if columns.rigid and len(columns.gpus) == 1 and len(columns) <= _MOST_LISTED:
        schedule = _smallest_first(columns)
        if schedule.near:
            return schedule
    ends_s = columns.release_s + alone_s(columns)
    weights = type_weights(columns)[-1]
    area_s = _SPREADING * areas(columns, weights) / float(weights @ columns.gpus)
    ends_s = np.maximum(ends_s, srpt_ends_s(columns.release_s, area_s))
    return FirstSchedule(ends_s, columns.release_s, ends_s)


def _smallest_first(columns: OptionColumns) -> FirstSchedule:
    """Rigid jobs, of which the one with the smallest area starts as soon as any GPU is free.

    A job that waits is delayed by each GPU-second that is lost after the last start of a larger job, as only
    smaller ones go before it then, or after the GPUs were last free. So it adds to the price from there until
    it starts, and for a part of its run, while it has hardly begun to hold its GPUs.
    """
    run_s = alone_s(columns)
    gpus = np.empty(len(columns))
    for kind in columns.kinds:
        gpus[kind.jobs] = kind.gpus[0]
    order = np.argsort(columns.release_s, kind="stable")
    jobs = zip(*(values[order].tolist() for values in (columns.release_s, gpus, run_s)), strict=True)
    queue = _Queue(float(columns.gpus[0]), len(order))
    for job, (release_s, count, seconds) in enumerate(jobs):
        queue.release(job, release_s, count, seconds)
    queue.pass_until(inf)
    from_s, start_s = np.empty(len(order)), np.empty(len(order))
    from_s[order], start_s[order] = queue.from_s, queue.start_s
    waits_s = start_s - columns.release_s
    return FirstSchedule(
        ends_s=start_s + run_s,
        from_s=from_s,
        until_s=np.where(waits_s > 0, start_s + _BEGUN * run_s, from_s),
        near=bool(waits_s.sum() < _SHORT_WAITS * run_s.sum()),
    )


class _Queue:
    """GPUs, and the jobs that run and wait, as time passes. `start_s`: when each job starts. `from_s`: since
    when only smaller jobs, and none that is larger, went before it.

    `larger`: starts after `free_s`, when GPUs were last free, as (area, time). After each of them no larger
    job has started, so they are sorted, the largest first.
    """

    def __init__(self, gpus: float, jobs: int):
        self.free, self.free_s = gpus, 0.0
        self.waiting, self.running = list[tuple[float, int, float, float]](), list[tuple[float, float]]()
        self.larger = list[tuple[float, float]]()
        self.start_s, self.from_s = [0.0] * jobs, [0.0] * jobs

    def release(self, job: int, release_s: float, gpus: float, run_s: float) -> None:
        self.pass_until(release_s)
        if self.free > 0:
            self._end_queue(release_s)
        heappush(self.waiting, (gpus * run_s, job, gpus, run_s))
        self._start(release_s)

    def pass_until(self, time_s: float) -> None:
        """Let jobs end until a time, and others start."""
        while self.running and self.running[0][0] <= time_s:
            end_s, gpus = heappop(self.running)
            self.free += gpus
            self._start(end_s)
            if self.free > 0:
                self._end_queue(end_s)

    def _end_queue(self, now_s: float) -> None:
        self.free_s = now_s
        self.larger.clear()

    def _start(self, now_s: float) -> None:
        while self.waiting and self.free > 0:
            area, job, gpus, run_s = heappop(self.waiting)
            while self.larger and self.larger[-1][0] <= area:
                self.larger.pop()
            self.from_s[job] = self.larger[-1][1] if self.larger else self.free_s
            self.larger.append((area, now_s))
            self.start_s[job] = now_s
            self.free -= gpus
            heappush(self.running, (now_s + run_s, gpus))


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


def first_prices(columns: OptionColumns, schedule: FirstSchedule, edges_s: Floats) -> Floats:
    """Jobs that a GPU-second delays, per GPU, as (GPU type, interval): that is what it is worth."""
    delayed = jobs_in_system(schedule.from_s, schedule.until_s, edges_s)
    delayed[edges_s[:-1] >= schedule.ends_s.max()] = 0.0
    weights = type_weights(columns)[-1]
    return np.outer(weights, delayed) / float(weights @ columns.gpus)
