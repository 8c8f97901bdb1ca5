"""Seconds of every kind of pipeline stage, and of what an iteration does once; many plans together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from itertime.closed_forms import InterleavedPasses
from itertime.collectives import all_gather_s, all_reduce_s, p2p_s
from itertime.edges import embedding_s, head_s, padded_vocab
from itertime.exchange import Exchange, Sharded, exchange, exposed_s, optimizer_s, sharded_s
from itertime.layer import Parts, layer_costs
from itertime.layer_comm import activation_all_reduce_s
from itertime.model import ModelSpec
from itertime.planbatch import PlanBatch
from itertime.profile import Profile
from itertime.stages import FIRST, LAST, StageLayout, layer_shards, stage_layout
from itertime.system import System

__all__ = ["ChunkTimes", "StageCosts", "chunk_times", "interleaved_passes", "stage_costs", "stage_layers_s"]

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
    tables = _tables(model, plans)
    sharded = sharded_s(model, plans, tables, system, profile)
    hop = _hop(model, plans, system, profile)
    micro = _micro_batch(model, plans, system, profile)
    whole_model = (_KIND == FIRST) | ((_KIND == LAST) & (plans.pp == 1))
    passes = []
    for (layer, embedding, head), end in zip(micro, (LAST, FIRST), strict=True):
        parts: Parts = {part: layout.layers * seconds for part, seconds in layer.items()}
        parts["fsdp_comm"] = _exposed_shards(sharded, end == LAST, layer, layout, plans)
        parts["embedding"] = np.where(whole_model, embedding, 0.0)
        parts["head"] = np.where(_KIND == LAST, head, 0.0)
        if "launch" in parts:
            _hide_ends(parts, plans)
        parts["p2p"] = hop * (plans.interleave - (end == _KIND))
        passes.append(parts)
    once, traffic = _once(model, plans, layout, tables, passes[0], passes[1], system, profile)
    once["fsdp_last"] = sharded.last_scatter
    return StageCosts(layout, passes[0], passes[1], once, traffic)


def stage_layers_s(model: ModelSpec, plans: PlanBatch, system: System, profile: Profile) -> Array:
    """Seconds of one micro-batch in the layers of the stage with the fewest, without ends and sends."""
    work, where = _distinct(plans)
    reduced = activation_all_reduce_s(model, work, system, profile)
    layer = layer_costs(model, work, reduced, system, profile)
    both = (*layer.forward.values(), *layer.backward.values())
    seconds = sum(both, np.zeros(len(work)))
    return (model.layers // plans.pp) * (seconds if where is None else seconds[where])


def _hide_ends(parts: Parts, plans: PlanBatch) -> None:
    """Embedding and head run while the GPU would wait for the launches of the layers in the same chunk."""
    idle = parts["launch"] / plans.interleave
    for end in ("embedding", "head"):
        hidden = np.minimum(parts[end], idle)
        parts[end] = parts[end] - hidden
        idle = np.where(plans.interleave == 1, idle - hidden, idle)


def _exposed_shards(
    sharded: Sharded, forward: bool, layer: Parts, layout: StageLayout, plans: PlanBatch
) -> Array:
    """What ZeRO-2 and -3 add to a pass, (4, plans): with `prefetch`, what a layer's work does not hide."""
    if not (plans.zero_stage >= 2).any():
        return np.zeros(layout.layers.shape)
    comm = sharded.forward if forward else sharded.backward
    hidden = np.where(plans.prefetch, sum(layer.values(), np.zeros(len(plans))), 0.0)
    exposed: Array = np.maximum(comm - hidden, 0.0)
    if not forward:
        return 1.0 * layout.layers * exposed
    return np.where(layout.layers > 0, (layout.layers - 1) * exposed + comm, 0.0) + sharded.root_gather


def _micro_batch(
    model: ModelSpec, plans: PlanBatch, system: System, profile: Profile
) -> tuple[tuple[Parts, Array, Array], tuple[Parts, Array, Array]]:
    """(one layer by part, embedding, head) of the forward and of the backward pass.

    Each distinct case is worked out once, however many plans share it.
    """
    work, where = _distinct(plans)
    reduced = activation_all_reduce_s(model, work, system, profile)
    layer = layer_costs(model, work, reduced, system, profile)
    embedding = embedding_s(model, work, reduced, system, profile)
    head = head_s(model, work, reduced, system, profile)
    both = (layer.forward, embedding[0], head[0]), (layer.backward, embedding[1], head[1])
    if where is None:
        return both
    forward, backward = (
        ({part: seconds[where] for part, seconds in parts.items()}, one[where], other[where])
        for parts, one, other in both
    )
    return forward, backward


def _distinct(plans: PlanBatch) -> tuple[PlanBatch, Whole | None]:
    """The plans that differ in what a micro-batch does, and which of them each plan is (None: every one)."""
    if len(plans) == 1:
        return plans, None
    switches = (plans.recompute << 3) + (plans.sequence_parallel << 2) + (plans.fp32_gradients << 1)
    key = (plans.tp << 32) + (plans.micro_batch << 5) + switches + plans.cp_gather
    if (plans.cp * plans.ep > 1).any():
        columns = key, plans.cp, plans.ep
        _, first, where = np.unique(np.stack(columns), axis=1, return_index=True, return_inverse=True)
    else:
        _, first, where = np.unique(key, return_index=True, return_inverse=True)
    return plans.take(first), where.reshape(-1)


def _hop(model: ModelSpec, plans: PlanBatch, system: System, profile: Profile) -> Array:
    """Seconds that one activation costs on its way to the next stage.

    Each tensor-parallel rank sends its share, which is exposed in part; then the next stage gathers them
    (Narayanan et al., SC'21, 4.1), which nothing hides: its first kernel needs the whole. Where a node holds
    several stages, only the share of boundaries that lie between nodes uses the NICs.
    """
    if (plans.pp == 1).all():
        return np.zeros(len(plans))
    per_stage, node = plans.next_stage, system.gpus_per_node
    across = np.where(per_stage * plans.pp > node, np.minimum(per_stage / node, 1.0), 0.0)
    nbytes = 2.0 * plans.tokens(model.seq_len) * model.hidden / plans.tp
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
    tables: Array,
    forward: Parts,
    backward: Parts,
    system: System,
    profile: Profile,
) -> tuple[Parts, Exchange]:
    """What an iteration does once, on the stage that ends last, the first one."""
    first = np.where(plans.pp == 1, LAST, FIRST)
    column = np.arange(len(plans))
    layers = layout.layers[first, column]
    shared, experts = layer_shards(model, plans)
    shared, experts = layers * shared + tables, layers * experts
    traffic = exchange(plans, layers, shared, experts, system, profile)
    exposed = np.zeros(len(plans))
    overlaps = plans.grad_overlap.any()
    for comm, parts in ((traffic.gather_s, forward), (traffic.reduce_s, backward)):
        if not overlaps:
            exposed = exposed + comm
            continue
        cover = _shared(parts)[first, column] / plans.interleave + parts["embedding"][first, column]
        cover = cover + np.where(plans.interleave == 1, parts["head"][first, column], 0.0)
        exposed = exposed + exposed_s(comm, cover, traffic.buckets, plans.grad_overlap)
    site = system.site
    once = {
        "dp_comm": exposed,
        "embedding_sync": _embedding_sync(model, plans, system, profile),
        "optimizer": optimizer_s(plans, shared, experts, system, profile),
        "iteration_overhead": site.iteration_overhead_s + _broadcasts(plans) * site.zero_broadcast_s,
    }
    return once, traffic


def _broadcasts(plans: PlanBatch) -> Array:
    """Ranks that send their share of the updated weights to their ZeRO group, one after the other."""
    ranks = np.where(plans.zero_group > 1, plans.zero_group, 0.0)
    return np.where((plans.zero_stage == 1) | (plans.zero_stage == 2), ranks, 0.0)


def _tables(model: ModelSpec, plans: PlanBatch) -> Array:
    """Parameters per GPU of the first stage beside its layers: embedding, and with pp = 1 the projection."""
    table = padded_vocab(model, plans.tp) * model.hidden / plans.tp
    return table * np.where((plans.pp == 1) & (not model.tied_embeddings), 2, 1)


def _embedding_sync(model: ModelSpec, plans: PlanBatch, system: System, profile: Profile) -> Array:
    """Seconds to sum the gradients of an embedding that both ends of a pipeline hold."""
    if not model.tied_embeddings or (plans.pp == 1).all():
        return np.zeros(len(plans))
    node = system.gpus_per_node
    together = np.where(plans.next_stage * plans.pp > node, 1, 2)
    apart = np.maximum(plans.next_stage * (plans.pp - 1) // node, 1)
    table = 2.0 * padded_vocab(model, plans.tp) * model.hidden / plans.tp
    return np.where(plans.pp > 1, all_reduce_s(table, 2, together, system, profile, node, apart), 0.0)


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
        return np.zeros((*kinds.shape, chunks)) + (hop / chunks)[:, None, None]

    forward, backward = sends(costs.forward["p2p"][FIRST, rows]), sends(costs.backward["p2p"][LAST, rows])
    forward[np.arange(len(rows)), plans.pp[rows] - 1, -1] = 0.0
    backward[:, 0, 0] = 0.0
    return ChunkTimes(work(costs.forward), work(costs.backward), forward, backward)


def interleaved_passes(costs: StageCosts, plans: PlanBatch, rows: Whole) -> InterleavedPasses:
    """The passes of `rows`, whose stages all have the same number of layers: interleaving needs that."""
    chunks = plans.interleave[rows]
    hops = costs.forward["p2p"][FIRST, rows] / chunks, costs.backward["p2p"][LAST, rows] / chunks
    forward, backward = (
        _shared(parts)[LAST, rows] / chunks + hop
        for parts, hop in zip((costs.forward, costs.backward), hops, strict=True)
    )
    return InterleavedPasses(
        forward,
        backward,
        first_forward=costs.forward["embedding"][FIRST, rows],
        first_backward=costs.backward["embedding"][FIRST, rows] - hops[1],
        last_forward=costs.forward["head"][LAST, rows] - hops[0],
        last_backward=costs.backward["head"][LAST, rows],
    )


def _shared(parts: Parts) -> Array:
    """Seconds of a pass that the chunks of a stage share equally, (4, plans): not embedding, head, sends."""
    equal = [seconds for name, seconds in parts.items() if name not in ("embedding", "head", "p2p")]
    return sum(equal, np.zeros_like(parts["head"]))
