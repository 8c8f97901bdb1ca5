"""Synthetic traces: seeded arrivals, GPU counts, run times, models and deadlines, at a target load."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from itertime.errors import UserError
from itertime.io import sha256
from traces.estimates import Estimates
from traces.job import MAX_GPUS, Job
from traces.native import MAX_COUNT, MAX_SECONDS, MIN_SECONDS, StoredJobs
from traces.summary import cautions, demand, load_of
from traces.workload import Rules, WorkMaker, as_floats, deadline_factors, stream, work_maker

from .arrivals import DAY_S, arrival_times, arrivals_within
from .preset import Preset, load_preset, preset_path
from .recipe import Recipe, parse_deadlines, parse_gradient_noise, parse_precisions
from .sizes import SizeClass, Sizes, load_sizes, sizes_path

__all__ = ["generate", "generate_stored", "gpu_seconds_per_job"]

_MOST_SPREAD = 10  # over the longest window: rates that are expected to take longer are not even tried
_SHORTEST_WINDOW_S = 1e-3  # a thousand times what tables resolve


def generate(recipe: Recipe) -> tuple[list[Job], dict[str, Any]]:
    """Like `generate_stored`, with all jobs in memory."""
    jobs, report = generate_stored(recipe)
    return list(jobs), report


def generate_stored(recipe: Recipe) -> tuple[StoredJobs, dict[str, Any]]:
    """The jobs of a recipe in submission order, and a report of how they were made. Memory holds a few
    numbers of each job.

    `Recipe` defines the load. The report states the work drawn (`demand`), the load that it offers under the
    planner, and cautions about it; and what is expected of a job of these sizes and rules.
    Raises UserError for a recipe that cannot be carried out.
    """
    preset = None if recipe.preset is None else load_preset(recipe.preset)
    sizes, maker, source = _ingredients(recipe, preset)
    rules = maker.rules if maker else None
    job_gpu_s = gpu_seconds_per_job(sizes, rules)
    factors = deadline_factors(parse_deadlines(recipe.deadlines, rules), recipe.seed, recipe.jobs)
    repeats = _repeats(recipe, preset)
    drawn = _draw(recipe, sizes, maker, repeats)
    submits = _submissions(recipe, job_gpu_s, drawn, preset)
    jobs, estimates = StoredJobs(), Estimates(recipe.stated_sigma)
    noise = parse_gradient_noise(recipe.gradient_noise)
    columns = (drawn.kinds_of, drawn.run_s, factors, _precisions(recipe), _tenants(recipe, preset, repeats))
    for i, (submit_s, kind, *values) in enumerate(zip(as_floats(submits), *columns, strict=True)):
        job = _job(i, submit_s, drawn.kinds[kind], *values)
        if noise is not None and job.global_batch is not None:
            job = replace(job, phases=noise.phases(job.global_batch))
        jobs.add(i, estimates.applied_to(job, recipe.seed))
    total = demand(jobs.finish(""))
    offered_share = drawn.offered_gpu_s(recipe.gpus) / math.fsum(drawn.works())
    load_of_all = load_of(total, recipe.gpus)
    recipe_values = asdict(recipe)
    if preset is None:
        del recipe_values["preset"]
    if noise is None:
        del recipe_values["gradient_noise"]
    report = {
        "recipe": recipe_values,
        **source,
        "expected": {
            "gpu_seconds_per_job": job_gpu_s,
            "jobs_per_s": None if recipe.arrivals == "at-zero" else _rate_per_s(recipe, job_gpu_s, preset),
        },
        "demand": total,
        "load": None if load_of_all is None else load_of_all * offered_share,
        "cautions": [*cautions(total), *_too_large(drawn, recipe.gpus)],
    }
    return jobs, report


def gpu_seconds_per_job(sizes: Sizes, rules: Rules | None) -> float:
    """Expected GPU-seconds that a job requests: GPUs after the rules' multipliers x run time."""
    return math.fsum(
        share * size.run_time.expected_s() * _mean_gpus(size, rules)
        for share, size in zip(sizes.shares, sizes.sizes, strict=True)
    )


def _mean_gpus(size: SizeClass, rules: Rules | None) -> float:
    if rules is None:
        return float(size.gpus)
    choices = rules.choices(size.gpus)
    if not choices:
        raise UserError(f"the rules cover no jobs of {size.gpus} GPUs, which the sizes have; add a range")
    weights = math.fsum(choice.weight for choice in choices)
    return math.fsum(choice.weight * rules.requested_gpus(size.gpus, choice) for choice in choices) / weights


class _JobKind(NamedTuple):
    """The GPUs of a job and, if rules give it a model, what it trains and its iteration time on them in s."""

    gpus: int
    model: str | None = None
    global_batch: int | None = None
    iteration_s: float | None = None


class _Drawn(NamedTuple):
    """All jobs: the kind of each, as an index into `kinds`, and its run time in s."""

    kinds: list[_JobKind]
    kinds_of: array[int]
    run_s: array[float]

    def works(self, largest_gpus: float = math.inf) -> list[float]:
        """The GPU-seconds of each job that requests at most so many GPUs."""
        jobs = ((self.kinds[kind].gpus, run_s) for kind, run_s in zip(self.kinds_of, self.run_s, strict=True))
        return [gpus * run_s for gpus, run_s in jobs if gpus <= largest_gpus]

    def offered_gpu_s(self, cluster_gpus: int) -> float:
        """The GPU-seconds of the jobs that a cluster can hold; of all jobs if it can hold none."""
        return math.fsum(self.works(cluster_gpus) or self.works())


def _too_large(drawn: _Drawn, gpus: int) -> list[str]:
    """That jobs request more GPUs than the cluster has that the load refers to; empty if none does."""
    larger_count = len(drawn.run_s) - len(drawn.works(gpus))
    if not larger_count:
        return []
    share = 1 - math.fsum(drawn.works(gpus)) / math.fsum(drawn.works())
    many = f"{larger_count:,} of {len(drawn.run_s):,} jobs"
    return [
        f"{many} ask for more than {gpus:,} GPUs and cannot run there: {share:.1%} of the work is theirs, "
        "and no part of the load"
    ]


def _ingredients(recipe: Recipe, preset: Preset | None) -> tuple[Sizes, WorkMaker | None, dict[str, Any]]:
    if recipe.preset is not None and preset is not None:
        kind, sizes, path = "preset", preset.mix, preset_path(recipe.preset)
    else:
        kind, sizes, path = "sizes", load_sizes(recipe.sizes), sizes_path(recipe.sizes)
    source: dict[str, Any] = {kind: {"name": path.name, "sha256": sha256(path), "source": sizes.source}}
    if recipe.rules == "none":
        return sizes, None, source
    maker, provenance = work_maker(recipe.rules, recipe.planner, recipe.system, recipe.memory_headroom)
    return sizes, maker, source | provenance


def _draw(recipe: Recipe, sizes: Sizes, maker: WorkMaker | None, repeats: Iterable[bool]) -> _Drawn:
    kind_numbers: dict[_JobKind, int] = {}
    drawn = _Drawn(kinds=[], kinds_of=array("I"), run_s=array("d"))
    uniforms = [_uniform(recipe, purpose) for purpose in ("sizes", "run-times", "models")]
    size = sizes.sizes[0]
    for of_size, of_run_time, of_model, again in zip(*uniforms, repeats, strict=True):
        size = size if again else sizes.choose(of_size)
        run_s = max(size.run_time.quantile_s(of_run_time), MIN_SECONDS)
        kind = _kind(size.gpus, run_s, of_model, maker, recipe) if maker else _JobKind(size.gpus)
        if kind not in kind_numbers:
            kind_numbers[kind] = len(kind_numbers)
            drawn.kinds.append(kind)
        drawn.kinds_of.append(kind_numbers[kind])
        drawn.run_s.append(run_s)
    return drawn


def _precisions(recipe: Recipe) -> Iterator[str | None]:
    """The precision of each job; None for bf16, which jobs inherit."""
    shares = parse_precisions(recipe.precisions)
    if shares == {"bf16": 1.0}:
        return repeat(None, recipe.jobs)
    names, ends = list(shares), np.cumsum(list(shares.values()))
    drawn = np.searchsorted(ends[:-1], stream(recipe.seed, "precisions").random(recipe.jobs), side="right")
    return (None if names[i] == "bf16" else names[i] for i in drawn)


def _uniform(recipe: Recipe, purpose: str) -> Iterator[float]:
    return as_floats(stream(recipe.seed, purpose).random(recipe.jobs))


def _kind(gpus: int, run_s: float, uniform: float, maker: WorkMaker, recipe: Recipe) -> _JobKind:
    work = maker.work(gpus, run_s, uniform)
    if isinstance(work, str):
        raise UserError(f"rules {recipe.rules}: planner {recipe.planner}: {work}; change the rules")
    return _JobKind(work.gpus, work.model, work.global_batch, work.iteration_s)


def _repeats(recipe: Recipe, preset: Preset | None) -> list[bool]:
    """Whether each job has the GPUs and the tenant of the one before; never the first."""
    if preset is None or not preset.repeat_share:
        return [False] * recipe.jobs
    drawn = stream(recipe.seed, "repeats").random(recipe.jobs) < preset.repeat_share
    return [False, *drawn[1:].tolist()]


def _tenants(recipe: Recipe, preset: Preset | None, repeats: list[bool]) -> Iterator[str]:
    """The tenant of each job."""
    if preset is None or preset.tenants is None:
        yield from repeat("default", recipe.jobs)
        return
    ends, tenant = preset.tenants.ends, ""
    for uniform, again in zip(_uniform(recipe, "tenants"), repeats, strict=True):
        if not again:
            tenant = f"tenant-{min(bisect_right(ends, uniform), len(ends) - 1) + 1}"
        yield tenant


def _rate_per_s(recipe: Recipe, job_gpu_s: float, preset: Preset | None = None) -> float:
    """Arrivals a second of the process whose expected load is the recipe's, at `job_gpu_s` GPU-seconds a job;
    or those that the preset states.
    """
    if recipe.load is None:
        assert preset is not None
        return preset.arrivals.jobs_per_day / DAY_S
    return recipe.load * recipe.gpus / job_gpu_s


def _submissions(
    recipe: Recipe, job_gpu_s: float, drawn: _Drawn, preset: Preset | None
) -> NDArray[np.float64]:
    """Submission times in s, ascending, shape (jobs,)."""
    rng, rhythm = stream(recipe.seed, "arrivals"), preset.arrivals if preset else None
    days = stream(recipe.seed, "days")
    if recipe.load_of == "process" or recipe.load is None:
        rate = _rate_per_s(recipe, job_gpu_s, preset)
        _check_window(recipe, (recipe.jobs - 1) / rate / _MOST_SPREAD)
        if rhythm is not None:
            submits = rhythm.times(recipe.jobs, rng, days, rate * DAY_S)
        else:
            submits = arrival_times(recipe.arrivals, recipe.jobs, rate, rng, recipe.cv)
        _check_window(recipe, float(submits[-1]))
        return submits
    window_s = drawn.offered_gpu_s(recipe.gpus) / recipe.gpus / recipe.load
    has_load = recipe.jobs > 1 and recipe.arrivals != "at-zero"
    if has_load:
        _check_window(recipe, window_s)
    if rhythm is not None:
        submits = rhythm.times_within(recipe.jobs, window_s, rng, days)
    else:
        submits = arrivals_within(recipe.arrivals, recipe.jobs, window_s, rng, recipe.cv)
    if has_load and submits[-1] == 0:
        problem = f"puts all {recipe.jobs} jobs into one batch, which has no load"
        raise UserError(f"arrivals={recipe.arrivals}: {problem}; generate more jobs, or lower cv")
    return submits


def _check_window(recipe: Recipe, window_s: float) -> None:
    rate_text = "the preset's rate" if recipe.load is None else f"load={recipe.load:g}"
    problem = f"{rate_text}: puts {recipe.jobs} jobs"
    if window_s > MAX_SECONDS:
        raise UserError(f"{problem} beyond {MAX_SECONDS:g} s; raise it")
    if recipe.load_of == "trace" and recipe.load is not None and window_s < _SHORTEST_WINDOW_S:
        raise UserError(f"{problem} within {_SHORTEST_WINDOW_S:g} s; lower it, or use arrivals at-zero")


def _job(
    i: int,
    submit_s: float,
    kind: _JobKind,
    run_s: float,
    factor: float | None,
    precision: str | None,
    tenant: str,
) -> Job:
    job = Job(
        job_id=str(i),
        submit_s=submit_s,
        tenant=tenant,
        model=kind.model,
        gpus=kind.gpus,
        global_batch=kind.global_batch,
        iterations=None if kind.iteration_s is None else run_s / kind.iteration_s,
        duration_s=run_s,
        deadline_s=None if factor is None else submit_s + factor * run_s,
        precision=None if kind.model is None else precision,
    )
    _check_job(job)
    return job


_MOST = {
    "gpus": (MAX_GPUS, "lower the multipliers of the rules"),
    "iterations": (MAX_COUNT, "lower the run times of the sizes, or change the models of the rules"),
    "duration_s": (MAX_SECONDS, "lower the run times of the sizes"),
    "deadline_s": (MAX_SECONDS, "lower the run times of the sizes, or the deadlines"),
}
"""The largest values that a trace can hold, and what to do about larger ones."""


def _check_job(job: Job) -> None:
    """Raise UserError for a job that a trace could not hold."""
    for name, (limit, remedy) in _MOST.items():
        value = getattr(job, name)
        if value is not None and value > limit:
            raise UserError(f"job {job.job_id}: {name}={value:g}: is above {limit:g}; {remedy}")
