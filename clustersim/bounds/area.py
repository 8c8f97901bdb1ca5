"""What each job needs at least, in seconds and in GPU-seconds, and shortest-first service on one machine.

"Area" is the field's word for GPUs x time.
"""

from __future__ import annotations

from heapq import heappop, heappush, heapreplace
from math import fsum, inf

import numpy as np

from .columns import Floats, OptionColumns

__all__ = ["alone_s", "areas", "srpt_ends_s", "srpt_mean_s", "type_weights"]


def alone_s(columns: OptionColumns) -> Floats:
    """The least JCT of each job, in seconds, as if it had the cluster for itself: min over its options o of
    launch_s(o) + work / rate(o).

    *Proof.* Call an allocation useful if it adds to the job's work. Let o be the fastest option of the useful
    allocations. The work alone takes at least work / rate(o). Each useful allocation also pays its launch or
    more, so one of them pays launch_s(o). The two times do not overlap. A job without work is done when an
    allocation has paid its launch. []
    """
    least_s = np.empty(len(columns))
    for kind in columns.kinds:
        unit_s = 1.0 / kind.rate
        best = np.full(len(kind.jobs), np.inf)
        work = columns.work[kind.jobs]
        for option in range(len(unit_s)):
            np.minimum(best, kind.launch_s[option] + work * unit_s[option], out=best)
        least_s[kind.jobs] = best
    return least_s


def type_weights(columns: OptionColumns) -> tuple[Floats, ...]:
    """Weights of the GPU types with which to compute `areas`: all alike, and by the mean rate per GPU of the
    jobs that can run on all types. Any weights >= 0 of which one is positive give valid bounds.
    """
    types = len(columns.gpus)
    equal_weights = np.ones(types)
    if types == 1:
        return (equal_weights,)
    total, jobs = np.zeros(types), 0
    for kind in columns.kinds:
        best = np.zeros(types)
        np.maximum.at(best, kind.gpu_type, kind.rate / kind.gpus)
        if best.all():
            total += len(kind.jobs) * np.log(best)
            jobs += len(kind.jobs)
    if not jobs:
        return (equal_weights,)
    mean = np.exp(total / jobs)
    return equal_weights, mean / mean.max()


def areas(columns: OptionColumns, weights: Floats) -> Floats:
    """The least weighted GPU-seconds of each job: those of its work + those of its launch.

    A GPU of type k counts `weights[k]`. Those of the work are work x the least weighted GPU-seconds per unit,
    min over options of weight x GPUs / rate. Those of the launch are min over options of weight x GPUs x
    launch_s.

    *Proof.* No allocation does a unit of work in fewer weighted GPU-seconds than the best option. The
    allocation with which the job ends pays its launch or more on all its GPUs, and does no work meanwhile. []
    """
    least_area = np.empty(len(columns))
    for kind in columns.kinds:
        weighted = weights[kind.gpu_type] * kind.gpus
        per_unit = np.min(weighted / kind.rate)
        least_area[kind.jobs] = columns.work[kind.jobs] * per_unit + np.min(weighted * kind.launch_s)
    return least_area


def srpt_mean_s(columns: OptionColumns, weights: Floats) -> float:
    """Mean JCT >= the mean flow time under SRPT on one machine, with processing times area / GPUs.

    *Proof.* By its completion a job has held its area (see `areas`). Let a machine serve a job that holds
    weighted GPUs g of N at speed g / N. The speeds add up to at most 1, so this is a preemptive schedule of
    one machine, in which every job is complete no later than in the run. Among such schedules SRPT has the
    least sum of completion times (Schrage, Operations Research 16, 1968). Sharing the machine between jobs at
    one time, as here, is a limit of ever shorter turns, and gains nothing. []
    """
    ends_s = srpt_ends_s(columns.release_s, areas(columns, weights) / float(weights @ columns.gpus))
    return fsum((ends_s - columns.release_s).tolist()) / len(columns)


def srpt_ends_s(release_s: Floats, process_s: Floats) -> Floats:
    """When each job is done under shortest remaining processing time on one machine, in O(n log n)."""
    ends_s, waiting, now = np.empty(len(release_s)), list[tuple[float, int]](), -inf
    order = np.argsort(release_s, kind="stable")
    for job, release, process in zip(
        order.tolist(), release_s[order].tolist(), process_s[order].tolist(), strict=True
    ):
        while waiting and now + waiting[0][0] <= release:
            remaining, done = heappop(waiting)
            now += remaining
            ends_s[done] = now
        if waiting and now < release:
            remaining, served = waiting[0]
            heapreplace(waiting, (remaining - (release - now), served))
        now = release
        heappush(waiting, (process, job))
    while waiting:
        remaining, done = heappop(waiting)
        now += remaining
        ends_s[done] = now
    return ends_s
