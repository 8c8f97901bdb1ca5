"""How many kernels a layer is made of: the CPU issues them one by one, and a GPU that is faster waits for it.

A pass takes the longer of the two, the GPU's time and `kernels` x `Site.launch_s`; not their sum, as the CPU
runs ahead of a GPU that has enough to do. Counted is what the layer model knows: GEMMs, attention,
memory-bound kernels, collectives. A framework that fuses less issues more, which its `launch_s` stands for.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from itertime.model import ModelSpec
from itertime.planbatch import PlanBatch

__all__ = ["kernels"]

Whole = NDArray[np.int64]


def kernels(model: ModelSpec, plans: PlanBatch) -> tuple[Whole, Whole]:
    """Kernels of one layer and micro-batch, forward and backward, those that recompute included.

    Forward: a GEMM for every matrix, two batched ones or the flash kernel, two norms, two residual additions,
    the activation, the position encoding, what surrounds core attention; two collectives of a tensor-parallel
    group, four under sequence parallelism. Backward: every GEMM twice, every other kernel once, the sum of
    every matrix' gradient, the joint gradient of queries, keys and values.
    """
    matrices = 5 if model.gated_mlp else 4
    around = 5 + (model.positions == "rotary")
    core, core_back = 1, 1
    if model.attention == "core":
        core, core_back = 5 + model.dropout, 8 + model.dropout  # two and four GEMMs, two copies, softmax
    if model.experts > 1:
        matrices, around = matrices + 1, around + 3  # the router; its softmax, copies out and back
    again = 2 * (plans.sequence_parallel & (plans.tp > 1))  # inputs, gathered once more
    exchanged = 2 * (plans.tp > 1) + again
    if model.experts > 1:
        exchanged = exchanged + 2 * (plans.ep > 1)
    if model.attention != "core":
        exchanged = exchanged + np.where(plans.cp_gather, plans.cp > 1, plans.cp - 1)
    once = matrices + around + core + exchanged
    # What early-stop does not come to.
    ending = (not model.dropout) * (1 + (model.experts == 1) * (1 + (plans.tp > 1)))
    repeated = np.choose(plans.recompute, [0, core if model.attention == "core" else 0, once, once - ending])
    back = 3 * matrices + around + 1 + core_back
    return once, back + exchanged + again + repeated
