"""What a job states and no plan of its model can have."""

from __future__ import annotations

from dataclasses import replace
from math import isqrt

import numpy as np

from itertime.spec import ModelSpec, Plan, PlanBatch, broken_options, load_lengths, parse_options
from traces.job import Job

__all__ = ["misfit"]

_PIPELINES = (1, 2)
_ZERO_STAGES = (0, 1, 2, 3)


def misfit(job: Job, model: ModelSpec) -> tuple[str, object, str] | None:
    """The column and the value that do not fit `model`, and why; None if all fit. The job states its global
    batch.
    """
    if model.lengths and job.seq_len is not None:
        lengths = load_lengths(model.lengths)
        if lengths.longest > job.seq_len:
            what = f"is below {lengths.longest}, the longest sample of {lengths.name}"
            return "seq_len", job.seq_len, f"{what}; raise it, or leave it empty"
    if (
        job.plan_options
        and job.global_batch
        and (why := _impossible(job.plan_options, model, job.global_batch))
    ):
        return "plan_options", job.plan_options, why
    return None


def _impossible(text: str, model: ModelSpec, global_batch: int) -> str:
    """Why no plan of `model` can have the options `text`: the rules that the closest plan breaks; "" if some
    plan can. Plans have any divisor of the global batch as data-parallel ranks, with and without pipeline,
    and every ZeRO stage.
    """
    options = parse_options(text)
    small = [dp for dp in range(1, isqrt(global_batch) + 1) if global_batch % dp == 0]
    ranks = sorted({*small, *(global_batch // dp for dp in small)})
    zero, pp, dp = (axis.ravel() for axis in np.meshgrid(_ZERO_STAGES, _PIPELINES, ranks, indexing="ij"))
    one = PlanBatch.of([Plan(1, 1, 1, 1, global_batch, options=options)])
    plans = replace(one.take(np.zeros(len(dp), dtype=int)), zero_stage=zero, pp=pp, dp=dp, zero_group=dp)
    broken = np.zeros(len(dp), dtype=int)
    for wrong, _ in broken_options(options, model, plans):
        broken += wrong
    closest = int(broken.argmin())
    if not broken[closest]:
        return ""
    return "; ".join(why for wrong, why in broken_options(options, model, plans.plan(closest)) if wrong)
