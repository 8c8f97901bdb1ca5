"""Bounds from GPU-seconds: all GPUs as one machine that is fully used."""

from __future__ import annotations

from heapq import heappop, heappush, heapreplace
from math import fsum, inf

import numpy as np

from .columns import Columns, Floats

__all__ = ["areas", "makespan_by_area_s", "srpt_ends_s", "srpt_mean_s", "type_weights"]


def type_weights(columns: Columns) -> tuple[Floats, ...]:
    """Weights of the GPU types with which to compute `areas`: all alike, and by the mean rate per GPU of the
    jobs that can run on all types. Any weights >= 0 with a positive sum give valid bounds.
    """
    types = len(columns.gpus)
    alike = np.ones(types)
    if types == 1:
        return (alike,)
    total, jobs = np.zeros(types), 0
    for kind in columns.kinds:
        best = np.zeros(types)
        np.maximum.at(best, kind.gpu_type, kind.rate / kind.gpus)
        if best.all():
            total += len(kind.jobs) * np.log(best)
            jobs += len(kind.jobs)
    if not jobs:
        return (alike,)
    mean = np.exp(total / jobs)
    return alike, mean / mean.max()


def areas(columns: Columns, weights: Floats) -> Floats:
    """The least weighted GPU-seconds of each job: work / efficiency + the least that it holds without work.

    A GPU of type k counts `weights[k]`. The efficiency is the most units per weighted GPU-second,
    max over options of rate / (weight x GPUs); both parts are 0 where a weight is 0.

    *Proof.* A weighted GPU-second of an allocation that works does at most `efficiency` units, so the work
    takes at least work / efficiency of them. Those that pay for a launch are not among them.
    """
    least = np.empty(len(columns))
    for kind in columns.kinds:
        weighted = weights[kind.gpu_type] * kind.gpus
        per_unit = np.min(weighted / kind.rate)
        least[kind.jobs] = columns.work[kind.jobs] * per_unit + np.min(weighted * kind.launch_s)
    return least


def srpt_mean_s(columns: Columns, weights: Floats) -> float:
    """Mean JCT >= the mean flow time under SRPT on one machine, with processing times area / GPUs.

    *Proof.* By its completion a job has held its area (see `areas`). Let a job that holds weighted GPUs g of
    N be served by a machine at speed g / N. The speeds add up to at most 1, so this is a preemptive schedule
    of one machine, in which every job is complete no later than in the run. SRPT minimises the sum of
    completion times among those (Schrage, Operations Research 16, 1968; preemption in parts as in
    processor sharing does not help).
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


def makespan_by_area_s(columns: Columns, weights: Floats) -> float:
    """Makespan >= max over release times t of (t - first release) + the areas of the jobs released from t on,
    over all GPUs.

    *Proof.* These jobs hold their areas after t, and no more than all GPUs at a time.
    """
    order = np.argsort(columns.release_s, kind="stable")
    release_s = columns.release_s[order]
    after_s = np.cumsum(areas(columns, weights)[order][::-1])[::-1] / float(weights @ columns.gpus)
    return float(np.max(release_s - release_s[0] + after_s))
