"""Seconds of every kind of pipeline stage, and of what an iteration does once; many plans together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from itertime.collectives import all_gather_s, all_reduce_s, p2p_s
from itertime.edges import embedding_s, head_s, padded_vocab
from itertime.exchange import Exchange, exchange, exposed_s, optimizer_s, sharded_layer_s
from itertime.layer import LayerWork, Parts, activation_all_reduce_s, layer_costs
from itertime.model import ModelSpec
from itertime.plan import PlanBatch
from itertime.profile import Profile
from itertime.stages import FIRST, LAST, StageLayout, stage_layout
from itertime.system import System

__all__ = ["ChunkTimes", "StageCosts", "chunk_times", "stage_costs"]

Array = NDArray[np.float64]
Whole = NDArray[np.int64]
_KIND = np.arange(4)[:, None]


@dataclass(frozen=True)
class StageCosts:
    """Seconds by part: of one micro-batch, `forward` and `backward` (4, plans), and `once` a plan (plans,).

    The four rows are the kinds of stages (`itertime.stages`). "dp_comm" is the exposed part of `exchange`.
    """

    layout: StageLayout
    forward: Parts
    backward: Parts
    once: Parts
    exchange: Exchange


def stage_costs(model: ModelSpec, plans: PlanBatch, system: System, profile: Profile) -> StageCosts:
    """Everything an iteration's time is made of except the order in which the stages run."""
    layout = stage_layout(model, plans)
    comm = sharded_layer_s(model, plans, system, profile)
    hop = _hop(model, plans, system, profile)
    micro = _micro_batch(model, plans, system, profile)
    whole_model = (_KIND == FIRST) | ((_KIND == LAST) & (plans.pp == 1))
    passes = []
    for (layer, embedding, head), sharded, end in zip(micro, comm, (LAST, FIRST), strict=True):
        parts: Parts = {part: layout.layers * seconds for part, seconds in layer.items()}
        exposed = np.maximum(sharded - sum(layer.values(), np.zeros(len(plans))), 0.0)
        parts["fsdp_comm"] = exposed * layout.layers
        parts["embedding"] = np.where(whole_model, embedding, 0.0)
        parts["head"] = np.where(_KIND == LAST, head, 0.0)
        parts["p2p"] = hop * (plans.interleave - (end == _KIND))
        passes.append(parts)
    once, traffic = _once(model, plans, layout, passes[0], passes[1], system, profile)
    return StageCosts(layout, passes[0], passes[1], once, traffic)


def _micro_batch(
    model: ModelSpec, plans: PlanBatch, system: System, profile: Profile
) -> tuple[tuple[Parts, Array, Array], tuple[Parts, Array, Array]]:
    """(one layer by part, embedding, head) of the forward and of the backward pass.

    Each distinct case is worked out once, however many plans share it.
    """
    choices = (plans.recompute << 2) + (plans.sequence_parallel << 1) + plans.fp32_gradients
    key = (plans.tp << 32) + (plans.micro_batch << 4) + choices
    _, first, where = np.unique(key, return_index=True, return_inverse=True)
    work = LayerWork(
        plans.tp[first],
        plans.micro_batch[first],
        plans.recompute[first],
        plans.sequence_parallel[first],
        plans.fp32_gradients[first],
    )
    reduced = activation_all_reduce_s(model, work, system, profile)
    layer = layer_costs(model, work, reduced, system, profile)
    embedding = embedding_s(model, work, reduced, system, profile)
    head = head_s(model, work, reduced, system, profile)
    forward, backward = (
        ({part: seconds[where] for part, seconds in parts.items()}, one[where], other[where])
        for parts, one, other in zip((layer.forward, layer.backward), embedding, head, strict=True)
    )
    return forward, backward


def _hop(model: ModelSpec, plans: PlanBatch, system: System, profile: Profile) -> Array:
    """Seconds that one activation costs on its way to the next stage.

    Each tensor-parallel rank sends its share, which is exposed in part; then the next stage gathers them
    (Narayanan et al., SC'21, 4.1), which nothing hides: its first kernel needs the whole. Where a node holds
    several stages, only the share of boundaries that lie between nodes uses the NICs.
    """
    if (plans.pp == 1).all():
        return np.zeros(len(plans))
    per_stage, node = plans.tp * plans.dp, system.gpus_per_node
    across = np.where(plans.gpus > node, np.minimum(per_stage / node, 1.0), 0.0)
    nbytes = 2.0 * plans.micro_batch * model.seq_len * model.hidden / plans.tp
    sharers = np.stack([np.minimum(per_stage, node), np.ones_like(per_stage)])
    stride = np.maximum(per_stage // node, 1)
    outside, inside = p2p_s(nbytes, np.array([[True], [False]]), system, profile, sharers, stride)
    sent = system.site.p2p_exposure * (across * outside + (1 - across) * inside)
    local = np.minimum(plans.tp, node)
    gathered = all_gather_s(nbytes * plans.tp, plans.tp, local, system, profile, node // local)
    return np.where(plans.pp > 1, sent + np.where(plans.sequence_parallel, 0.0, gathered), 0.0)


def _once(
    model: ModelSpec,
    plans: PlanBatch,
    layout: StageLayout,
    forward: Parts,
    backward: Parts,
    system: System,
    profile: Profile,
) -> tuple[Parts, Exchange]:
    """What an iteration does once, on the stage that ends last, the first one."""
    first = np.where(plans.pp == 1, LAST, FIRST)
    column = np.arange(len(plans))
    layers = layout.layers[first, column]
    vocab = padded_vocab(model, plans.tp) * model.hidden / plans.tp
    tables = vocab * np.where((plans.pp == 1) & (not model.tied_embeddings), 2, 1)
    parameters = layers * model.layer_parameters / plans.tp + tables
    traffic = exchange(plans, layers, parameters, system, profile)
    exposed = np.zeros(len(plans))
    for comm, parts in ((traffic.gather_s, forward), (traffic.reduce_s, backward)):
        cover = _shared(parts)[first, column] / plans.interleave + parts["embedding"][first, column]
        cover = cover + np.where(plans.interleave == 1, parts["head"][first, column], 0.0)
        exposed = exposed + exposed_s(comm, cover, traffic.buckets, plans.grad_overlap)
    both_ends = np.where(plans.gpus > system.gpus_per_node, 1, 2)
    apart = np.maximum(plans.tp * plans.dp * (plans.pp - 1) // system.gpus_per_node, 1)
    sync = all_reduce_s(2.0 * vocab, 2, both_ends, system, profile, system.gpus_per_node, apart)
    site = system.site
    once = {
        "dp_comm": exposed,
        "embedding_sync": np.where((plans.pp > 1) & model.tied_embeddings, sync, 0.0),
        "optimizer": optimizer_s(plans, parameters, system, profile),
        "iteration_overhead": site.iteration_overhead_s + _broadcasts(plans) * site.zero_broadcast_s,
    }
    return once, traffic


def _broadcasts(plans: PlanBatch) -> Whole:
    """Ranks that send their share of the updated weights to their ZeRO group, one after the other."""
    ranks = np.where(plans.zero_group > 1, plans.zero_group, 0)
    return np.where((plans.zero_stage == 1) | (plans.zero_stage == 2), ranks, 0)


@dataclass(frozen=True)
class ChunkTimes:
    """Seconds of one micro-batch, (rows, stages, chunks): the passes, and what sending adds to each."""

    forward: Array
    backward: Array
    send_forward: Array
    send_backward: Array


def chunk_times(costs: StageCosts, plans: PlanBatch, rows: Whole, chunks: int) -> ChunkTimes:
    """The stages of `rows`, all of `chunks` chunks, written out; spare columns repeat a row's last stage."""
    kinds = costs.layout.kinds(rows)
    column = rows[:, None]

    def work(parts: Parts) -> Array:
        times = np.repeat(_shared(parts)[kinds, column][:, :, None] / chunks, chunks, axis=2)
        times[:, :, 0] += parts["embedding"][kinds, column]
        times[:, :, -1] += parts["head"][kinds, column]
        return times

    def sends(hop: Array) -> Array:
        return np.broadcast_to((hop / chunks)[:, None, None], (*kinds.shape, chunks)).copy()

    forward, backward = sends(costs.forward["p2p"][FIRST, rows]), sends(costs.backward["p2p"][LAST, rows])
    forward[np.arange(len(rows)), plans.pp[rows] - 1, -1] = 0.0
    backward[:, 0, 0] = 0.0
    return ChunkTimes(work(costs.forward), work(costs.backward), forward, backward)


def _shared(parts: Parts) -> Array:
    """Seconds of a pass that the chunks of a stage share equally, (4, plans): not embedding, head, sends."""
    equal = [seconds for name, seconds in parts.items() if name not in ("embedding", "head", "p2p")]
    return sum(equal, np.zeros_like(parts["head"]))
