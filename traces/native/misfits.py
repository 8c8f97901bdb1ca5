"""What a job states and no plan of its model can have."""

from __future__ import annotations

from math import isqrt
from typing import Any, NamedTuple

import numpy as np

from itertime.spec import ModelSpec, broken_options, load_lengths, parse_options
from traces.job import Job

__all__ = ["misfit"]

_PIPELINES = (1, 2)
_ZERO_STAGES = (0, 1, 2, 3)


class _Degrees(NamedTuple):
    """What the rules of options ask of plans: numbers of one, arrays of many."""

    zero_stage: Any
    pp: Any
    dp: Any
    global_batch: int
    tp: int = 1
    cp: int = 1
    ep: int = 1
    etp: int = 1
    offload_optimizer: bool = False

    @property
    def zero_group(self) -> Any:
        return self.dp


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
    broken = np.zeros(len(dp), dtype=int)
    for wrong, _ in broken_options(options, model, _Degrees(zero, pp, dp, global_batch)):
        broken += wrong
    closest = int(broken.argmin())
    if not broken[closest]:
        return ""
    plan = _Degrees(int(zero[closest]), int(pp[closest]), int(dp[closest]), global_batch)
    return "; ".join(why for wrong, why in broken_options(options, model, plan) if wrong)
