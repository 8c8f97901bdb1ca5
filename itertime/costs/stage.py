"""Seconds of every kind of pipeline stage, and of what an iteration does once; many plans together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from itertime.schedule import InterleavedPasses
from itertime.spec import ModelSpec, PlanBatch, System

from .embedding_head import embedding_s, head_s
from .exchange import Exchange, Sharded, once_s, pass_kernels_s, sharded_s
from .imbalance import Growth, Spread, add_imbalance, balance_s, varies
from .kernel_times import KernelTimes
from .layer import Parts, layer_costs
from .micro_batch import MicroBatch
from .network import all_gather_s, p2p_s, ranks_together
from .offload import activation_copies_s
from .parallel_comm import activation_all_reduce_s
from .partition import FIRST, HEAVY, LAST, Workload

__all__ = [
    "MICRO_BATCH_COLUMNS",
    "ChunkTimes",
    "Pass",
    "StageCosts",
    "chunk_times",
    "interleaved_passes",
    "micro_batch_passes",
    "stage_costs",
    "stage_layers_s",
]

Array = NDArray[np.float64]
Whole = NDArray[np.int64]
_KIND = np.arange(4)[:, None]

MICRO_BATCH_COLUMNS = (
    "tp",
    "micro_batch",
    "recompute",
    "sequence_parallel",
    "fp32_gradients",
    "cp_gather",
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
_DEALT = ("dp", "global_batch", "pp_before_dp")
"""Further ones where its samples depend on those of the other micro-batches."""
_MORE = 1.5
"""Work whose seconds show how a pass grows: far enough that steps of the GPU's waves matter little, and about
as far as the slowest of many ranks lies above the mean rank if samples stay as drawn."""


@dataclass(frozen=True)
class StageCosts:
    """Seconds by part: `forward` and `backward` of one micro-batch, (4, plans), and what an iteration spends
    `once`, (plans,).

    The four rows are the kinds of stages (see `Partition`). "dp_comm" is the exposed part of `exchange`.
    Passes are those of the slowest data-parallel rank: "imbalance" is what it takes longer than the mean one,
    and `spread` how that varies from iteration to iteration; None where it does not.
    """

    workload: Workload
    forward: Parts
    backward: Parts
    once: Parts
    exchange: Exchange
    spread: Spread | None = None


@dataclass(frozen=True)
class Pass:
    """Seconds of one pass of one micro-batch: one layer by part, the embedding, the head.

    `dense`: the same as `layer` of one of a mixture's dense layers; empty for a model without any.
    """

    layer: Parts
    embedding: Array
    head: Array
    dense: Parts

    def take(self, rows: Whole) -> Pass:
        layer, dense = (
            {part: seconds[rows] for part, seconds in parts.items()} for parts in (self.layer, self.dense)
        )
        return Pass(layer, self.embedding[rows], self.head[rows], dense)


def stage_costs(workload: Workload) -> StageCosts:
    """All parts of an iteration's time; what remains is the order in which the stages run."""
    sharded = [sharded_s(workload)]
    if workload.model.dense_layers:
        sharded.append(sharded_s(workload.dense_form))
    hop = _hop_s(workload)
    (forward, backward), *longer = _distinct_passes(workload)
    passes = [
        _stage_pass(workload, forward, _shards_forward(workload, sharded, forward), hop, LAST),
        _stage_pass(workload, backward, _shards_backward(workload, sharded, backward), hop, FIRST),
    ]
    for parts, kernels in zip(passes, pass_kernels_s(workload), strict=False):
        parts["compression"] = kernels
    spread = None
    if longer:
        growth = _growth(workload, (forward, backward), longer)
        spread = add_imbalance(workload, passes[0], passes[1], growth)
    once, traffic = once_s(workload, *(_first_chunk_s(workload, each) for each in passes))
    once["fsdp_last"] = sharded[-1].last_scatter  # of the first layer, which is dense if any is
    if longer:
        once["balance"] = balance_s(workload)
    return StageCosts(workload, passes[0], passes[1], once, traffic, spread)


def stage_layers_s(model: ModelSpec, plans: PlanBatch, system: System, profile: KernelTimes) -> Array:
    """Seconds of one micro-batch in `layers // pp` layers, without ends and sends: a lower bound for the
    slowest stage, which has at least as many layers. In a mixture with dense layers all count as the shorter
    kind.
    """
    first, where = plans.distinct(_columns(plans))
    work = Workload.of(model, plans.take(first), system, profile)
    reduced = activation_all_reduce_s(work)
    both = [
        sum((*layer.forward.values(), *layer.backward.values()), np.zeros(len(work)))
        for layer in layer_costs(work, reduced)
    ]
    return (model.layers // plans.pp) * np.minimum.reduce(both)[where]


def _columns(plans: PlanBatch) -> tuple[str, ...]:
    """`MICRO_BATCH_COLUMNS`, and what else decides the longest sample of a micro-batch."""
    dealt = plans.options.batching == "longest" and plans.options.balance != "drawn"
    return MICRO_BATCH_COLUMNS + (_DEALT if dealt else ())


def _distinct_passes(workload: Workload) -> list[tuple[Pass, Pass]]:
    """`micro_batch_passes`, each distinct case computed once, however many plans share it. Where ranks differ
    in their work, also those of a micro-batch with `_MORE` times the tokens, and of one with as many more
    squares of attention's lengths.
    """
    several = varies(workload)
    if len(workload) == 1:
        if not several:
            return [micro_batch_passes(workload)]
        first = where = np.zeros(1, dtype=np.int64)
    else:
        first, where = workload.plans.distinct(_columns(workload.plans))
    mean = workload.take(first)
    if not several:
        forward, backward = micro_batch_passes(mean)
        return [(forward.take(where), backward.take(where))]
    sizes = (mean.micro_batch, *(mean.micro_batch.scaled(*more) for more in ((_MORE, 1.0), (1.0, _MORE))))
    all_sizes = replace(workload.take(np.tile(first, 3)), micro_batch=MicroBatch.joined(sizes))
    forward, backward = micro_batch_passes(all_sizes)
    starts = (where + number * len(first) for number in range(3))
    return [(forward.take(rows), backward.take(rows)) for rows in starts]


def _growth(
    workload: Workload, mean: tuple[Pass, Pass], longer: Sequence[tuple[Pass, Pass]]
) -> tuple[Growth, Growth]:
    """How the GPU's time of both passes grows with a micro-batch's tokens, and with its squares."""
    found = []
    for direction in (0, 1):
        busy = [_busy_s(workload, each[direction]) for each in (mean, *longer)]
        found.append(Growth(*((more - busy[0]) / (_MORE - 1) for more in busy[1:])))
    return found[0], found[1]


def _busy_s(workload: Workload, one: Pass) -> Array:
    """Seconds of a pass that the GPU computes and communicates within layers, (4, plans)."""
    layers = _layers_s(workload, one)
    busy = sum(
        (seconds for part, seconds in layers.items() if part not in ("launch", "overhead")),
        np.zeros(workload.partition.layers.shape),
    )
    has_embedding = (_KIND == FIRST) | ((_KIND == LAST) & (workload.plans.pp == 1))
    return busy + np.where(has_embedding, one.embedding, 0.0) + np.where(_KIND == LAST, one.head, 0.0)


def micro_batch_passes(workload: Workload) -> tuple[Pass, Pass]:
    """Forward and backward pass of one micro-batch under every plan."""
    reduced = activation_all_reduce_s(workload)
    layer, *dense = layer_costs(workload, reduced)
    embedding = embedding_s(workload, reduced)
    head = head_s(workload, reduced)
    return (
        Pass(layer.forward, embedding[0], head[0], dense[0].forward if dense else {}),
        Pass(layer.backward, embedding[1], head[1], dense[0].backward if dense else {}),
    )


def _layers_s(workload: Workload, one: Pass) -> Parts:
    """Seconds by part of a pass through a stage's layers, (4, plans)."""
    partition = workload.partition
    if not one.dense:
        return {part: partition.layers * seconds for part, seconds in one.layer.items()}
    usual, nothing = partition.layers - partition.dense, np.zeros(len(workload))
    return {
        part: usual * one.layer.get(part, nothing) + partition.dense * one.dense.get(part, nothing)
        for part in dict.fromkeys((*one.layer, *one.dense))
    }


def _stage_pass(workload: Workload, one: Pass, shards: _Shards, hop: Array, end: int) -> Parts:
    """Seconds of a pass by part, (4, plans); the stage `end`, where the pass ends, sends one time fewer."""
    plans, layers, framework = workload.plans, workload.partition.layers, workload.framework
    has_embedding = (_KIND == FIRST) | ((_KIND == LAST) & (plans.pp == 1))
    parts = _layers_s(workload, one)
    if plans.offload_layers.any():
        work = sum(parts.values(), np.zeros(layers.shape))
        parts["offload_comm"] = np.maximum(activation_copies_s(workload) - work, 0.0)
    parts["fsdp_comm"] = shards.exposed
    if framework.contention:
        beside = parts.get("contention", 0.0)  # of dispatch, in the layers
        parts["contention"] = beside + framework.contention * shards.hidden
    if framework.pipeline_layer_s or framework.micro_batch_s:
        share = 1 / 3 if end == LAST else 2 / 3
        added = layers * framework.pipeline_layer_s + framework.micro_batch_s * plans.interleave
        parts["overhead"] = parts["overhead"] + np.where(plans.pp > 1, share * added, 0.0)
    parts["embedding"] = np.where(has_embedding, one.embedding, 0.0)
    parts["head"] = np.where(_KIND == LAST, one.head, 0.0)
    if "launch" in parts:
        _hide_ends(parts, plans)
    parts["p2p"] = hop * np.where(end == _KIND, plans.interleave - 1, plans.interleave)
    return parts


def _hide_ends(parts: Parts, plans: PlanBatch) -> None:
    """Shortens embedding and head by the time that the GPU would wait for the launches of their chunk."""
    idle = np.maximum(_at_ends(parts["launch"], plans.interleave), 0.0)
    for end in ("embedding", "head"):
        hidden = np.minimum(parts[end], idle)
        parts[end] = parts[end] - hidden
        idle = np.where(plans.interleave == 1, idle - hidden, idle)


def _at_ends(stages: Array, chunks: Whole) -> Array:
    """Of seconds by kind of stage, (4, plans): those of the chunk that differs from the stage's others.

    All other chunks of all stages take as long as those of a middle stage.
    """
    return np.where(chunks == 1, stages, stages[HEAVY] / chunks + (stages - stages[HEAVY]))


def _first_chunk_s(workload: Workload, parts: Parts) -> Array:
    """Seconds of a pass through the first chunk of the first stage, (plans,), where buckets overlap it."""
    plans, column = workload.plans, np.arange(len(workload))
    if not plans.grad_overlap.any():
        return np.zeros(len(workload))
    first = np.where(plans.pp == 1, LAST, FIRST)
    chunk = _at_ends(_shared(parts), plans.interleave)[first, column] + parts["embedding"][first, column]
    return chunk + np.where(plans.interleave == 1, parts["head"][first, column], 0.0)


@dataclass(frozen=True)
class _Shards:
    """Seconds that a pass communicates under ZeRO-2 and -3, (4, plans): exposed, and hidden by work."""

    exposed: Array
    hidden: Array


def _shards_forward(workload: Workload, sharded: Sequence[Sharded], one: Pass) -> _Shards:
    """Of a forward pass under ZeRO-3: nothing hides the first layer's gather."""
    layers = workload.partition.layers
    if not workload.plans.scatters_gradients.any():
        return _Shards(np.zeros(layers.shape), np.zeros(layers.shape))
    counts, alone = layers, sharded[0].forward
    exposed = np.maximum(alone - _hidden_by(workload, one.layer), 0.0)
    moved = layers * alone
    if one.dense:  # and the first layer is one of these
        counts, gathered = workload.partition.dense, sharded[1].forward
        moved = (layers - counts) * alone + counts * gathered
        others = (layers - counts) * exposed
        exposed = np.maximum(gathered - _hidden_by(workload, one.dense), 0.0)
        exposed = np.where(counts > 0, others + (counts - 1) * exposed + gathered, 0.0)
    else:
        exposed = np.where(layers > 0, (layers - 1) * exposed + alone, 0.0)
    return _Shards(exposed + sharded[0].root_gather, moved - exposed)


def _shards_backward(workload: Workload, sharded: Sequence[Sharded], one: Pass) -> _Shards:
    """Of a backward pass under ZeRO-2 and -3."""
    layers = workload.partition.layers
    if not workload.plans.scatters_gradients.any():
        return _Shards(np.zeros(layers.shape), np.zeros(layers.shape))
    counts = [layers - workload.partition.dense, workload.partition.dense] if one.dense else [layers]
    exposed = moved = np.zeros(layers.shape)
    for count, moves, work in zip(counts, sharded, (one.layer, one.dense), strict=False):
        exposed = exposed + np.maximum(moves.backward - _hidden_by(workload, work), 0.0) * count
        moved = moved + count * moves.backward
    return _Shards(exposed, moved - exposed)


def _hidden_by(workload: Workload, layer: Parts) -> Array:
    """Seconds of communication that a layer's work hides: all of its work with `prefetch`, else none."""
    return np.where(workload.plans.prefetch, sum(layer.values(), np.zeros(len(workload))), 0.0)


def _hop_s(workload: Workload) -> Array:
    """Seconds that one activation costs on its way to the next stage.

    Each tensor-parallel rank sends its share, which is exposed in part. Then the next stage gathers the
    shares (Narayanan et al., SC'21, 4.1); nothing hides that, because its first kernel needs the whole
    activation. Where an NVLink domain holds several stages, only the share of boundaries between domains uses
    the NICs.
    """
    plans, system, profile = workload.plans, workload.system, workload.profile
    if (plans.pp == 1).all():
        return np.zeros(len(plans))
    per_stage, domain = plans.next_stage, system.domain_gpus
    across = np.where(per_stage * plans.pp > domain, np.minimum(per_stage / domain, 1.0), 0.0)
    nbytes = 2.0 * workload.tokens * workload.model.hidden / plans.tp
    sharers = np.stack([np.minimum(per_stage, domain), np.ones_like(per_stage)])
    stride = np.maximum(per_stage // domain, 1)
    outside, inside = p2p_s(nbytes, np.array([[True], [False]]), system, profile, sharers, stride)
    sent = system.site.p2p_exposure * (across * outside + (1 - across) * inside)
    gathers = (plans.tp > 1) & ~plans.sequence_parallel
    if gathers.any():
        local = ranks_together(plans.tp, domain, system)
        gathered = all_gather_s(nbytes * plans.tp, plans.tp, local, system, profile, domain // local)
        sent = sent + np.where(gathers, gathered, 0.0)
    return np.where(plans.pp > 1, sent, 0.0)


@dataclass(frozen=True)
class ChunkTimes:
    """Seconds of one micro-batch, (rows, stages, chunks): the passes, and what sending adds to each."""

    forward: Array
    backward: Array
    send_forward: Array
    send_backward: Array


def chunk_times(costs: StageCosts, rows: Whole, chunks: int) -> ChunkTimes:
    """Times of every stage of the plans at `rows`, each of `chunks` chunks per stage. Columns beyond a row's
    stages repeat its last one.
    """
    plans, kinds = costs.workload.plans, costs.workload.partition.kinds(rows)
    column = rows[:, None]

    def work(parts: Parts) -> Array:
        stages = _shared(parts)
        if chunks == 1:
            times = stages[kinds, column][:, :, None].copy()
        else:
            times = np.repeat((stages[HEAVY] / chunks)[column][:, :, None], kinds.shape[1], axis=1)
            times = np.repeat(times, chunks, axis=2)
            more = stages - stages[HEAVY]
            times[:, 0, 0] += more[FIRST, rows]
            times[:, :, -1] += np.where(kinds == FIRST, 0.0, more[kinds, column])
        times[:, :, 0] += parts["embedding"][kinds, column]
        times[:, :, -1] += parts["head"][kinds, column]
        return times

    def sends(hop: Array) -> Array:
        return np.zeros((*kinds.shape, chunks)) + (hop / chunks)[:, None, None]

    forward, backward = sends(costs.forward["p2p"][FIRST, rows]), sends(costs.backward["p2p"][LAST, rows])
    forward[np.arange(len(rows)), plans.pp[rows] - 1, -1] = 0.0
    backward[:, 0, 0] = 0.0
    return ChunkTimes(work(costs.forward), work(costs.backward), forward, backward)


def interleaved_passes(costs: StageCosts, rows: Whole) -> InterleavedPasses:
    """The passes of the plans at `rows`, whose middle stages must all have equally many layers."""
    chunks = costs.workload.plans.interleave[rows]
    hops = costs.forward["p2p"][FIRST, rows] / chunks, costs.backward["p2p"][LAST, rows] / chunks
    stages = [_shared(parts)[:, rows] for parts in (costs.forward, costs.backward)]
    forward, backward = (each[HEAVY] / chunks + hop for each, hop in zip(stages, hops, strict=True))
    first = [each[FIRST] - each[HEAVY] for each in stages]
    last = [each[LAST] - each[HEAVY] for each in stages]
    return InterleavedPasses(
        forward=forward,
        backward=backward,
        first_forward=first[0] + costs.forward["embedding"][FIRST, rows],
        first_backward=first[1] + costs.backward["embedding"][FIRST, rows] - hops[1],
        last_forward=last[0] + costs.forward["head"][LAST, rows] - hops[0],
        last_backward=last[1] + costs.backward["head"][LAST, rows],
    )


def _shared(parts: Parts) -> Array:
    """Seconds of a pass that the chunks of a stage share equally, (4, plans): not embedding, head, sends."""
    equal = [seconds for name, seconds in parts.items() if name not in ("embedding", "head", "p2p")]
    return sum(equal, np.zeros_like(parts["head"]))
