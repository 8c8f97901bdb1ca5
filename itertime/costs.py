"""Seconds of every kind of pipeline stage, and of what an iteration does once: gradients, optimizer. All plans at once.

A pipeline has at most four kinds of stages: the first (embedding), middle ones with one layer more and one less (an uneven
split), and the last (projection, loss). With pp = 1 the only stage is a last one that also has the embedding.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from itertime.collectives import all_gather_s, all_reduce_s, p2p_s
from itertime.exchange import Exchange, exchange, exposed_s, optimizer_s, sharded_layer_s
from itertime.layer import LayerCosts, LayerWork, Parts, layer_costs
from itertime.model import ModelSpec
from itertime.plan import PlanBatch
from itertime.profile import Profile
from itertime.stages import FIRST, LAST, StageLayout, stage_layout
from itertime.system import System

__all__ = ["ChunkTimes", "StageCosts", "chunk_times", "padded_vocab", "stage_costs"]

Array = NDArray[np.float64]
Whole = NDArray[np.int64]


@dataclass(frozen=True)
class StageCosts:
    """Seconds. `forward`, `backward`: part -> (4, plans), one micro-batch; `once`: part -> (plans,), one iteration.

    `exchange` is what "dp_comm" is the exposed part of.
    """

    layout: StageLayout
    forward: Parts
    backward: Parts
    once: Parts
    exchange: Exchange


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
    last, first = np.arange(4)[:, None] == LAST, np.arange(4)[:, None] == FIRST
    forward |= {
        "embedding": has_embedding * embed,
        "head": has_head * head,
        "p2p": (plans.interleave - last) * hop,
    }
    backward |= {"embedding": has_embedding * embed_back, "head": has_head * head_back}
    backward["p2p"] = (plans.interleave - first) * hop
    gather, scatter = sharded_layer_s(model, plans, system, profile)
    zero = np.zeros(len(plans))
    forward["fsdp_comm"] = layout.layers * np.maximum(gather - sum(layer.forward.values(), zero), 0.0)
    backward["fsdp_comm"] = layout.layers * np.maximum(scatter - sum(layer.backward.values(), zero), 0.0)
    return _with_exchange(model, plans, layout, forward, backward, system, profile)


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


def _with_exchange(
    model: ModelSpec,
    plans: PlanBatch,
    layout: StageLayout,
    forward: Parts,
    backward: Parts,
    system: System,
    profile: Profile,
) -> StageCosts:
    """Adds what an iteration does once, on the stage that ends last, the first one."""
    first = np.where(plans.pp == 1, LAST, FIRST)
    column = np.arange(len(plans))
    layers = layout.layers[first, column]
    vocab = padded_vocab(model, plans.tp) * model.hidden / plans.tp
    tables = vocab * np.where((plans.pp == 1) & (not model.tied_embeddings), 2, 1)
    parameters = layers * model.layer_parameters / plans.tp + tables
    traffic = exchange(plans, layers, parameters, system, profile)
    exposed = np.zeros(len(plans))
    for comm, parts in ((traffic.gather_s, forward), (traffic.reduce_s, backward)):
        cover = shared(parts)[first, column] / plans.interleave + parts["embedding"][first, column]
        cover = cover + np.where(plans.interleave == 1, parts["head"][first, column], 0.0)
        exposed = exposed + exposed_s(comm, cover, traffic.buckets, plans.grad_overlap)
    both_ends = np.where(plans.gpus > system.gpus_per_node, 1, 2)
    sync = all_reduce_s(2.0 * vocab, 2, both_ends, system, profile, system.gpus_per_node)
    once = {
        "dp_comm": exposed,
        "embedding_sync": np.where((plans.pp > 1) & model.tied_embeddings, sync, 0.0),
        "optimizer": optimizer_s(plans, parameters, system, profile),
        "iteration_overhead": np.full(len(plans), system.site.iteration_overhead_s),
    }
    return StageCosts(layout, forward, backward, once, traffic)


@dataclass(frozen=True)
class ChunkTimes:
    """Seconds of one micro-batch on every chunk of every stage, (rows, stages, chunks): the passes and what sending adds."""

    forward: Array
    backward: Array
    send_forward: Array
    send_backward: Array


def chunk_times(costs: StageCosts, plans: PlanBatch, rows: Whole, chunks: int) -> ChunkTimes:
    """The stages of `rows`, which all have `chunks` chunks, written out; columns beyond a row's stages repeat its last one."""
    kinds = costs.layout.kinds(rows)
    column = rows[:, None]

    def work(parts: Parts) -> Array:
        times = np.repeat(shared(parts)[kinds, column][:, :, None] / chunks, chunks, axis=2)
        times[:, :, 0] += parts["embedding"][kinds, column]
        times[:, :, -1] += parts["head"][kinds, column]
        return times

    def sends(hop: Array) -> Array:
        return np.broadcast_to((hop / chunks)[:, None, None], (*kinds.shape, chunks)).copy()

    forward, backward = sends(costs.forward["p2p"][FIRST, rows]), sends(costs.backward["p2p"][LAST, rows])
    last = plans.pp[rows] - 1
    forward[np.arange(len(rows)), last, -1] = 0.0
    backward[:, 0, 0] = 0.0
    return ChunkTimes(work(costs.forward), work(costs.backward), forward, backward)


def shared(parts: Parts) -> Array:
    """Seconds of one pass that all chunks of a stage share equally: everything but embedding, head and sends; (4, plans)."""
    equal = [seconds for name, seconds in parts.items() if name not in ("embedding", "head", "p2p")]
    return sum(equal, np.zeros_like(parts["head"]))
