"""The best plans for a model on a number of GPUs: list the space, drop what does not fit in memory,
evaluate the rest at once.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from itertime.errors import UserError
from itertime.memory import memory
from itertime.model import ModelSpec
from itertime.plan import Plan
from itertime.planbatch import PlanBatch
from itertime.planspace import LARGEST, Space, candidates
from itertime.prediction import Evaluation, Prediction, evaluate
from itertime.profile import Profile, load_profile
from itertime.pruning import among_best
from itertime.system import System
from itertime.uncertainty import interval_s

__all__ = ["Found", "SearchResult", "fitting_plans", "rank", "search"]

OBJECTIVES = ("time", "cost")
BLOCK = 4096  # plans whose arrays stay in the processor's cache


@dataclass(frozen=True)
class Found:
    """One plan of a search with what is predicted for it."""

    plan: Plan
    prediction: Prediction


@dataclass(frozen=True)
class SearchResult:
    """`plans`, best first; how many plans keep the rules (`evaluated`), how many of them fit (`feasible`),
    seconds it took.
    """

    plans: tuple[Found, ...]
    evaluated: int
    feasible: int
    seconds: float = field(compare=False)


def search(
    model: ModelSpec,
    global_batch: int,
    system: System,
    gpus: int | None = None,
    *,
    max_gpus: int | None = None,
    space: Space | None = None,
    objective: str = "time",
    top: int = 10,
    profile: Profile | None = None,
) -> SearchResult:
    """The `top` best plans on exactly `gpus` or at most `max_gpus` GPUs.

    `objective`: "time" (seconds per iteration) or "cost" (GPU-seconds per iteration). Ties go to fewer GPUs,
    then smaller pp, tp, micro-batch. Raises UserError for arguments that mean nothing; a space without a plan
    that fits gives an empty `plans`.
    """
    started = time.perf_counter()
    limit = gpus if gpus is not None else max_gpus
    if limit is None or (gpus is not None and max_gpus is not None):
        raise UserError("search: give either gpus or max_gpus")
    if not (1 <= limit <= LARGEST and 1 <= global_batch <= LARGEST):
        raise UserError(f"search: gpus={limit}, global_batch={global_batch}: must be from 1 to {LARGEST:,}")
    if objective not in OBJECTIVES:
        raise UserError(f"search: objective={objective!r}: must be {' or '.join(OBJECTIVES)}")
    profile = profile or load_profile(system.profile)
    plans = candidates(
        model, global_batch, system, space or Space(), range(1, limit + 1) if gpus is None else [gpus]
    )
    fitting = fitting_plans(model, plans, system, profile)
    feasible = len(fitting)
    found: tuple[Found, ...] = ()
    if len(fitting):
        if objective == "time":
            fitting = fitting.take(among_best(model, fitting, system, profile, top))
        result = evaluate(model, fitting, system, profile)
        best = rank(fitting, result, objective)[: max(top, 0)]
        found = tuple(_found(model, fitting.plan(row), system, result.prediction(row)) for row in best)
    return SearchResult(found, len(plans), feasible, time.perf_counter() - started)


def fitting_plans(model: ModelSpec, plans: PlanBatch, system: System, profile: Profile) -> PlanBatch:
    """The plans that fit in memory."""
    fits = np.zeros(len(plans), dtype=bool)
    for first in range(0, len(plans), BLOCK):
        block = slice(first, first + BLOCK)
        fits[block] = memory(model, plans.take(block), system, profile).fits
    return plans.take(fits)


def _found(model: ModelSpec, plan: Plan, system: System, prediction: Prediction) -> Found:
    interval = interval_s(model, plan, system, prediction.iteration_s)
    return Found(plan, replace(prediction, interval_s=interval))


def rank(plans: PlanBatch, result: Evaluation, objective: str = "time") -> NDArray[np.int64]:
    """Row numbers, best first; the same order on every run, whatever the order of the rows."""
    value = result.iteration_s * (plans.gpus if objective == "cost" else 1)
    order = np.argsort(value, kind="stable")
    equal = np.diff(value[order]) == 0
    tied = np.flatnonzero(np.append(equal, False) | np.append(False, equal))
    if len(tied):
        among = order[tied]
        order[tied] = among[np.lexsort((*_tie_breakers(plans.take(among)), value[among]))]
    return order


def _tie_breakers(plans: PlanBatch) -> tuple[NDArray[np.int64], ...]:
    """What decides between plans of equal value, the last of these first."""
    switches = plans.zero_stage * 2 + plans.sequence_parallel
    rest = plans.recompute, plans.interleave, plans.ep, plans.cp, plans.dp, plans.micro_batch
    return switches, *rest, plans.tp, plans.pp, plans.gpus
