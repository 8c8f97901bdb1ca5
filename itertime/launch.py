"""The number of kernels in a layer. The CPU issues them one by one, and a faster GPU waits for it.

A pass takes the longer of the GPU's time and `kernels` x `Site.launch_s`. The two do not add up, because the
CPU runs ahead of a GPU that has enough to do. The layer model's kernels count: GEMMs, attention, memory-bound
kernels, collectives. A framework that fuses less issues more; its larger `launch_s` stands for that.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from itertime.model import ModelSpec
from itertime.planbatch import PlanBatch

__all__ = ["kernels"]

Whole = NDArray[np.int64]


def kernels(model: ModelSpec, plans: PlanBatch) -> tuple[Whole, Whole]:
    """Kernels of one layer and micro-batch, forward and backward; backward includes the recomputed ones.

    Forward: a GEMM for every matrix, two batched ones or the flash kernel, two norms, two residual additions,
    the activation, the position encoding, the copies and the softmax around core attention; two collectives
    of a tensor-parallel group, four under sequence parallelism. Backward: every GEMM twice, every other
    kernel once, the sum of every matrix's gradient, the joint gradient of queries, keys and values.
    """
    matrices = 5 if model.gated_mlp else 4
    around = 6 if model.positions == "rotary" else 5
    core, core_back, repeated_core = 1, 1, 0
    if model.attention == "core":
        dropout = 1 if model.dropout else 0
        core, core_back = 5 + dropout, 8 + dropout  # two and four GEMMs, two copies, softmax
        repeated_core = core
    if model.experts > 1:
        matrices, around = matrices + 1, around + 3  # the router; its softmax, copies out and back
    gathered_again = np.where(plans.sequence_parallel & (plans.tp > 1), 2, 0)  # both inputs
    exchanged = _collectives(model, plans) + gathered_again
    once = matrices + around + core + exchanged
    early = once - _after_early_stop(model, plans)
    repeated = np.choose(plans.recompute, [0, repeated_core, once, early])
    back = 3 * matrices + around + 1 + core_back
    return once, back + exchanged + gathered_again + repeated


def _collectives(model: ModelSpec, plans: PlanBatch) -> Whole:
    """Collectives of one pass without sequence parallelism, counting each as one kernel."""
    count = np.where(plans.tp > 1, 2, 0)
    if model.experts > 1:
        count = count + np.where(plans.ep > 1, 2, 0)
    if model.attention != "core":
        steps = plans.cp - 1
        count = count + np.where(plans.cp_gather, np.minimum(steps, 1), steps)
    return count


def _after_early_stop(model: ModelSpec, plans: PlanBatch) -> Whole:
    """Kernels of a forward pass that recomputing with an early stop skips: the residual addition, the MLP's
    last GEMM and its collective (`layer` says when).
    """
    if model.dropout:
        return np.zeros_like(plans.tp)
    if model.experts > 1:
        return np.ones_like(plans.tp)
    return np.where(plans.tp > 1, 3, 2)
