"""The rows of `plans.csv`: the planner's predictions of the training plans that a run used.

They are computed at the end of a run, with the planner that chose the plans, so that the folder can be read
without it.
"""

from __future__ import annotations

from collections.abc import Mapping

from clustersim.records import PARTS, PlanKey, PlanRecord, plan_of_label
from clustersim.speed import CannotRun, Curve, Speed
from itertime.accuracy import interval_s
from itertime.prediction import Prediction, evaluate
from itertime.spec import PlanBatch
from traces.job import Job

__all__ = ["plan_record", "plans_used"]

_SAME = 1e-9  # relative; the speeds of the engine and of `itertime` are the same numbers


def plans_used(plans: Mapping[PlanKey, Job], speed: Speed) -> list[PlanRecord]:
    """A record for each plan, with a job that ran it, in the order of the keys.

    A plan whose prediction is not the speed that the engine used is left out: its split would not be that of
    the run.
    """
    found = (plan_record(plans[key], key, speed) for key in sorted(plans, key=_order))
    return [record for record in found if record is not None]


def _order(key: PlanKey) -> tuple[object, ...]:
    return key.model, key.global_batch or 0, key.seq_len or 0, *key[3:]


def plan_record(job: Job, key: PlanKey, speed: Speed) -> PlanRecord | None:
    """The record of `key`, a plan that `job` ran; None if `speed` has another speed for these GPUs."""
    planner = speed.planner_of(key.gpu_type)
    plan = plan_of_label(key.plan, job.global_batch or 0)
    if job.model is None or job.global_batch is None or plan is None or planner is None:
        return None
    curve = _curve(job, key.gpu_type, speed)
    model = None if curve is None else curve.model
    system = planner.under(key.framework or None, key.precision or None).system
    if curve is None or model is None or plan.broken_rules(model):
        return None
    found = evaluate(model, PlanBatch.of([plan]), system, planner.profile).prediction(0)
    ran_s = curve.unit_s.get(key.gpus, 0.0)
    if abs(found.iteration_s - ran_s) > _SAME * ran_s:
        return None
    low_s, high_s = interval_s(model, plan, system, found.iteration_s) or (None, None)
    spread_low_s, spread_high_s = found.spread_s or (None, None)
    return PlanRecord(
        model=job.model,
        global_batch=job.global_batch,
        seq_len=job.seq_len,
        framework=key.framework,
        precision=key.precision,
        plan_options=key.plan_options,
        gpu_type=key.gpu_type,
        gpus=key.gpus,
        plan=key.plan,
        plan_gpus=plan.gpus,
        iteration_s=found.iteration_s,
        low_s=low_s,
        high_s=high_s,
        spread_low_s=spread_low_s,
        spread_high_s=spread_high_s,
        memory_gb=found.memory_bytes / 1e9,
        mfu=found.mfu,
        **_parts(found),
    )


def _curve(job: Job, gpu_type: str, speed: Speed) -> Curve | None:
    """The speeds that the engine uses for a packed job on a GPU type; None if it has none."""
    try:
        offers = speed.offers(job)
    except CannotRun:
        return None
    return next((offer.curve for offer in offers if not gpu_type or offer.gpu_type == gpu_type), None)


def _parts(found: Prediction) -> dict[str, float]:
    known = {part for parts in PARTS.values() for part in parts}
    assert set(found.breakdown) <= known, (
        f"parts of an iteration without a name: {set(found.breakdown) - known}"
    )
    return {field: sum(found.breakdown.get(part, 0.0) for part in parts) for field, parts in PARTS.items()}
