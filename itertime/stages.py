"""How a model's layers are split over pipeline stages, for many plans at once.

A pipeline has at most four kinds of stages: the first (embedding), middle ones with one layer more or one
layer less (an uneven split), and the last (projection, loss). With pp = 1 the only stage is a last one that
has the embedding too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from itertime.model import ModelSpec
from itertime.planbatch import PlanBatch

__all__ = ["FIRST", "HEAVY", "LAST", "LIGHT", "StageLayout", "layer_shards", "stage_layout"]

Array = NDArray[np.float64]
Whole = NDArray[np.int64]
FIRST, HEAVY, LIGHT, LAST = range(4)


@dataclass(frozen=True)
class StageLayout:
    """Layers of each kind of stage and how many stages of the kind there are: integer arrays (4, plans)."""

    layers: Whole
    stages: Whole

    def kinds(self, rows: Whole) -> Whole:
        """The kind of every stage, (rows, most stages); columns beyond a row's stages say LAST."""
        ends = np.cumsum(self.stages[:, rows], axis=0).T
        position = np.arange(ends[:, -1].max(initial=0))
        return np.minimum((position[None, :, None] >= ends[:, None, :]).sum(axis=2), LAST)


def stage_layout(model: ModelSpec, plans: PlanBatch) -> StageLayout:
    """How the layers are split. A balanced split counts embedding and projection as one layer each and fills
    one stage after the other to the smallest size that will do, so that the last one gets what remains.

    That is what DeepSpeed's `partition_balanced` (runtime/utils.py) is taken to have done when BLOOM was
    trained. Where it would leave the last stages empty, so that nobody can have trained with it, middle
    stages get one layer more, as many as it takes.
    """
    pp, single = plans.pp, plans.pp == 1
    if plans.by_compute.any():
        return _split_by_compute(model, plans)
    if not plans.balanced.any():
        even = model.layers // pp
        stages = np.array(
            [~single, np.maximum(pp - 2, 0), np.zeros_like(pp), np.ones_like(pp)], dtype=np.int64
        )
        return StageLayout(np.array([even, even, even, even]), stages)
    uneven = (model.layers % pp != 0) & plans.balanced
    even, middles = model.layers // pp, np.maximum(pp - 2, 0)
    blocks = model.layers + 2
    least, most = blocks // pp, -(-blocks // pp)
    remaining = blocks - most * (pp - 1)  # for the last stage, when all others are filled
    filled = remaining > 0
    layers = np.stack([
        np.where(uneven, np.where(filled, most, least) - 1, even),
        np.where(uneven, most, even),
        np.where(uneven, least, even),
        np.where(uneven, np.where(filled, remaining, least) - 1, even),
    ])  # fmt: skip
    heavy = np.where(uneven & ~filled, blocks % pp, middles)
    stages = np.stack([np.where(single, 0, 1), heavy, middles - heavy, np.ones_like(pp)])
    return StageLayout(layers, stages)


def _split_by_compute(model: ModelSpec, plans: PlanBatch) -> StageLayout:
    """Layers fill one stage after the other until it has more than its share of the arithmetic, of which the
    projection has as much as its parameters; the other plans of the batch are split as ever.

    That is how nanotron builds a pipeline (its `get_block_compute_costs` and the thresholds made of them).
    Middle stages that it would leave without a layer, where the projection is worth several stages, get some
    of the others'.
    """
    rest = stage_layout(model, replace(plans, by_compute=np.zeros_like(plans.by_compute)))
    pp, chosen = plans.pp, plans.by_compute & (plans.pp > 1)
    share = (model.layers + model.vocab * model.hidden / model.layer_matmul_parameters) / pp
    first = np.minimum(np.floor(share) + 1, model.layers).astype(np.int64)
    before_last = np.minimum(np.floor(share * (pp - 1)) + 1, model.layers).astype(np.int64)
    middles = np.maximum(pp - 2, 1)
    light, heavy = np.divmod(before_last - first, middles)
    layers = np.stack([first, light + 1, light, model.layers - before_last])
    stages = np.stack([np.ones_like(pp), heavy, np.maximum(pp - 2, 0) - heavy, np.ones_like(pp)])
    return StageLayout(np.where(chosen, layers, rest.layers), np.where(chosen, stages, rest.stages))


def layer_shards(model: ModelSpec, plans: PlanBatch) -> tuple[Array, Array]:
    """Parameters of one layer on one GPU: those that all data-parallel ranks share, and its experts.

    Tensor parallelism splits both; heads of keys and values that are fewer than its ranks are copied.
    """
    experts = model.experts * model.expert_parameters if model.experts > 1 else 0
    shared = (model.layer_parameters - experts) / plans.tp
    if model.kv_heads < model.heads:
        copies = 1 / np.minimum(plans.tp, model.kv_heads) - 1 / plans.tp
        shared = shared + 2 * model.hidden * model.kv_hidden * copies
    return shared, experts / (plans.tp * plans.ep)
