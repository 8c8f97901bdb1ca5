"""Cells of a job that no plan of its model can satisfy."""

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
    """The column, the value and the reason if a cell of a job does not fit its model; None if all fit."""
    if model.lengths and job.seq_len is not None:
        lengths = load_lengths(model.lengths)
        if lengths.longest > job.seq_len:
            problem = f"is below {lengths.longest}, the longest sample of {lengths.name}"
            return "seq_len", job.seq_len, f"{problem}; raise it, or leave it empty"
    if job.plan_options and job.global_batch:
        reason = _broken_by_every_plan(job.plan_options, model, job.global_batch)
        if reason:
            return "plan_options", job.plan_options, reason
    return None


def _broken_by_every_plan(text: str, model: ModelSpec, global_batch: int) -> str:
    """The rules that the options `text` break in every plan of `model`, stated for the plan with the fewest;
    "" if some plan keeps all. The plans have every divisor of the global batch as data-parallel ranks, one or
    two stages, and every ZeRO stage.
    """
    options = parse_options(text)
    small = [dp for dp in range(1, isqrt(global_batch) + 1) if global_batch % dp == 0]
    ranks = sorted({*small, *(global_batch // dp for dp in small)})
    zero, pp, dp = (axis.ravel() for axis in np.meshgrid(_ZERO_STAGES, _PIPELINES, ranks, indexing="ij"))
    simplest_plan = PlanBatch.of(
        [Plan(tp=1, pp=1, dp=1, micro_batch=1, global_batch=global_batch, options=options)]
    )
    plans = replace(
        simplest_plan.take(np.zeros(len(dp), dtype=int)), zero_stage=zero, pp=pp, dp=dp, zero_group=dp
    )
    broken = np.zeros(len(dp), dtype=int)
    for wrong, _ in broken_options(options, model, plans):
        broken += wrong
    closest = int(broken.argmin())
    if not broken[closest]:
        return ""
    return "; ".join(rule for wrong, rule in broken_options(options, model, plans.plan(closest)) if wrong)
