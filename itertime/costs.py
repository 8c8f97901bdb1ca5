"""Seconds of every kind of pipeline stage, and of what an iteration does once: gradients, optimizer. All plans at once.

A pipeline has at most four kinds of stages: the first (embedding), middle ones with one layer more and one less (an uneven
split), and the last (projection, loss). With pp = 1 the only stage is a last one that also has the embedding.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from itertime.collectives import all_gather_s, all_reduce_s, p2p_s, reduce_scatter_s
from itertime.layer import LayerCosts, LayerWork, Parts, layer_costs
from itertime.model import ModelSpec
from itertime.plan import PlanBatch
from itertime.profile import Profile
from itertime.system import System

__all__ = [
    "FIRST",
    "HEAVY",
    "LAST",
    "LIGHT",
    "StageCosts",
    "StageLayout",
    "padded_vocab",
    "stage_costs",
    "stage_layout",
]

Array = NDArray[np.float64]
Whole = NDArray[np.int64]
FIRST, HEAVY, LIGHT, LAST = range(4)
GRADIENT_BYTES = 2.0  # gradients are exchanged in 16 bit
OPTIMIZER_BYTES = (
    50.0  # per parameter: unscale and norm of gradients, Adam on fp32 master weights, copy to 16 bit
)


@dataclass(frozen=True)
class StageLayout:
    """Layers of each kind of stage and how many stages of the kind there are: integer arrays (4, plans)."""

    layers: Whole
    stages: Whole


@dataclass(frozen=True)
class StageCosts:
    """Seconds. `forward`, `backward`: part -> (4, plans), one micro-batch; `once`: part -> (plans,), one iteration."""

    layout: StageLayout
    forward: Parts
    backward: Parts
    once: Parts


def stage_layout(model: ModelSpec, plans: PlanBatch) -> StageLayout:
    """How the layers are split; a balanced split counts embedding and projection as one layer each, middle stages first."""
    pp, single = plans.pp, plans.pp == 1
    quotient, extra = np.divmod(model.layers + 2, pp)
    uneven = (model.layers % pp != 0) & plans.balanced
    even = model.layers // pp
    middles = np.maximum(pp - 2, 0)
    heavy = np.where(uneven, np.minimum(extra, middles), middles)
    last_extra = np.where(extra > middles, 1, 0)
    layers = np.stack([
        np.where(uneven, quotient - 1, even),
        np.where(uneven, quotient + 1, even),
        np.where(uneven, quotient, even),
        np.where(uneven, quotient - 1 + last_extra, even),
    ])  # fmt: skip
    stages = np.stack([np.where(single, 0, 1), heavy, middles - heavy, np.ones_like(pp)])
    return StageLayout(layers, stages)


def padded_vocab(model: ModelSpec, tp: Whole) -> Whole:
    """The vocabulary rounded up to a multiple of 128 tp, as Megatron-LM pads it."""
    return -(-model.vocab // (128 * tp)) * 128 * tp


def stage_costs(model: ModelSpec, plans: PlanBatch, system: System, profile: Profile) -> StageCosts:
    """Everything an iteration's time is made of except the order in which stages run."""
    layout = stage_layout(model, plans)
    layer = _distinct_layers(model, plans, system, profile)
    forward = {part: layout.layers * seconds for part, seconds in layer.forward.items()}
    backward = {part: layout.layers * seconds for part, seconds in layer.backward.items()}
    has_embedding = np.array([1, 0, 0, 0])[:, None] | (np.arange(4)[:, None] == LAST) & (plans.pp == 1)
    has_head = np.array([0, 0, 0, 1])[:, None]
    embed, embed_back = _embedding(model, plans, system, profile)
    head, head_back = _head(model, plans, system, profile)
    hop = _hop(model, plans, system, profile) * system.site.p2p_exposure
    forward |= {
        "embedding": has_embedding * embed,
        "head": has_head * head,
        "p2p": np.array([1, 1, 1, 0])[:, None] * hop,
    }
    backward |= {"embedding": has_embedding * embed_back, "head": has_head * head_back}
    backward["p2p"] = np.array([0, 1, 1, 1])[:, None] * hop
    forward["fsdp_comm"], backward["fsdp_comm"] = _sharded_layers(
        model, plans, layout, layer, system, profile
    )
    hidden = sum(backward.values(), np.zeros(layout.layers.shape))
    once = _once(
        model, plans, layout, hidden, sum(forward.values(), np.zeros(layout.layers.shape)), system, profile
    )
    return StageCosts(layout, forward, backward, once)


def _distinct_layers(model: ModelSpec, plans: PlanBatch, system: System, profile: Profile) -> LayerCosts:
    """Layer costs of every plan; each distinct (tp, micro-batch, recompute, sequence parallelism) is worked out once."""
    columns = (plans.tp, plans.micro_batch, plans.recompute, plans.sequence_parallel.astype(np.int64))
    if len(plans) == 1:
        return layer_costs(
            model,
            LayerWork(plans.tp, plans.micro_batch, plans.recompute, plans.sequence_parallel),
            system,
            profile,
        )
    key = columns[0] * 10**7 + columns[1]
    key = key * 6 + columns[2] * 2 + columns[3]
    _, first, where = np.unique(key, return_index=True, return_inverse=True)
    work = LayerWork(
        plans.tp[first], plans.micro_batch[first], plans.recompute[first], plans.sequence_parallel[first]
    )
    costs = layer_costs(model, work, system, profile)
    return LayerCosts(
        {part: seconds[where] for part, seconds in costs.forward.items()},
        {part: seconds[where] for part, seconds in costs.backward.items()},
    )


def _activation_all_reduce(model: ModelSpec, plans: PlanBatch, system: System, profile: Profile) -> Array:
    local = np.minimum(plans.tp, system.gpus_per_node)
    nbytes = 2.0 * plans.micro_batch * model.seq_len * model.hidden
    return all_reduce_s(nbytes, plans.tp, local, system, profile, system.gpus_per_node // local)


def _embedding(model: ModelSpec, plans: PlanBatch, system: System, profile: Profile) -> tuple[Array, Array]:
    """Vocabulary-parallel look-up, positions, dropout, one all-reduce; backward the scatter and the dense gradient's accumulation."""
    tokens = 1.0 * plans.micro_batch * model.seq_len
    per_token = 4 + (6 if model.positions == "learned" else 0) + (5 if model.dropout else 0)
    table = padded_vocab(model, plans.tp) * model.hidden / plans.tp
    seconds = profile.elementwise_s
    forward = seconds(per_token * tokens * model.hidden, "embedding") / system.site.hbm_fraction
    backward = seconds(10 * tokens * model.hidden, "embedding") + seconds(8 * table)
    return forward + _activation_all_reduce(
        model, plans, system, profile
    ), backward / system.site.hbm_fraction


def _head(model: ModelSpec, plans: PlanBatch, system: System, profile: Profile) -> tuple[Array, Array]:
    """Final norm, vocabulary projection (three GEMMs), cross-entropy in fp32: about 36 + 14 bytes per logit; one all-reduce."""
    site = system.site
    tokens = 1.0 * plans.micro_batch * model.seq_len
    columns = padded_vocab(model, plans.tp) / plans.tp
    wide = np.full_like(tokens, model.hidden)
    m, n, k = (tokens, tokens, wide), (columns, wide, columns), (wide, columns, tokens)
    project, data, weight = site.gemm_multiplier * profile.gemm_s(np.stack(m), np.stack(n), np.stack(k))
    norm = "rmsnorm" if model.norm == "rmsnorm" else "layernorm"
    seconds = profile.elementwise_s
    forward = seconds(4 * tokens * model.hidden, norm) + seconds(36 * tokens * columns, "cross_entropy")
    backward = seconds(6 * tokens * model.hidden, norm) + seconds(14 * tokens * columns, "cross_entropy")
    backward = backward + seconds(6 * columns * model.hidden)
    return (
        project + forward / site.hbm_fraction,
        data + weight + backward / site.hbm_fraction + _activation_all_reduce(model, plans, system, profile),
    )


def _hop(model: ModelSpec, plans: PlanBatch, system: System, profile: Profile) -> Array:
    """One activation to the next stage: each tensor-parallel rank sends its share, then they gather it (SC'21, section 4.1)."""
    per_stage = plans.tp * plans.dp
    node = system.gpus_per_node
    across = np.where(
        plans.gpus > node, np.minimum(per_stage / node, 1.0), 0.0
    )  # share of boundaries between nodes
    nbytes = 2.0 * plans.micro_batch * model.seq_len * model.hidden / plans.tp
    sharers = np.minimum(per_stage, node)
    sent = across * p2p_s(nbytes, True, system, profile, sharers) + (1 - across) * p2p_s(
        nbytes, False, system, profile
    )
    local = np.minimum(plans.tp, node)
    gathered = all_gather_s(nbytes * plans.tp, plans.tp, local, system, profile, node // local)
    return np.where(plans.pp > 1, sent + np.where(plans.sequence_parallel, 0.0, gathered), 0.0)


def _data_parallel_layout(plans: PlanBatch, system: System, ranks: Whole) -> tuple[Whole, Whole]:
    """Of a group of `ranks` neighbouring data-parallel ranks: how many sit in one node, and how many groups share the node's NICs."""
    room = np.maximum(system.gpus_per_node // plans.tp, 1)
    local = np.minimum(ranks, room)
    return local, np.maximum(system.gpus_per_node // local, 1)


def _sharded_layers(
    model: ModelSpec,
    plans: PlanBatch,
    layout: StageLayout,
    layer: LayerCosts,
    system: System,
    profile: Profile,
) -> tuple[Array, Array]:
    """ZeRO-3: each layer's weights are gathered before its forward and its backward, its gradients scattered after; ZeRO-2 the latter.

    Only what the layer's own time does not cover is exposed (Zhao et al. 2023, PyTorch FSDP: prefetch of one layer).
    """
    shape = layout.layers.shape
    if not (plans.zero_stage >= 2).any():
        return np.zeros(shape), np.zeros(shape)
    local, sharers = _data_parallel_layout(plans, system, plans.zero_group)
    nbytes = GRADIENT_BYTES * model.layer_parameters / plans.tp
    gather = all_gather_s(nbytes, plans.zero_group, local, system, profile, sharers)
    scatter = reduce_scatter_s(nbytes, plans.zero_group, local, system, profile, sharers)
    gather = np.where(plans.zero_stage == 3, gather, 0.0)
    scatter = np.where(plans.zero_stage >= 2, scatter, 0.0)
    forward = np.maximum(gather - sum(layer.forward.values()), 0.0)
    backward = np.maximum(gather + scatter - sum(layer.backward.values()), 0.0)
    return layout.layers * forward, layout.layers * backward


def _once(
    model: ModelSpec,
    plans: PlanBatch,
    layout: StageLayout,
    backward: Array,
    forward: Array,
    system: System,
    profile: Profile,
) -> Parts:
    """What follows the last backward: gradient exchange, tied embeddings, optimizer, on the stage that ends last, the first one."""
    first = np.where(plans.pp == 1, LAST, FIRST)
    column = np.arange(len(plans))
    layers = layout.layers[first, column]
    vocab = padded_vocab(model, plans.tp) * model.hidden / plans.tp
    tables = vocab * np.where((plans.pp == 1) & (not model.tied_embeddings), 2, 1)
    parameters = layers * model.layer_parameters / plans.tp + tables
    nbytes = GRADIENT_BYTES * parameters
    local, sharers = _data_parallel_layout(plans, system, plans.dp)
    group_local, group_sharers = _data_parallel_layout(plans, system, plans.zero_group)
    whole = plans.zero_group == plans.dp
    sharded = plans.zero_stage == 1
    reduced = np.where(
        sharded & whole,
        reduce_scatter_s(nbytes, plans.dp, local, system, profile, sharers),
        all_reduce_s(nbytes, plans.dp, local, system, profile, sharers),
    )
    reduced = np.where(plans.zero_stage >= 2, 0.0, reduced)
    gathered = all_gather_s(nbytes, plans.zero_group, group_local, system, profile, group_sharers)
    gathered = np.where((plans.zero_stage == 1) | (plans.zero_stage == 2), gathered, 0.0)
    overlap = plans.grad_overlap
    buckets = np.maximum(layers, 1)
    exposed = np.where(overlap, _exposed(reduced, backward[first, column], buckets), reduced)
    exposed = exposed + np.where(overlap, _exposed(gathered, forward[first, column], buckets), gathered)
    shards = np.where(plans.zero_stage >= 1, plans.zero_group, 1)
    sync = all_reduce_s(
        2.0 * vocab,
        2,
        np.where(plans.gpus > system.gpus_per_node, 1, 2),
        system,
        profile,
        system.gpus_per_node,
    )
    return {
        "dp_comm": exposed,
        "embedding_sync": np.where((plans.pp > 1) & model.tied_embeddings, sync, 0.0),
        "optimizer": profile.elementwise_s(OPTIMIZER_BYTES * parameters / shards, "adam")
        / system.site.hbm_fraction,
        "iteration_overhead": np.full(len(plans), system.site.iteration_overhead_s),
    }


def _exposed(comm: Array, cover: Array, buckets: Whole) -> Array:
    """Communication in equal buckets, each ready when its share of `cover` is done: the last bucket never hides."""
    return np.maximum(comm / buckets, comm - cover * (1 - 1 / buckets))
