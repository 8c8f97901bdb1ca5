"""Synthetic traces: seeded arrivals, GPU counts, run times, models and deadlines, at a target load."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from itertime.costs import MEMORY_HEADROOM, checked_headroom
from itertime.errors import UserError
from itertime.io import sha256
from traces.job import Job
from traces.native import MAX_SECONDS, StoredJobs
from traces.summary import demand
from traces.workload import Deadlines, Rules, Work, WorkMaker, as_floats, deadline_factors, stream, work_maker

from .arrivals import arrival_times
from .sizes import SizeClass, Sizes, load_sizes, sizes_path

__all__ = ["Recipe", "generate", "generate_stored", "gpu_seconds_per_job"]

MAX_JOBS = 10_000_000


@dataclass(frozen=True)
class Recipe:
    """What to generate.

    | field | meaning |
    |---|---|
    | jobs | number of jobs |
    | load | expected requested GPU-seconds over those that `gpus` GPUs offer between submissions |
    | gpus | GPUs of the cluster that `load` refers to |
    | arrivals, cv | see `arrival_times`; jobs that all arrive at zero have no load |
    | sizes | bundled sizes or a file: GPU counts and run times, as logged |
    | rules | rules that assign models and multiply GPUs; "none": rigid jobs of a duration |
    | deadlines | "rules", "none", or LOW:HIGH or LOW:HIGH:SHARE for submit_s + U(LOW, HIGH) x run time |
    | planner, system | determine the iteration time on the requested GPUs, as in an import |
    | memory_headroom | share of a GPU's memory that the planner's plans leave free |
    | seed | of all random draws; each purpose has a stream of its own |
    """

    jobs: int
    load: float = 1.0
    gpus: int = 1024
    arrivals: str = "poisson"
    cv: float | None = None
    sizes: str = "itp"
    rules: str = "llm-mix"
    deadlines: str = "rules"
    planner: str = "data-parallel"
    system: str = "dgx-a100-80gb"
    seed: int = 0
    memory_headroom: float = MEMORY_HEADROOM

    def __post_init__(self) -> None:
        for name, limit in (("jobs", MAX_JOBS), ("gpus", MAX_JOBS)):
            value = getattr(self, name)
            if not 1 <= value <= limit:
                raise UserError(f"{name}={value}: must be between 1 and {limit}")
        if not 0 < self.load < math.inf:
            raise UserError(f"load={self.load:g}: must be above 0 and finite")
        if self.seed < 0:
            raise UserError(f"seed={self.seed}: must not be negative")
        checked_headroom(self.memory_headroom)


def generate(recipe: Recipe) -> tuple[list[Job], dict[str, Any]]:
    """Like `generate_stored`, with all jobs in memory."""
    jobs, report = generate_stored(recipe)
    return list(jobs), report


def generate_stored(recipe: Recipe) -> tuple[StoredJobs, dict[str, Any]]:
    """The jobs of a recipe in submission order, and a report of how they were made. Memory holds a few
    numbers of each job.

    Jobs arrive at the rate load x gpus / (expected GPU-seconds of a job), so the recipe's load is the
    expected one. The report states beside it the load of the trace, which varies with its longest jobs.
    Raises UserError for a recipe that cannot be carried out.
    """
    sizes, maker, source = _ingredients(recipe)
    rules = maker.rules if maker else None
    each = gpu_seconds_per_job(sizes, rules)
    rate_per_s = recipe.load * recipe.gpus / each
    submits = arrival_times(
        recipe.arrivals, recipe.jobs, rate_per_s, stream(recipe.seed, "arrivals"), recipe.cv
    )
    if submits[-1] > MAX_SECONDS:
        raise UserError(f"load={recipe.load:g}: puts {recipe.jobs} jobs beyond {MAX_SECONDS:g} s; raise it")
    factors = deadline_factors(_deadlines(recipe.deadlines, rules), recipe.seed, recipe.jobs)
    parts = zip(
        as_floats(submits), _sizes_drawn(sizes, recipe), _uniform(recipe, "models"), factors, strict=True
    )
    jobs = StoredJobs()
    for i, (submit_s, (size, run_s), uniform, factor) in enumerate(parts):
        work = _work(size, run_s, uniform, maker, recipe) if maker else None
        jobs.add(i, _job(i, submit_s, size, run_s, work, factor))
    asked = demand(jobs.finish(""))
    report = {
        "recipe": asdict(recipe),
        **source,
        "expected": {
            "gpu_seconds_per_job": each,
            "jobs_per_s": None if recipe.arrivals == "at-zero" else rate_per_s,
        },
        "demand": asked,
        "load": None if asked["mean_gpus"] is None else asked["mean_gpus"] / recipe.gpus,
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


def _ingredients(recipe: Recipe) -> tuple[Sizes, WorkMaker | None, dict[str, Any]]:
    sizes, path = load_sizes(recipe.sizes), sizes_path(recipe.sizes)
    source: dict[str, Any] = {"sizes": {"name": path.name, "sha256": sha256(path), "source": sizes.source}}
    if recipe.rules == "none":
        return sizes, None, source
    maker, provenance = work_maker(recipe.rules, recipe.planner, recipe.system, recipe.memory_headroom)
    return sizes, maker, source | provenance


def _sizes_drawn(sizes: Sizes, recipe: Recipe) -> Iterator[tuple[SizeClass, float]]:
    """The size class and the run time in s of each job."""
    for drawn, uniform in zip(_uniform(recipe, "sizes"), _uniform(recipe, "run-times"), strict=True):
        size = sizes.choose(drawn)
        yield size, size.run_time.quantile_s(uniform)


def _uniform(recipe: Recipe, purpose: str) -> Iterator[float]:
    return as_floats(stream(recipe.seed, purpose).random(recipe.jobs))


def _work(size: SizeClass, run_s: float, uniform: float, maker: WorkMaker, recipe: Recipe) -> Work:
    work = maker.work(size.gpus, run_s, uniform)
    if isinstance(work, str):
        raise UserError(f"rules {recipe.rules}: planner {recipe.planner}: {work}; change the rules")
    return work


def _job(
    i: int, submit_s: float, size: SizeClass, run_s: float, work: Work | None, factor: float | None
) -> Job:
    return Job(
        job_id=str(i),
        submit_s=submit_s,
        model=work.model if work else None,
        gpus=work.gpus if work else size.gpus,
        global_batch=work.global_batch if work else None,
        iterations=work.iterations if work else None,
        duration_s=run_s,
        deadline_s=None if factor is None else submit_s + factor * run_s,
    )


def _deadlines(text: str, rules: Rules | None) -> Deadlines | None:
    """Parse the recipe's `deadlines`."""
    if text == "none":
        return None
    if text == "rules":
        return rules.deadlines if rules else None
    try:
        low, high, *share = (float(part) for part in text.split(":"))
        if not 0 < low <= high < math.inf or len(share) > 1 or not 0 <= sum(share) <= 1:
            raise ValueError
    except (ValueError, AttributeError):
        wanted = "rules, none, LOW:HIGH or LOW:HIGH:SHARE, for example 0.5:1.5"
        raise UserError(f"deadlines={text}: must be {wanted}") from None
    return Deadlines(low, high, share[0] if share else 1.0)
