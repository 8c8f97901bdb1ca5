"""The passes of one micro-batch: one layer, the embedding, the head; many plans together."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from itertime.arrays import Array, Whole, any_of
from itertime.schedule import LAST, kind_column
from itertime.spec import PlanBatch

from .balance import MicroBatch
from .balance.imbalance import Growth, varies
from .embedding_head import embedding_s, head_s
from .layer import Parts, layer_costs
from .parallel_comm import activation_all_reduce_s
from .partition import Workload
from .towers import TowerPass, tower_passes

MICRO_BATCH_COLUMNS = (
    "tp",
    "micro_batch",
    "recompute",
    "sequence_parallel",
    "fp32_gradients",
    "cp_exchange",
    "cp",
    "ep",
    "precision",
    "etp",
    "tp_overlap",
    "cuda_graphs",
    "dispatcher",
    "ep_overlap",
    "recompute_permille",
)
"""The columns of a `PlanBatch` that decide the time of one micro-batch in a layer and in the model's ends."""
_DEALT_COLUMNS = ("dp", "global_batch", "pp_before_dp")
"""Further columns, where the samples of a micro-batch depend on those of other micro-batches."""
_COUNTED_COLUMNS = ("dp", "global_batch")
"""Further columns, where the number of micro-batches decides how much of the dispatch to experts is
hidden."""
_PROBE = 1.5
"""Factor by which work is enlarged to measure how the seconds of a pass grow with it. It is large enough that
whole waves of thread blocks matter little, and about what the slowest of many ranks has over the mean rank if
samples stay as drawn."""


@dataclass(frozen=True)
class Pass:
    """Seconds of one pass of one micro-batch: one layer of each form by part, the embedding, the head.

    `weights`, `head_weight`: of a backward pass what gives gradients of weights, of one layer of each form
    and of the head. `towers`: those for images, None without any.
    """

    layers: tuple[Parts, ...]
    embedding: Array
    head: Array
    weights: tuple[Array, ...] = ()
    head_weight: Array | None = None
    towers: TowerPass | None = None

    def take(self, rows: Whole) -> Pass:
        layers = tuple({part: seconds[rows] for part, seconds in parts.items()} for parts in self.layers)
        weights = tuple(seconds[rows] for seconds in self.weights)
        head_weight = None if self.head_weight is None else self.head_weight[rows]
        towers = None if self.towers is None else self.towers.take(rows)
        return Pass(layers, self.embedding[rows], self.head[rows], weights, head_weight, towers)


def micro_batch_columns(plans: PlanBatch) -> tuple[str, ...]:
    """`MICRO_BATCH_COLUMNS`, and what else decides the longest sample of a micro-batch, the share of hidden
    dispatch, or whether gradients of weights are a pass of their own.
    """
    if plans.options.batching == "longest" and plans.options.balance != "drawn":
        return MICRO_BATCH_COLUMNS + _DEALT_COLUMNS
    columns = MICRO_BATCH_COLUMNS + (_COUNTED_COLUMNS if any_of(plans.ep_overlap) else ())
    return (*columns, "zero_bubble") if plans.splits_backward else columns


@dataclass(frozen=True)
class Passes:
    """Both passes of the mean micro-batch. `growth`: None where all ranks have the same work."""

    forward: Pass
    backward: Pass
    growth: tuple[Growth, Growth] | None = None


def distinct_passes(workload: Workload) -> Passes:
    """`micro_batch_passes`, each distinct case computed once, however many plans share it.

    Where ranks differ in their work, also the growth of the passes: they are computed with `_PROBE` times the
    tokens, and with `_PROBE` times the squares of attention's lengths.
    """
    several = varies(workload)
    if len(workload) == 1:
        if not several:
            return Passes(*micro_batch_passes(workload))
        representatives = where = np.zeros(1, dtype=np.int64)
    else:
        representatives, where = workload.plans.distinct(micro_batch_columns(workload.plans))
        if not several:
            forward, backward = micro_batch_passes(workload.take(representatives))
            return Passes(forward.take(where), backward.take(where))
    mean = workload.micro_batch.take(representatives)
    sizes = MicroBatch.joined([mean, mean.scaled(_PROBE, 1.0), mean.scaled(1.0, _PROBE)])
    rows = np.concatenate([representatives, representatives, representatives])
    forward, backward = micro_batch_passes(replace(workload.take(rows), micro_batch=sizes))
    growth = _growth(workload, forward, where), _growth(workload, backward, where)
    return Passes(forward.take(where), backward.take(where), growth)


def _growth(workload: Workload, probed: Pass, where: Whole) -> Growth:
    """How the GPU's time of a pass grows: `probed` has the mean micro-batch of each distinct case, then those
    with more tokens, then those with more squares. `where` is the case of each plan.
    """
    rows = [probed.embedding, probed.head, *map(_busy_s, probed.layers)]
    seconds = np.array(rows).reshape(len(rows), 3, -1)[:, :, where]
    grown = (seconds[:, 1:] - seconds[:, :1]) / (_PROBE - 1)
    embedding, head, *layers = grown[:, :, None]  # (2, 1, plans) each
    counts = workload.partition.counts
    stage_growth = workload.has_embedding * embedding + (kind_column(len(counts[0])) == LAST) * head
    stage_growth += sum(count * layer for count, layer in zip(counts, layers, strict=True))
    return Growth(stage_growth[0], stage_growth[1])


def _busy_s(parts: Parts) -> Array:
    """Seconds of a layer that the GPU computes and communicates, whatever the CPU does."""
    busy = [seconds for part, seconds in parts.items() if part not in ("launch", "overhead")]
    return sum(busy[1:], busy[0])


def micro_batch_passes(workload: Workload, reduced: Array | None = None) -> tuple[Pass, Pass]:
    """Forward and backward pass of one micro-batch under every plan. `reduced`: seconds of one all-reduce of
    its activations; None: those of `activation_all_reduce_s`.
    """
    if reduced is None:
        reduced = activation_all_reduce_s(workload)
    layers = layer_costs(workload, reduced)
    embedding = embedding_s(workload, reduced)
    head = head_s(workload, reduced)
    split = tuple(layer.weight for layer in layers), head[2]
    towers = tower_passes(workload) if workload.model.towers else (None, None)
    return (
        Pass(tuple(layer.forward for layer in layers), embedding[0], head[0], towers=towers[0]),
        Pass(tuple(layer.backward for layer in layers), embedding[1], head[1], *split, towers[1]),
    )
