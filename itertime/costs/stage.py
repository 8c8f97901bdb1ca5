"""Seconds of every kind of pipeline stage, and of what an iteration does once; many plans together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from itertime.arrays import Array, any_of
from itertime.schedule import FIRST, HEAVY, LAST, StageTimes, before_layers_s, divided_s, kind_column
from itertime.spec import PlanBatch

from .activation_copies import activation_copies_s
from .balance.imbalance import Spread, balance_s, spread_of
from .exchange import Exchange, Sharded, once_s, pass_kernels_s, sharded_s
from .layer import Parts
from .network import all_gather_s, p2p_s
from .parallel_comm import tensor_group
from .partition import Workload
from .passes import Pass, distinct_passes
from .towers import towers_s


@dataclass(frozen=True)
class StageCosts:
    """Seconds by part: `forward` and `backward` of one micro-batch, (4, plans), and what an iteration spends
    `once`, (plans,).

    The four rows are the kinds of stages (see `Partition`). "dp_comm" is the exposed part of `exchange`.
    Passes are those of the slowest data-parallel rank: "imbalance" is what it takes longer than the mean one,
    and `spread` how that varies from iteration to iteration; None where it does not. `ahead`: parts of
    `backward` that need no gradients (`StageTimes`). `weight`: seconds of a backward pass that give gradients
    of weights, of layers and head, where a schedule splits it. `shares`: as in `StageTimes`.
    """

    workload: Workload
    forward: Parts
    backward: Parts
    once: Parts
    exchange: Exchange
    spread: Spread | None = None
    ahead: tuple[str, ...] = ()
    weight: Parts | None = None
    shares: tuple[Array, Array] | None = None

    @property
    def stage_times(self) -> StageTimes:
        """What the time of the pipeline depends on."""
        stages, plans = self.workload.partition.stages, self.workload.plans
        return StageTimes(
            self.forward,
            self.backward,
            stages,
            plans.interleave,
            self.ahead,
            weight=self.weight,
            shares=self.shares,
        )


def stage_costs(workload: Workload) -> StageCosts:
    """All parts of an iteration's time; what remains is the order in which the stages run."""
    sharded = _sharded(workload)
    hop = _hop_s(workload)
    passes = distinct_passes(workload)
    forward_shards = _shards_forward(workload, sharded, passes.forward)
    backward_shards = _shards_backward(workload, sharded, passes.backward)
    forward = _stage_pass(workload, passes.forward, forward_shards, hop, LAST)
    backward = _stage_pass(workload, passes.backward, backward_shards, hop, FIRST)
    compression = pass_kernels_s(workload)
    if compression:
        forward["compression"], backward["compression"] = compression
    # The work of the slowest rank and the kernels on a bucket first fill what the GPU waits for launches.
    spread, first_chunk_wait = None, np.zeros(len(workload))
    if passes.growth or workload.plans.options.clipping == "bucket":
        idle = (
            _idle(workload, passes.forward, forward, forward_shards),
            _idle(workload, passes.backward, backward, backward_shards),
        )
        if passes.growth:
            spread = spread_of(workload, idle, passes.growth)
            forward["imbalance"], backward["imbalance"] = spread.excess
            idle = spread.idle
        first_chunk_wait = np.maximum(_of_first_chunk(workload, idle[1]), 0.0)
    # The passes are complete: what an iteration does once may overlap all of their parts.
    shares = _chunk_shares(workload, passes.forward), _chunk_shares(workload, passes.backward)
    first_chunk = _first_chunk_s(workload, forward, shares[0]), _first_chunk_s(workload, backward, shares[1])
    weight = _weights_s(workload, passes.backward)
    if weight is not None:  # the last pass of the first chunk gives gradients of weights alone
        splits = workload.plans.zero_bubble > 0
        first_chunk = first_chunk[0], np.where(splits, _first_chunk_s(workload, weight, None), first_chunk[1])
    once, gradient_exchange = once_s(workload, first_chunk, first_chunk_wait)
    # The last scatter is that of the first layer.
    once["fsdp_last"] = (
        sharded[workload.model.first_form].last_scatter if sharded else np.zeros(len(workload))
    )
    if spread is not None:
        once["balance"] = balance_s(workload, spread)
    of_chunks = (shares[0], shares[1]) if shares[0] is not None and shares[1] is not None else None
    return StageCosts(
        workload, forward, backward, once, gradient_exchange, spread, weight=weight, shares=of_chunks
    )


def _chunk_shares(workload: Workload, micro_batch: Pass) -> Array | None:
    """What each chunk takes of its stage's layers, (kinds, chunks, plans), where a plan lists the layers of
    several chunks a stage; equal parts of a stage without layers. None elsewhere.
    """
    of_chunks = workload.partition.of_chunks
    if of_chunks is None:
        return None
    chunk_s = np.zeros(of_chunks[0].shape)
    for counts, parts in zip(of_chunks, micro_batch.layers, strict=True):
        chunk_s = chunk_s + counts * sum(parts.values(), np.zeros(len(workload)))
    stage_s = chunk_s.sum(axis=1, keepdims=True)
    equal = 1 / of_chunks.shape[2]
    return np.where(stage_s > 0, chunk_s / np.where(stage_s > 0, stage_s, 1.0), equal)


def _weights_s(workload: Workload, micro_batch: Pass) -> Parts | None:
    """Seconds of a backward pass that give gradients of weights, (4, plans), by the names that say which
    chunk they belong to; None where no schedule splits it.
    """
    if not workload.plans.splits_backward or micro_batch.head_weight is None:
        return None
    counts, nothing = workload.partition.counts, np.zeros(workload.partition.layers.shape)
    layers = sum((count * each for count, each in zip(counts, micro_batch.weights, strict=True)), nothing)
    head = np.where(workload.has_head, micro_batch.head_weight, 0.0)
    return {"gemm": layers, "embedding": nothing, "head": head, "p2p": nothing}


def _sharded(workload: Workload) -> list[Sharded]:
    """What ZeRO-2 and ZeRO-3 move of a layer of each form; empty if no plan asks for it."""
    if not any_of(workload.plans.scatters_gradients):
        return []
    return [sharded_s(form) for form in workload.forms]


def _layers_s(workload: Workload, micro_batch: Pass) -> Parts:
    """Seconds by part of a pass through a stage's layers, (4, plans)."""
    counts, layers = workload.partition.counts, micro_batch.layers
    seconds_by_part = {part: counts[0] * seconds for part, seconds in layers[0].items()}
    for count, layer in zip(counts[1:], layers[1:], strict=True):
        for part, seconds in layer.items():
            seconds_by_part[part] = seconds_by_part.get(part, 0.0) + count * seconds
    return seconds_by_part


def _stage_pass(workload: Workload, micro_batch: Pass, shards: _Shards, hop: Array, end: int) -> Parts:
    """Seconds of a pass by part, (4, plans); the stage `end`, where the pass ends, sends one time fewer."""
    plans, layers, framework = workload.plans, workload.partition.layers, workload.framework
    parts = _layers_s(workload, micro_batch)
    if any_of(plans.offload_layers):
        work = sum(parts.values(), np.zeros(layers.shape))
        parts["offload_comm"] = activation_copies_s(workload) - work
    parts["fsdp_comm"] = shards.exposed
    if workload.contention:
        dispatch_contention = parts.get("contention", 0.0)  # of dispatch, in the layers
        parts["contention"] = dispatch_contention + workload.contention * shards.hidden
    if framework.pipeline_layer_s or framework.micro_batch_s:
        share = 1 / 3 if end == LAST else 2 / 3  # a backward pass has twice the products
        added = layers * framework.pipeline_layer_s + framework.micro_batch_s * plans.interleave
        parts["overhead"] = parts["overhead"] + np.where(plans.pp > 1, share * added, 0.0)
    if framework.crossing_layer_s or framework.crossing_layer_rank_s:
        parts["overhead"] = parts["overhead"] + _missing_to_floor(workload, parts, end)
    parts["embedding"] = np.where(workload.has_embedding, micro_batch.embedding, 0.0)
    if micro_batch.towers is not None:
        towers = towers_s(workload, micro_batch.towers, backward=end == FIRST)
        parts["towers"] = np.where(workload.has_embedding, towers, 0.0)
    parts["head"] = np.where(workload.has_head, micro_batch.head, 0.0)
    filled_waits = _hide_ends(parts, plans, shards) if "launch" in parts else 0.0
    if any_of(plans.offload_layers):  # a wait that an end of the model fills is no time of the layers
        parts["offload_comm"] = np.maximum(parts["offload_comm"] + filled_waits, 0.0)
    kinds = kind_column(len(layers))
    parts["p2p"] = hop * np.where(end == kinds, plans.interleave - 1, plans.interleave)
    if plans.splits_backward:  # both ends of a V keep an activation on their GPU, or have none to send
        at_end = (kinds == FIRST) | (kinds == LAST)
        parts["p2p"] = np.where(plans.v_shaped, hop * np.where(at_end, 1, 2), parts["p2p"])
    return parts


def _missing_to_floor(workload: Workload, parts: Parts, end: int) -> Array:
    """Seconds that the layers of a pass lack to the framework's least time, (4, plans), where a pipeline of
    tensor-parallel stages crosses NVLink domains.
    """
    plans, framework, layers = workload.plans, workload.framework, workload.partition.layers
    floor = framework.crossing_layer_s + framework.crossing_layer_rank_s * plans.tp
    share = 1 / 3 if end == LAST else 2 / 3  # a backward pass has twice the products
    crosses = (plans.tp > 1) & (plans.pp > 1) & (plans.next_stage * plans.pp > workload.system.domain_gpus)
    missing = share * floor * layers - sum(parts.values(), np.zeros(layers.shape))
    return np.where(crosses, np.maximum(missing, 0.0), 0.0)


def _hide_ends(parts: Parts, plans: PlanBatch, shards: _Shards) -> Array:
    """Shortens embedding and head by the time that the GPU would wait for the launches of their chunk, and
    for nothing else. Returns the seconds of these waits that they fill, (4, plans).
    """
    filled_waits = np.zeros(parts["launch"].shape)
    idle = np.maximum(_at_ends(parts["launch"] - shards.behind_launches, plans), 0.0)
    for end in ("embedding", "head"):
        hidden = np.minimum(parts[end], idle)
        parts[end] = parts[end] - hidden
        idle = np.where(plans.interleave == 1, idle - hidden, idle)
        filled_waits = filled_waits + hidden
    return filled_waits


def _idle(workload: Workload, micro_batch: Pass, parts: Parts, shards: _Shards) -> Array:
    """Seconds that the GPU waits for launches in a pass, (4, plans), beside those that its ends fill."""
    if "launch" not in parts:
        return np.zeros(workload.partition.layers.shape)
    embedding = np.where(workload.has_embedding, micro_batch.embedding, 0.0)
    ends = embedding + np.where(workload.has_head, micro_batch.head, 0.0)
    launch = parts["launch"] - shards.behind_launches
    return np.maximum(launch - (ends - parts["embedding"] - parts["head"]), 0.0)


def _at_ends(stages: Array, plans: PlanBatch) -> Array:
    """Of seconds by kind of stage, (4, plans): those of the chunk that differs from the stage's others.

    All other chunks of all stages take as long as those of a middle stage.
    """
    chunks = plans.interleave
    if plans.chunk_layers:  # chunks of listed sizes, on average
        return stages / chunks
    return np.where(chunks == 1, stages, stages[HEAVY] / chunks + (stages - stages[HEAVY]))


def _first_chunk_s(workload: Workload, parts: Parts, shares: Array | None) -> Array:
    """Seconds of a pass through the first chunk of the first stage, (plans,), where an exchange overlaps."""
    plans = workload.plans
    if not any_of(plans.grad_overlap) and workload.outer.outer != "dreamddp":
        return np.zeros(len(plans))
    column = np.arange(len(plans))
    kind = np.where(plans.pp == 1, LAST, FIRST)
    if shares is None:
        chunk = _of_first_chunk(workload, divided_s(parts))
    else:
        chunk = divided_s(parts)[FIRST] * shares[FIRST, 0]
    chunk = chunk + before_layers_s(parts)[kind, column]
    return chunk + np.where(plans.interleave == 1, parts["head"][kind, column], 0.0)


def _of_first_chunk(workload: Workload, stages: Array) -> Array:
    """Of seconds by kind of stage, (4, plans), those of the first chunk of the first stage, (plans,)."""
    plans = workload.plans
    kind = np.where(plans.pp == 1, LAST, FIRST)
    of_chunk: Array = _at_ends(stages, plans)[kind, np.arange(len(plans))]
    return of_chunk


@dataclass(frozen=True)
class _Shards:
    """Seconds that a pass communicates under ZeRO-2 and -3, (4, plans): exposed, hidden by work, and hidden
    by nothing but waits for launches, which the pass takes anyway.
    """

    exposed: Array
    hidden: Array
    behind_launches: Array

    @classmethod
    def of(cls, moved: Array, exposed: Array, beside_kernels: Array) -> _Shards:
        """`beside_kernels`: what the pass would expose if kernels alone hid it."""
        # Rounding may leave less than nothing.
        return cls(exposed, np.maximum(moved - exposed, 0.0), np.maximum(beside_kernels - exposed, 0.0))


def _shards_forward(workload: Workload, sharded: Sequence[Sharded], micro_batch: Pass) -> _Shards:
    """What a forward pass communicates under ZeRO-3. Nothing hides the gather of the first layer."""
    layers = workload.partition.layers
    if not sharded:
        nothing = np.zeros(layers.shape)
        return _Shards(nothing, nothing, nothing)
    counts = workload.partition.counts
    moved = sum(count * moves.forward for count, moves in zip(counts, sharded, strict=True))
    exposed, beside_kernels = (
        _exposed_forward(workload, sharded, form_work) for form_work in _work_of_forms(workload, micro_batch)
    )
    shards = _Shards.of(moved, exposed, beside_kernels)
    root_gather = sharded[0].root_gather
    if any_of(workload.plans.pp > 1):  # both ends of a pipeline have a table each
        at_ends = (kind_column(len(layers)) == FIRST) | (kind_column(len(layers)) == LAST)
        root_gather = np.where(at_ends, root_gather, 0.0)
    return replace(shards, exposed=exposed + root_gather)


def _exposed_forward(workload: Workload, sharded: Sequence[Sharded], work: Sequence[Array]) -> Array:
    """Seconds of a forward pass's gathers that the `work` of its layers, by their form, does not hide.

    Nothing hides the gather of the first layer of each chunk. Of a stage without layers of the form that the
    model's first layer has, it is one of the first form that the stage has.
    """
    counts, chunks = workload.partition.counts, workload.plans.interleave
    total, model_first = np.zeros(counts[0].shape), workload.model.first_form
    first = np.where(counts[model_first] > 0, model_first, (counts > 0).argmax(axis=0))
    for form, (moves, hiding) in enumerate(zip(sharded, work, strict=True)):
        count, exposed = counts[form], np.maximum(moves.forward - hiding, 0.0)
        alone = np.minimum(count, chunks)
        with_first = (count - alone) * exposed + alone * moves.forward
        total = total + np.where(first == form, with_first, count * exposed)
    return np.where(workload.partition.layers > 0, total, 0.0)


def _shards_backward(workload: Workload, sharded: Sequence[Sharded], micro_batch: Pass) -> _Shards:
    """What a backward pass communicates under ZeRO-2 and ZeRO-3."""
    layers = workload.partition.layers
    if not sharded:
        nothing = np.zeros(layers.shape)
        return _Shards(nothing, nothing, nothing)
    exposed = beside_kernels = moved = np.zeros(layers.shape)
    forms = zip(workload.partition.counts, sharded, *_work_of_forms(workload, micro_batch), strict=True)
    for count, moves, work, kernels in forms:
        exposed = exposed + np.maximum(moves.backward - work, 0.0) * count
        beside_kernels = beside_kernels + np.maximum(moves.backward - kernels, 0.0) * count
        moved = moved + count * moves.backward
    return _Shards.of(moved, exposed, beside_kernels)


def _work_of_forms(workload: Workload, micro_batch: Pass) -> tuple[list[Array], list[Array]]:
    """Seconds of communication that each form of a layer hides: all of its work with `prefetch`, else none.
    Then the same without its waits for launches.
    """
    forms = micro_batch.layers
    work = [_hidden_by(workload, form) for form in forms]
    if not any("launch" in form for form in forms):
        return work, work
    kernels = [{part: seconds for part, seconds in form.items() if part != "launch"} for form in forms]
    return work, [_hidden_by(workload, form) for form in kernels]


def _hidden_by(workload: Workload, layer: Parts) -> Array:
    return np.where(workload.prefetch, sum(layer.values(), np.zeros(len(workload))), 0.0)


def _hop_s(workload: Workload) -> Array:
    """Seconds that one activation costs on its way to the next stage.

    Each tensor-parallel rank sends its share, which is exposed in part. Then the next stage gathers the
    shares (Narayanan et al., SC'21, 4.1); nothing hides that, because its first kernel needs the whole
    activation. Where an NVLink domain holds several stages, only the share of boundaries between domains uses
    the NICs.
    """
    plans, system = workload.plans, workload.system
    if not any_of(plans.pp > 1):
        return np.zeros(len(plans))
    per_stage, domain = plans.next_stage, system.domain_gpus
    across = np.where(per_stage * plans.pp > domain, np.minimum(per_stage / domain, 1.0), 0.0)
    nbytes = 2.0 * plans.width * workload.tokens * workload.model.hidden / plans.tp
    if workload.model.has_encoder:  # its output travels with the decoder's
        nbytes = nbytes * (1 + workload.model.encoder_share)
    sharers = np.array([np.minimum(per_stage, domain), np.ones(len(plans), dtype=int)])
    stride = np.maximum(per_stage // domain, 1)
    between_domains, in_domain = p2p_s(nbytes, np.array([[True], [False]]), workload.fabric, sharers, stride)
    sent = system.site.p2p_exposure * (across * between_domains + (1 - across) * in_domain)
    gathers = (plans.tp > 1) & ~plans.sequence_parallel
    if any_of(gathers):
        gathered = all_gather_s(nbytes * plans.tp, tensor_group(workload), workload.fabric)
        sent = sent + np.where(gathers, gathered, 0.0)
    return np.where(plans.pp > 1, sent, 0.0)
