"""Which plans cannot be among the best, found without evaluating them.

An iteration takes at least the time of one stage's layers on all micro-batches. A plan whose bound exceeds
the time of plans already evaluated needs no evaluation; the answer stays the same.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from itertime.costs import stage_layers_s
from itertime.model import ModelSpec
from itertime.planbatch import PlanBatch
from itertime.prediction import evaluate
from itertime.profile import Profile
from itertime.system import System

__all__ = ["ROUNDING", "among_best", "best_of_counts", "lower_bound_s"]

Array = NDArray[np.float64]
Rows = NDArray[np.int64]
ROUNDING = 1e-9  # of the bound: sums in another order differ by far less
FEW = 2000  # plans that are evaluated faster than pruned


def among_best(model: ModelSpec, plans: PlanBatch, system: System, profile: Profile, top: int) -> Rows:
    """The rows among which the `top` fastest are, in their order.

    The bound is of no use for GPU-seconds: without communication all numbers of GPUs cost the same.
    """
    if len(plans) <= max(FEW, 4 * top):
        return np.arange(len(plans))
    bound = lower_bound_s(model, plans, system, profile)
    tried = np.argpartition(bound, top)[: max(top, 1)]
    slowest = evaluate(model, plans.take(tried), system, profile).iteration_s.max()
    return np.flatnonzero(bound <= slowest)


def best_of_counts(model: ModelSpec, plans: PlanBatch, system: System, profile: Profile) -> Rows:
    """The rows among which, for every number of GPUs, the fastest plan on at most that many is."""
    if len(plans) <= FEW:
        return np.arange(len(plans))
    bound = lower_bound_s(model, plans, system, profile)
    order = np.lexsort((bound, plans.gpus))
    used = plans.gpus[order]
    tried = order[np.flatnonzero(np.diff(used, prepend=0))]
    seconds = evaluate(model, plans.take(tried), system, profile).iteration_s
    best = np.full(used[-1] + 1, np.inf)
    best[plans.gpus[tried]] = seconds
    return np.flatnonzero(bound <= np.minimum.accumulate(best)[plans.gpus])


def lower_bound_s(model: ModelSpec, plans: PlanBatch, system: System, profile: Profile) -> Array:
    """Seconds that an iteration takes at least, by plan."""
    layers_s = stage_layers_s(model, plans, system, profile)
    return plans.microbatches * layers_s * (1 - ROUNDING)
