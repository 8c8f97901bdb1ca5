"""Instances: what a bound knows of a cluster and of the jobs that run on it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from operator import attrgetter
from typing import NamedTuple

from clustersim.cluster import MILLION, Cluster, millionths_of
from clustersim.overheads import Overheads
from clustersim.speed import CannotRun, Curve, Offer, Speed
from clustersim.speed.network.layout import Layout, LayoutTimes
from traces.job import Job

__all__ = ["BoundJob", "Instance", "Option", "instance_of"]

_ROUNDING = 1e-12  # of the products and quotients of a job's speeds in its phases


class Option(NamedTuple):
    """What one GPU type offers a job. The tuples have one entry for each count in `sizes`, which ascends.

    | field | unit | meaning |
    |---|---|---|
    | gpu_type | | position of the type in `Instance.gpus` |
    | sizes | GPUs | every count on which the job can run; of a job that shares GPUs the least part of them |
    | rates | units/s | the greatest rate of work on that count, wherever its GPUs are |
    | launch_s | s | the least time without work of the first allocation that does work |
    | restart_s | s | the least time without work of every later one; at least `launch_s` |
    """

    gpu_type: int
    sizes: tuple[float, ...]
    rates: tuple[float, ...]
    launch_s: tuple[float, ...]
    restart_s: tuple[float, ...]


class BoundJob(NamedTuple):
    """A job with `work` units to do from `release_s` on, by `deadline_s` if it has a deadline. `options`: one
    for each GPU type that can run it. Jobs of one kind share the object, which makes bounds faster.
    """

    job_id: str
    release_s: float
    work: float
    options: tuple[Option, ...]
    deadline_s: float | None = None


@dataclass(frozen=True)
class Instance:
    """`gpus` by GPU type, and the jobs that can run on them. `deadline_jobs`: how many jobs have a deadline,
    those that cannot run included.
    `shared`: whether jobs may run on the same GPUs; `sizes` are then parts of them.
    """

    gpus: tuple[int, ...]
    jobs: tuple[BoundJob, ...]
    deadline_jobs: int = 0
    shared: bool = False


def instance_of(
    jobs: Iterable[Job], cluster: Cluster, speed: Speed, overheads: Overheads, density: float = 1.0
) -> Instance:
    """The instance of `jobs` on `cluster`; jobs that cannot run there are left out.

    The overheads are the least that the engine can charge (`clustersim.overheads`). Every allocation pays at
    least `start_s`. One that does work after an earlier one did pays a load of the checkpoint as well, which
    takes least on as many nodes as its GPUs can touch. The save is left out, because an earlier allocation
    can have paid it; so are the surcharges of a resize and a migration, which a preemption avoids.

    The rates are those of the job's curve. Where they depend on the placement they are the greatest of any
    layout (`clustersim.speed.network`): a plan can be faster on more nodes, each with a NIC for fewer of its
    GPUs. Uplinks and other jobs only slow it down, on the same GPU as well.

    `density`: where policies run jobs on the same GPUs, the most work that GPUs do at a time, in jobs alone.
    Charge a job that works at 1 / s of its rate alone 1 / (s density) of its GPUs. All jobs on the same GPUs
    are then charged no more than these, and each does `density` times as much work with a GPU-second as
    alone. So a job that needs only 1 / `density` of its GPUs, at its rate alone, can do all that it does in
    any such schedule. Launches are left out there: a job that pays one does no work for its charge.
    """
    offers_and_options: dict[tuple[int, float | None], tuple[tuple[Offer, ...], tuple[Option, ...]]] = {}
    layouts = LayoutTimes(speed) if cluster.network_model.by_placement or cluster.unequal else None
    bound_jobs, deadlines = [], 0
    for job in jobs:
        deadlines += job.deadline_s is not None
        try:
            offers = speed.offers(job)
        except CannotRun:
            continue
        key = id(offers), job.gpu_fraction
        entry = offers_and_options.get(key)  # with the offers, so that no other object gets their id
        if entry is None:
            options = _options(offers, cluster, overheads, layouts)
            if density > 1 and job.gpu_fraction is None:
                options = tuple(_shared(option, density) for option in options)
            if job.gpu_fraction is not None:
                held = millionths_of(job.gpu_fraction) / MILLION
                options = tuple(option._replace(sizes=(held,)) for option in options)
            entry = offers_and_options[key] = offers, options
        work = job.iterations if job.kind == "iterations" else job.duration_s
        assert work is not None
        bound_jobs.append(BoundJob(job.job_id, job.submit_s, float(work), entry[1], job.deadline_s))
    gpus = tuple(map(attrgetter("gpus"), cluster.pools))
    return Instance(gpus, tuple(bound_jobs), deadlines, shared=density > 1)


def _options(
    offers: tuple[Offer, ...], cluster: Cluster, overheads: Overheads, layouts: LayoutTimes | None
) -> tuple[Option, ...]:
    """What each GPU type that can run a kind of job offers it."""
    best, options = offers[0], []
    for offer in offers:
        position = cluster.gpu_types.index(offer.gpu_type) if offer.gpu_type in cluster.gpu_types else 0
        nodes, parameters = cluster.pools[position].nodes, best.curve.parameters  # as the engine charges
        unit_s = _least_unit_s(offer, best, cluster, layouts)
        rates, launch_s, restart_s = [], [], []
        for gpus, seconds in unit_s.items():
            start_s = overheads.start_s(gpus)
            rates.append(1.0 / seconds)
            launch_s.append(start_s)
            restart_s.append(start_s + overheads.load_s(parameters, min(gpus, nodes)))
        options.append(Option(position, tuple(unit_s), tuple(rates), tuple(launch_s), tuple(restart_s)))
    return tuple(options)


def _shared(option: Option, density: float) -> Option:
    """The option of a job that may share its GPUs."""
    none = (0.0,) * len(option.sizes)
    sizes = tuple(n / density for n in option.sizes)
    return option._replace(sizes=sizes, launch_s=none, restart_s=none)


def _least_unit_s(
    offer: Offer, best: Offer, cluster: Cluster, layouts: LayoutTimes | None
) -> dict[int, float]:
    """The least seconds per unit of work by GPU count, ascending, over all layouts.

    Of a job in phases it is u(n) = min over phases k of u_k(n) / a_k, where a_k is the phase's seconds per
    unit on the requested GPUs of the best type, over the mean of all work. A job that takes a_k u(n) in phase
    k is nowhere slower, and is one without phases once a unit of phase k counts as a_k units: the a_k, each
    as often as its share of the work, have the mean 1. So what no schedule can beat there, none beats here.
    Where a job has one GPU count, or its phases scale alike, nothing is lost. Where its batch is a choice,
    u_k(n) is that of the fastest batch.
    """
    if not offer.curve.phases:
        return _unit_s(offer.curve, offer.gpu_type, cluster, layouts)
    gpus = best.requested
    least_unit_s: dict[int, float] = {}
    for mine, best_phase in zip(offer.curve.phases, best.curve.phases, strict=True):
        longer = best_phase.curve.unit_s[gpus] / best.curve.work_s(gpus)
        for curve in mine.choices.values() or (mine.curve,):
            for n, unit_s in _unit_s(curve, offer.gpu_type, cluster, layouts).items():
                least_unit_s[n] = min(least_unit_s.get(n, inf), unit_s / longer * (1 - _ROUNDING))
    return least_unit_s


def _unit_s(curve: Curve, gpu_type: str, cluster: Cluster, layouts: LayoutTimes | None) -> dict[int, float]:
    """`layouts`: None where the speed is the same in all of them."""
    unit_s = dict(sorted(curve.unit_s.items()))
    if layouts is None:
        return unit_s
    for gpus, plan in curve.training.items():
        for per_node in range(1, min(cluster.pool(gpu_type).gpus_per_node, plan.gpus // 2) + 1):
            times = layouts.of(curve, gpus, Layout(gpu_type, per_node))
            if times is not None:
                unit_s[gpus] = min(unit_s[gpus], times.unit_s() * curve.per_unit)
    return unit_s
