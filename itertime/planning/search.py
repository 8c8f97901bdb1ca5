"""The best plans for a model on a number of GPUs.

A search lists the plans of a space, drops those that do not fit in memory, and evaluates the others at once.
Most plans need no evaluation: an iteration takes at least `lower_bound_s`, so a plan is not among the best
if this bound exceeds the times of enough evaluated plans. Such pruning does not change the answer.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from itertime.accuracy import errors_on, interval_basis, interval_s
from itertime.arrays import Whole
from itertime.costs import MEMORY_HEADROOM, Workload, memory
from itertime.errors import UserError, quoted
from itertime.prediction import (
    RATES,
    Evaluation,
    Prediction,
    check_utilisation,
    evaluate,
    extrapolated_parts,
)
from itertime.spec import (
    DEFAULT_RULES,
    ModelSpec,
    Plan,
    PlanBatch,
    Profile,
    System,
    as_model,
    as_system,
    profile_of,
)

from .choice import REACH, PlanChoice, choice_among
from .lower_bound import lower_bound_s
from .space import LARGEST, Space, as_space, candidates, options_in_the_way

if TYPE_CHECKING:
    import pandas as pd

Rows = Whole
OBJECTIVES = ("time", "cost", "pareto")
BLOCK = 4096  # plans whose arrays stay in the processor's cache
FEW_PLANS = 2000  # that are evaluated faster than pruned
FEW_STEPPED_PLANS = 16  # the same where ranks take draws of samples, or schedules are stepped through
DEGREES = ("tp", "pp", "dp", "micro_batch")
FIGURES = ("gpus", "iteration_s", "low_s", "high_s", "memory_gb", *RATES)


@dataclass(frozen=True)
class RankedPlan:
    """One of the best plans of a search, and its prediction."""

    plan: Plan
    prediction: Prediction


@dataclass(frozen=True, repr=False)
class SearchResult:
    """`plans`, best first; how many plans keep the rules (`evaluated`), how many of these fit (`feasible`),
    and the seconds that the search took. `fitting`: all plans that fit. `in_the_way`: the rule of the options
    that most plans break, if these alone leave none.
    """

    plans: tuple[RankedPlan, ...]
    evaluated: int
    feasible: int
    seconds: float = field(compare=False)
    fitting: PlanBatch | None = field(default=None, compare=False, repr=False)
    in_the_way: str = ""

    def __repr__(self) -> str:
        best = f", the best in {self.plans[0].prediction.iteration_s:.4g} s" if self.plans else ""
        return f"<SearchResult: {len(self.plans)} of {self.feasible} plans that fit{best}>"

    def to_pandas(self) -> pd.DataFrame:
        """A row for each plan, best first: its degrees and options, then `gpus`, `iteration_s`, the interval
        `low_s` to `high_s`, `memory_gb`, and the figures of `RATES`: tokens a second, TFLOP/s, MFU, HFU.
        """
        import pandas as pd

        names = list(Plan.__dataclass_fields__)
        rows = [
            (*(getattr(ranked_plan.plan, name) for name in names), *_figures(ranked_plan))
            for ranked_plan in self.plans
        ]
        return pd.DataFrame(rows, columns=[*names, *FIGURES])

    def _repr_html_(self) -> str:
        frame = self.to_pandas()
        constants = [
            name for name in frame.columns if name not in (*FIGURES, *DEGREES) and frame[name].nunique() <= 1
        ]
        return frame.drop(columns=constants).to_html(index=False)


def _figures(ranked_plan: RankedPlan) -> tuple[float, ...]:
    """The values of the columns `FIGURES`."""
    prediction = ranked_plan.prediction
    low_s, high_s = prediction.interval_s or (math.nan, math.nan)
    memory_gb = prediction.memory_bytes / 1e9
    rates = (getattr(prediction, name) for name in RATES)
    return ranked_plan.plan.gpus, prediction.iteration_s, low_s, high_s, memory_gb, *rates


def search(
    model: ModelSpec | str,
    global_batch: int,
    system: System | str,
    gpus: int | None = None,
    *,
    max_gpus: int | None = None,
    space: Space | str | None = None,
    objective: str = "time",
    top: int = 10,
    profile: Profile | None = None,
    memory_headroom: float = MEMORY_HEADROOM,
) -> SearchResult:
    """The `top` best plans on exactly `gpus` or at most `max_gpus` GPUs that leave `memory_headroom`, a
    share of a GPU's memory, free.

    `objective`: "time" (seconds per iteration), "cost" (GPU-seconds per iteration, which any price of a
    GPU-hour turns into dollars), or "pareto" (the front of time against GPUs: fastest first, each plan
    faster than all on as few or fewer GPUs). Ties go to fewer GPUs, then smaller pp, tp, micro-batch. If no
    plan of the space fits, `plans` is empty. Model, system and space may be names, the first two files, too.
    Raises UserError for arguments out of range.
    """
    started = time.perf_counter()
    model, system = as_model(model), as_system(system)
    counts = _counts(gpus, max_gpus, global_batch, objective)
    if not isinstance(top, int | np.integer) or top < 0:
        raise UserError(f"search: top={quoted(top)}: must be a whole number, at least 0")
    profile = profile or profile_of(system)
    space = as_space(space)
    plans = candidates(model, global_batch, system, space, counts)
    fitting = fitting_plans(model, plans, system, profile, memory_headroom)
    ranked_plans: tuple[RankedPlan, ...] = ()
    if len(fitting):
        # Plans whose lower bound exceeds the times of better ones are left out before the evaluation.
        if objective == "pareto":
            contenders = fitting.take(best_of_counts(model, fitting, system, profile))
        else:
            contenders = fitting.take(among_best(model, fitting, system, profile, top, objective))
        result = evaluate(model, contenders, system, profile, memory_headroom=memory_headroom)
        pareto = objective == "pareto"
        best = pareto_front(contenders, result)[::-1] if pareto else rank(contenders, result, objective)
        ranked_plans = tuple(
            _ranked_plan(model, contenders.plan(row), system, profile, result, int(row))
            for row in best[: max(top, 0)]
        )
    obstacle = "" if len(plans) else options_in_the_way(model, global_batch, system, space, counts)
    seconds = time.perf_counter() - started
    return SearchResult(ranked_plans, len(plans), len(fitting), seconds, fitting, obstacle)


def judge(
    model: ModelSpec,
    system: System,
    result: SearchResult,
    objective: str = "time",
    profile: Profile | None = None,
) -> PlanChoice | None:
    """How far to trust that the first plan of a search, by "time" or "cost", is the best one.

    None if nothing fits, or if too little is known about the errors of predictions on the GPU by the rules of
    the plan.
    """
    profile = profile or profile_of(system)
    errors = errors_on(profile.name, system.framework)
    if not result.plans or result.plans[0].plan.rules != DEFAULT_RULES:
        return None
    if result.fitting is None or errors is None or errors.large or not errors.beside_sd:
        return None
    best_s, plans = result.plans[0].prediction.iteration_s, result.fitting
    if objective == "time":
        longest_s = math.exp(REACH * errors.beside_sd) * best_s
        plans = plans.take(lower_bound_s(model, plans, system, profile) <= longest_s)
    seconds = evaluate(model, plans, system, profile).iteration_s
    return choice_among(seconds * (plans.gpus if objective == "cost" else 1), errors.beside_sd)


def _counts(gpus: int | None, max_gpus: int | None, global_batch: int, objective: str) -> range:
    limit = gpus if gpus is not None else max_gpus
    if limit is None or (gpus is not None and max_gpus is not None):
        raise UserError("search: give either gpus or max_gpus")
    for name, value in (("gpus", limit), ("global_batch", global_batch)):
        if not isinstance(value, int | np.integer) or isinstance(value, bool):
            raise UserError(f"search: {name}={quoted(value)}: must be a whole number")
    if not (1 <= limit <= LARGEST and 1 <= global_batch <= LARGEST):
        raise UserError(f"search: gpus={limit}, global_batch={global_batch}: must be from 1 to {LARGEST:,}")
    if objective not in OBJECTIVES:
        raise UserError(
            f"search: objective={quoted(objective)}: must be {', '.join(OBJECTIVES[:-1])} or pareto"
        )
    return range(1, limit + 1) if gpus is None else range(limit, limit + 1)


def _ranked_plan(
    model: ModelSpec, plan: Plan, system: System, profile: Profile, result: Evaluation, row: int
) -> RankedPlan:
    """A plan with its prediction from the batch, and with the two fields that batches lack, because they
    would cost more than the search: the interval and what is extrapolated.
    """
    check_utilisation(result, row, profile, system)
    extrapolated = extrapolated_parts(model, plan, system, profile)
    interval = interval_s(model, plan, system, float(result.iteration_s[row]))
    basis = interval_basis(model, plan, system)
    return RankedPlan(plan, result.prediction(row, extrapolated, interval, basis))


def fitting_plans(
    model: ModelSpec,
    plans: PlanBatch,
    system: System,
    profile: Profile,
    memory_headroom: float = MEMORY_HEADROOM,
) -> PlanBatch:
    """The plans that fit in memory and leave `memory_headroom`, a share of it, free."""
    fits = np.zeros(len(plans), dtype=bool)
    for start in range(0, len(plans), BLOCK):
        block = slice(start, start + BLOCK)
        workload = Workload.of(model, plans.take(block), system, profile)
        fits[block] = memory(workload, memory_headroom).fits
    return plans.take(fits)


def among_best(
    model: ModelSpec,
    plans: PlanBatch,
    system: System,
    profile: Profile,
    top: int,
    objective: str = "time",
) -> Rows:
    """The rows among which the `top` best by "time" or "cost" are, in their order."""
    if len(plans) <= max(_few(plans), 4 * top):
        return np.arange(len(plans))
    weight = plans.gpus if objective == "cost" else np.ones_like(plans.gpus)
    bound = lower_bound_s(model, plans, system, profile) * weight
    probes = np.argpartition(bound, top)[: max(top, 1)]
    probed_s = evaluate(model, plans.take(probes), system, profile).iteration_s
    return np.flatnonzero(bound <= (probed_s * weight[probes]).max())


def _few(plans: PlanBatch) -> int:
    """So many plans are evaluated faster than pruned. The bound is that of the mean rank, without draws; the
    evaluation needs draws where samples are balanced over the ranks. By other rules than the default ones it
    steps through the schedule.
    """
    bound_is_cheap = plans.options.balance != "drawn" or plans.rules != DEFAULT_RULES
    return FEW_STEPPED_PLANS if bound_is_cheap else FEW_PLANS


def best_of_counts(model: ModelSpec, plans: PlanBatch, system: System, profile: Profile) -> Rows:
    """The rows among which, for every number of GPUs, the fastest plan on at most that many is."""
    if len(plans) <= _few(plans):
        return np.arange(len(plans))
    bound = lower_bound_s(model, plans, system, profile)
    order = np.lexsort((bound, plans.gpus))
    gpu_counts = plans.gpus[order]
    probes = order[np.flatnonzero(np.diff(gpu_counts, prepend=0))]
    seconds = evaluate(model, plans.take(probes), system, profile).iteration_s
    best_s = np.full(gpu_counts[-1] + 1, np.inf)
    best_s[plans.gpus[probes]] = seconds
    return np.flatnonzero(bound <= np.minimum.accumulate(best_s)[plans.gpus])


def rank(plans: PlanBatch, result: Evaluation, objective: str = "time") -> Rows:
    """Row numbers, best first. The order of plans does not depend on the order of the rows."""
    value = result.iteration_s * (plans.gpus if objective == "cost" else 1)
    order = np.argsort(value, kind="stable")
    equal = np.diff(value[order]) == 0
    tied_rows = np.flatnonzero(np.append(equal, False) | np.append(False, equal))
    if len(tied_rows):
        among = order[tied_rows]
        order[tied_rows] = among[np.lexsort((*_tie_breakers(plans.take(among)), value[among]))]
    return order


def _tie_breakers(plans: PlanBatch) -> tuple[Rows, ...]:
    """Columns that decide between plans of equal value, the most important one last."""
    switches = plans.zero_stage * 2 + plans.sequence_parallel
    sizes = plans.recompute, plans.interleave, plans.ep, plans.cp, plans.dp, plans.micro_batch
    return switches, *sizes, plans.tp, plans.pp, plans.gpus


def pareto_front(plans: PlanBatch, result: Evaluation) -> Rows:
    """Rows in order of GPUs: each plan is faster than all on as few or fewer GPUs, ties as in `rank`."""
    order = rank(plans, result)
    place = np.empty(len(plans), dtype=np.int64)
    place[order] = np.arange(len(plans))
    by_gpus = order[np.argsort(plans.gpus[order], kind="stable")]
    fastest = by_gpus[np.flatnonzero(np.diff(plans.gpus[by_gpus], prepend=0))]
    front: Rows = fastest[place[fastest] == np.minimum.accumulate(place[fastest])]
    return front
