"""The rows of `plans.csv`: the planner's predictions of the training plans that a run used.

They are computed at the end of a run, with the planner that chose the plans, so that the folder can be read
without it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from clustersim.records import PARTS, PlanKey, PlanRecord, plan_of_label
from clustersim.speed import CannotRun, Curve, Speed
from itertime.accuracy import interval_s
from itertime.planning import Planner
from itertime.prediction import Prediction, evaluate
from itertime.spec import ModelSpec, Plan, PlanBatch
from traces.job import Job

__all__ = ["plan_record", "plans_used"]

_SAME = 1e-9  # relative; the speeds of the engine and of `itertime` are the same numbers


def plans_used(plans: Mapping[PlanKey, Job], speed: Speed) -> list[PlanRecord]:
    """A record for each plan, with a job that ran it, in the order of the keys.

    A plan whose prediction is not the speed that the engine used is left out: its split would not be that of
    the run. Plans of one model are predicted together, which takes hardly longer than to predict one.
    """
    used_plans = [plan for key in sorted(plans, key=_order) if (plan := _used_plan(plans[key], key, speed))]
    groups: dict[object, list[_UsedPlan]] = {}
    for used_plan in used_plans:
        key = used_plan.key
        batch = used_plan.model, used_plan.plan.options, key.gpu_type, key.framework, key.precision
        groups.setdefault(batch, []).append(used_plan)
    predictions = {key: prediction for group in groups.values() for key, prediction in _predictions(group)}
    records = (_record(used_plan, predictions[used_plan.key]) for used_plan in used_plans)
    return [record for record in records if record is not None]


def plan_record(job: Job, key: PlanKey, speed: Speed) -> PlanRecord | None:
    """The record of `key`, a plan that `job` ran; None if `speed` has another speed for these GPUs."""
    records = plans_used({key: job}, speed)
    return records[0] if records else None


def _order(key: PlanKey) -> tuple[object, ...]:
    return key.model, key.global_batch or 0, key.seq_len or 0, *key[3:]


class _UsedPlan(NamedTuple):
    """A plan that ran: its key, itself, the planner and the model of its job, seconds in the engine."""

    key: PlanKey
    plan: Plan
    planner: Planner
    model: ModelSpec
    ran_s: float


def _used_plan(job: Job, key: PlanKey, speed: Speed) -> _UsedPlan | None:
    """The plan of `key`, which `job` ran; None if it cannot be predicted."""
    planner = speed.planner_of(key.gpu_type)
    plan = plan_of_label(key.plan, job.global_batch or 0)
    if job.model is None or job.global_batch is None or plan is None or planner is None:
        return None
    curve = _curve(job, key.gpu_type, speed)
    model = None if curve is None else curve.model
    planner = planner.under(key.framework or None, key.precision or None)
    if curve is None or model is None or plan.broken_rules(model):
        return None
    return _UsedPlan(key, plan, planner, model, curve.unit_s.get(key.gpus, 0.0))


def _predictions(group: Sequence[_UsedPlan]) -> list[tuple[PlanKey, Prediction]]:
    """The predictions of plans of one model with the same options, under one planner."""
    model, planner = group[0].model, group[0].planner
    plans = PlanBatch.of([used_plan.plan for used_plan in group])
    predictions = evaluate(model, plans, planner.system, planner.profile)
    return [(used_plan.key, predictions.prediction(row)) for row, used_plan in enumerate(group)]


def _record(used_plan: _UsedPlan, prediction: Prediction) -> PlanRecord | None:
    """The record of a plan; None if its prediction is not the speed of the engine."""
    key, plan, system = used_plan.key, used_plan.plan, used_plan.planner.system
    if abs(prediction.iteration_s - used_plan.ran_s) > _SAME * used_plan.ran_s:
        return None
    low_s, high_s = interval_s(used_plan.model, plan, system, prediction.iteration_s) or (None, None)
    spread_low_s, spread_high_s = prediction.spread_s or (None, None)
    return PlanRecord(
        model=key.model,
        global_batch=plan.global_batch,
        seq_len=key.seq_len,
        framework=key.framework,
        precision=key.precision,
        plan_options=key.plan_options,
        gpu_type=key.gpu_type,
        gpus=key.gpus,
        plan=key.plan,
        plan_gpus=plan.gpus,
        iteration_s=prediction.iteration_s,
        low_s=low_s,
        high_s=high_s,
        spread_low_s=spread_low_s,
        spread_high_s=spread_high_s,
        memory_gb=prediction.memory_bytes / 1e9,
        mfu=prediction.mfu,
        **_breakdown(prediction),
    )


def _curve(job: Job, gpu_type: str, speed: Speed) -> Curve | None:
    """The speeds that the engine uses for a packed job on a GPU type; None if it has none."""
    try:
        offers = speed.offers(job)
    except CannotRun:
        return None
    return next((offer.curve for offer in offers if not gpu_type or offer.gpu_type == gpu_type), None)


def _breakdown(prediction: Prediction) -> dict[str, float]:
    """Where the time of an iteration goes, by the columns of plans.csv."""
    seconds = prediction.breakdown
    nameless = set(seconds) - {part for parts in PARTS.values() for part in parts}
    assert not nameless, f"parts of an iteration without a name: {nameless}"
    return {field: sum(seconds.get(part, 0.0) for part in parts) for field, parts in PARTS.items()}
