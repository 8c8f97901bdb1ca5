"""Bytes of GPU memory by part, and whether they fit.

Mixed precision: 16-bit weights and gradients (32-bit gradients where the plan says so), and per parameter 12
bytes of Adam with 32-bit master weights, divided over ZeRO's groups (Rajbhandari et al., ZeRO, SC'20, section
3.1); `state_bytes` has those of other optimizers. While the optimizer runs it holds its gradients in 32 bit;
the activations have been freed before. That moments and master weights have 32 bit is assumed of every
framework.

Workers of DiLoCo keep the weights of the last exchange and an outer momentum, 8 bytes. What they exchange
lies where the step had its 32-bit gradients.

Sums of gradients in 32 bit take 4 bytes where products add to them (Megatron Core, docs of the distributed
optimizer: 6 + 12/d bytes with weights). Frameworks that sum after the backward pass hold the 16-bit gradients
too (`Framework.gradient_copies`).

Below 16 bit, the casts of a layer's weights are kept from one micro-batch to the next, row-wise and
transposed (Transformer Engine, `is_first_microbatch`). With the distributed optimizer they replace the 16-bit
weights (`fp8_param_gather` of Megatron Core, which has no form for NVFP4). Of frozen weights one cast is kept
alone (`fp8_model_init`): 70 GB for 70 billion, with which MLPerf's LoRA runs on one H200. ZeRO-3 casts what
it gathers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

import numpy as np

from itertime.arrays import Array, Flags, Whole, any_of
from itertime.costs.balance import fullest
from itertime.costs.exchange import (
    adam_states_bytes,
    copies_of_states,
    error_bytes,
    expert_copies,
    outer_state_bytes,
    secondary_bytes,
    state_bytes,
)
from itertime.costs.partition import Workload, kinds_of
from itertime.errors import UserError
from itertime.schedule import FIRST, HEAVY, LAST
from itertime.spec import PRECISIONS, PlanBatch

from .activations import activations_of, element_bytes
from .overheads import OVERHEADS, buffers_bytes, fragmented_bytes
from .towers import kept_of_towers

MEMORY_HEADROOM = 0.07
"""The share of a GPU's memory that plans leave free by default; docs/itertime.md has the evidence for it."""


@dataclass(frozen=True)
class Memory:
    """Bytes on the fullest GPU of each plan: the parts and their sum, (plans,) each.

    `capacity`: bytes of the GPU. `headroom`: the share of them that a plan must leave free to fit.
    `on_cpu`: bytes that the GPU keeps in its node's memory, of which it has `cpu_share`; None where the
    system does not state that memory.
    """

    parts: dict[str, Array]
    total: Array
    capacity: float
    headroom: float = 0.0
    on_cpu: Array | None = None
    cpu_share: float = inf

    @property
    def allocated(self) -> Array:
        """Bytes of the tensors alone, (plans,), as `torch.cuda.max_memory_allocated` counts them."""
        return self.total - sum(self.parts[name] for name in OVERHEADS)

    @property
    def limit(self) -> float:
        """The most bytes that a plan may need."""
        return (1 - self.headroom) * self.capacity

    @property
    def fits(self) -> Flags:
        fits = self.total <= self.limit
        return fits if self.on_cpu is None else fits & (self.on_cpu <= self.cpu_share)


def checked_headroom(headroom: float) -> float:
    """`headroom`, a share of the memory. Raises UserError unless it is at least 0 and below 1."""
    if not 0 <= headroom < 1:
        raise UserError(
            f"memory_headroom={headroom}: must be a share of the GPU's memory, at least 0 and below 1"
        )
    return headroom


_THREE_KINDS = np.array([FIRST, HEAVY, LAST])


def _fullest_kinds(plans: PlanBatch) -> Whole:
    """The kinds of stages that may be the fullest: the first, the second and the last; all where plans list
    the layers of stages.
    """
    if not plans.chunk_layers:
        return _THREE_KINDS
    return np.array([*range(kinds_of(plans) - 1), LAST])


def memory(workload: Workload, headroom: float = MEMORY_HEADROOM) -> Memory:
    """Memory of the fullest stage: the first (most in flight), the second, or the last (logits).

    A plan fits if it leaves `headroom`, a share of the GPU's memory, free.
    """
    site, partition = workload.system.site, workload.partition
    stages = _parts(_at_its_fullest(workload))
    present = partition.stages.take(_fullest_kinds(workload.plans), axis=0) > 0
    totals = np.where(present, sum(stages.values(), np.zeros(len(workload))), -1.0)
    fullest, column = totals.argmax(axis=0), np.arange(len(workload))
    parts = {name: value[fullest, column] for name, value in stages.items()}
    parts["buffers"] = buffers_bytes(workload)
    parts["fragmentation"] = fragmented_bytes(parts)
    assumed_bytes = sum(parts.values(), np.zeros(len(workload)))
    parts["site"] = (site.memory_multiplier - 1) * assumed_bytes + site.memory_overhead_bytes
    fullest_stage = Memory(
        parts, assumed_bytes + parts["site"], workload.profile.memory_bytes, checked_headroom(headroom)
    )
    system = workload.system
    if system.cpu_memory_bytes is None:
        return fullest_stage
    return replace(
        fullest_stage, on_cpu=_on_cpu(workload), cpu_share=system.cpu_memory_bytes / system.gpus_per_node
    )


def _on_cpu(workload: Workload) -> Array:
    """Bytes that the fullest GPU of each plan keeps in the memory of its CPU: states and gradients of an
    offloaded optimizer (Ren et al., ZeRO-Offload, 2021, section 4), and activations of offloaded layers.
    """
    model, plans = workload.model, workload.plans
    _, shared, experts = _parameters(workload)
    kinds = _fullest_kinds(plans)
    if model.trains_part:
        shared, experts = _trained(workload)
    state = state_bytes(model, plans.options) + np.where(plans.fp32_gradients | plans.in_32_bit, 4.0, 2.0)
    owned = _owned(workload, shared, experts, plans.optimizer_shards)
    layers = np.minimum(plans.offload_layers, workload.partition.layers.take(kinds, axis=0))
    activations = layers * activations_of(workload).kept * _in_flight(plans)
    fullest_bytes: Array = (np.where(plans.offload_optimizer, state, 0.0) * owned + activations).max(axis=0)
    return fullest_bytes


def _parameters(workload: Workload) -> tuple[Array, Array, Array]:
    """Parameters of the first, the second and the last stage, (3, plans): those of their layers that all
    ranks have, these with the tables of the ends, and those of experts.
    """
    partition, kinds = workload.partition, _fullest_kinds(workload.plans)
    in_layers, experts = (parameters.take(kinds, axis=0) for parameters in partition.layer_parameters)
    if workload.plans.splits_backward:
        both_ways = workload.plans.both_ways
        in_layers, experts = _mirrored(in_layers, both_ways), _mirrored(experts, both_ways)
    return in_layers, in_layers + _ends(workload) + _of_front(workload, workload.partition.front), experts


def _of_front(workload: Workload, front: Array | None) -> Array | float:
    """What is in `front` of the layers of the first stage, of the first, the second and the last stage,
    (3, plans); 0 for nothing.
    """
    if front is None:
        return 0.0
    stages = np.zeros((len(_fullest_kinds(workload.plans)), len(workload)))
    stages[0], stages[-1] = front, np.where(workload.plans.pp == 1, front, 0.0)
    return stages


def _ends(workload: Workload, embedding: bool = True, head: bool = True) -> Array:
    """Parameters of the ends on the first, the second and the last stage, (3, plans): of the `embedding`, of
    the `head`, or of both. A tied embedding is on both ends of the pipeline.
    """
    partition, plans, model = workload.partition, workload.plans, workload.model
    ends = np.zeros((len(_fullest_kinds(plans)), len(workload)))
    if not (embedding or head):
        return ends
    of_first = of_last = partition.tables if embedding and head else partition.trained_tables
    if not (embedding and head):  # of untied ones
        of_last = np.where(plans.pp > 1, head * partition.table, of_last)
    ends[0], ends[-1] = embedding * partition.table, of_last + model.mtp_projection / plans.tp
    if plans.splits_backward:
        v_shaped, both_ways = plans.v_shaped, plans.both_ways
        ends[0] = np.where(v_shaped | both_ways, of_first, ends[0])
        ends[-1] = np.where(v_shaped, 0.0, ends[-1])
    return ends


def _trained(workload: Workload) -> tuple[Array, Array]:
    """Of `_parameters` those that have gradients: of layers and tables, and of experts, (3, plans)."""
    model, plans, partition = workload.model, workload.plans, workload.partition
    shared, experts = (
        parameters.take(_fullest_kinds(plans), axis=0) for parameters in partition.trained_parameters(model)
    )
    if plans.splits_backward:
        shared, experts = _mirrored(shared, plans.both_ways), _mirrored(experts, plans.both_ways)
    ends = _ends(workload, model.trains_embedding, model.trains_head)
    return shared + ends + _of_front(workload, partition.trained_front), experts


def _mirrored(stages: Array, both_ways: Flags) -> Array:
    """Of the first, the second and the last stage, (3, plans): with those of the mirror image on the same GPU
    where micro-batches enter at both ends; stages between the ends count as equal.
    """
    return np.where(both_ways, stages + stages[::-1], stages)


def _at_its_fullest(workload: Workload) -> Workload:
    """The workload with the fullest micro-batch of an iteration in place of the mean one."""
    if workload.lengths is None:
        return workload
    mean, domain = workload.micro_batch, workload.system.domain_gpus
    growth = fullest(workload.model, workload.plans, workload.lengths, mean, domain)
    return replace(workload, micro_batch=mean.scaled(growth, growth))


def _parts(workload: Workload) -> dict[str, Array]:
    """Bytes by part of the first, the second and the last stage, (3, plans)."""
    model, plans = workload.model, workload.plans
    weight = 2.0 * plans.width
    gathered: Array | float = 0.0
    if any_of(plans.gathers_weights):
        gathered = np.where(plans.gathers_weights, weight * _gathered(workload), 0.0)
    in_layers, shared, experts = _parameters(workload)
    casts = _casts(workload, in_layers + experts)
    narrow = 1 - model.frozen_bytes / 2  # share of 16 bit that frozen weights of a layer do not take
    gathered = gathered * (1 - narrow)
    weights = _owned(workload, shared - narrow * in_layers, (1 - narrow) * experts, plans.weight_shards)
    if model.trains_part:  # frozen weights have neither gradients nor states; low-rank ones are weights too
        shared, experts = _trained(workload)
        if model.lora_rank:
            weights = weights + _owned(workload, shared, experts, plans.weight_shards)
    optimizer, gradients = (
        _owned(workload, shared, experts, shards)
        for shards in (plans.optimizer_shards, plans.gradient_shards)
    )
    optimizer = optimizer / copies_of_states(plans)
    held, live = _activations(workload)
    stepped = np.where(plans.offload_optimizer, 0.0, optimizer)  # on the GPU
    summed = 6.0 if workload.framework.gradient_copies else 4.0
    outer = outer_state_bytes(workload.outer)
    logits = _logits_by_stage(workload)
    return {
        "weights": weight * weights + gathered + casts,
        "gradients": np.where(plans.in_32_bit, 4.0, np.where(plans.fp32_gradients, summed, 2.0)) * gradients,
        # In 32 bit the weights are their own master copy.
        "optimizer": (state_bytes(model, plans.options) - np.where(plans.in_32_bit, 4.0, 0.0)) * stepped
        + _adam_states(workload),
        **({"outer_optimizer": outer * stepped} if outer else {}),
        **_compression(workload, shared + experts),
        "activations": held + np.maximum(live - logits, 0.0),  # logits are gone when a layer is repeated
        "logits": logits,
        "optimizer_step": np.maximum(
            np.where(plans.in_32_bit | (not plans.options.master_weights), 0.0, 4.0)
            * _stepped_at_once(workload, stepped)
            - held
            - np.maximum(live, logits),
            0.0,
        ),
    }


def _stepped_at_once(workload: Workload, stepped: Array) -> Array:
    """Parameters of `stepped` whose 32-bit gradients exist at a time, (3, plans)."""
    group, plans = workload.framework.step_parameters, workload.plans
    if not group or not any_of(plans.gathers_weights):
        return stepped
    return np.where(plans.gathers_weights, np.minimum(stepped, group), stepped)


def _activations(workload: Workload) -> tuple[Array, Array]:
    """Bytes of activations that stages hold for their micro-batches in flight, and of a layer that is
    recomputed or copied, (3, plans) each.

    Where a share of the layers is recomputed, these are the first ones of a stage (Megatron-LM,
    `recompute_method=block`): what the later ones kept has been freed before the first is computed again.
    """
    plans, partition = workload.plans, workload.partition
    kinds = _fullest_kinds(plans)
    layers = partition.layers.take(kinds, axis=0)
    activations, *of_other_forms = (activations_of(form) for form in workload.forms)
    counts = partition.counts.take(kinds, axis=1)
    kept_by_stage = activations.kept * counts[0]
    if workload.model.has_encoder:
        kept_by_stage = kept_by_stage + _outputs_of_sides(workload, counts) - activations.given
    live = np.where(counts[0] > 0, activations.live, 0.0)  # the last stage may have the head alone
    for of_form, count in zip(of_other_forms, counts[1:], strict=True):
        kept_by_stage = kept_by_stage + of_form.kept * count
        live = np.where(count > 0, np.maximum(live, of_form.live), live)
    if any_of(plans.recompute_permille < 1000):
        forms = zip(counts, (activations, *of_other_forms), strict=True)
        live = np.maximum(live - sum(count * of_form.plain for count, of_form in forms), 0.0)
    if workload.model.towers:
        of_towers = [_of_front(workload, nbytes) for nbytes in kept_of_towers(workload)]
        kept_by_stage, live = kept_by_stage + of_towers[0], np.maximum(live, of_towers[1])
    if any_of(plans.offload_layers):
        mean_layer = kept_by_stage / np.maximum(layers, 1)
        kept_by_stage = kept_by_stage - np.minimum(plans.offload_layers, layers) * mean_layer
        live = live + np.where(plans.offload_layers > 0, mean_layer, 0.0)  # of the layer being copied
    if plans.splits_backward:  # half of the micro-batches are those of the mirror image
        kept_by_stage = np.where(
            plans.both_ways, _mirrored(kept_by_stage, plans.both_ways) / 2, kept_by_stage
        )
        live = np.where(plans.both_ways, np.maximum(live, live[::-1]), live)
    return (kept_by_stage + activations.given) * _in_flight(plans), live


def _outputs_of_sides(workload: Workload, counts: Whole) -> Array:
    """Bytes of what the last layer of a stage gives, (3, plans): on stages of the decoder also the output of
    the encoder, of which all layers compute keys and values.
    """
    crosses = np.array([form.cross_attention for form in workload.model.forms])
    of_decoder = (
        2.0 * workload.plans.width * workload.tokens * workload.model.hidden / workload.sequence_split
    )
    of_encoder = workload.model.encoder_share * of_decoder
    return of_encoder + np.where(counts[crosses].sum(axis=0) > 0, of_decoder, 0.0)


def _logits_by_stage(workload: Workload) -> Array:
    """Bytes of the logits on each stage, (3, plans)."""
    plans = workload.plans
    logits = np.zeros((len(_fullest_kinds(plans)), len(workload)))
    logits[-1] = _logits(workload)
    if plans.splits_backward:  # the projection lies on the first GPU, or on those at both ends
        logits[0] = np.where(plans.v_shaped | plans.both_ways, logits[-1], logits[0])
        logits[-1] = np.where(plans.v_shaped, 0.0, logits[-1])
    return logits


def _logits(workload: Workload) -> Array:
    """Bytes of the logits on the last stage, (plans,): in place, or `Framework.logit_bytes` each.

    In chunks those of one exist. Each has left gradients of its hidden states and of the projection, which
    are computed in the forward pass (Hsu et al., Liger Kernel, 2024, section 3.2). Its chunks have as many
    tokens as keep the logits about as large as the hidden states: a power of two.
    """
    model, plans = workload.model, workload.plans
    tokens, columns = workload.micro_batch.real * model.predicted_share, workload.partition.vocab / plans.tp
    losses = 1 + model.mtp_layers
    per_logit = 2.0 if workload.fused_loss else workload.framework.logit_bytes
    by_framework = workload.fused_loss and workload.framework.linear_loss
    if plans.options.loss_chunks == 1 and not by_framework:
        return losses * tokens * columns * per_logit
    chunk = tokens / plans.options.loss_chunks
    if by_framework and plans.options.loss_chunks == 1:
        share = tokens / np.maximum(np.ceil(model.vocab / model.hidden), 1.0)
        chunk = np.minimum(2.0 ** np.ceil(np.log2(np.maximum(share, 1.0))), tokens)
    of_projection = 0.0 if not model.trains_head else columns * model.table_width
    gradients = 2.0 * plans.width * (tokens * model.hidden + of_projection)
    return np.asarray(losses * chunk * columns * per_logit + np.where(chunk < tokens, gradients, 0.0))


def _adam_states(workload: Workload) -> Array | float:
    """Bytes of states that Adam keeps beside Muon's, (3, plans); 0 under other optimizers."""
    plans, partition = workload.plans, workload.partition
    if plans.options.optimizer != "muon":
        return 0.0
    in_layers, with_ends, _ = _parameters(workload)
    counts = partition.weight_counts.take(_fullest_kinds(plans), axis=1)
    if plans.splits_backward:
        counts = np.where(plans.both_ways, counts + counts[:, ::-1], counts)
    shared, experts = adam_states_bytes(workload, counts, with_ends - in_layers)
    return _owned(workload, shared, experts, plans.optimizer_shards) / copies_of_states(plans)


def _gathered(workload: Workload) -> Array:
    """Parameters that ZeRO-3 gathers at a time on each stage, (3, plans): of a layer and the next one, and on
    the last stage the projection, which the loss leaves gathered for its backward pass.
    """
    layers = 2 * _largest_layer(workload)
    gathered = np.broadcast_to(layers, (len(_fullest_kinds(workload.plans)), len(workload))).copy()
    gathered[-1] += workload.partition.table
    return gathered


def _largest_layer(workload: Workload) -> Array:
    """Parameters on one GPU of a layer, (plans,); of several kinds of layers, of the largest."""
    if not workload.model.stack:
        return workload.shared_parameters + workload.expert_parameters
    return np.asarray((workload.partition.shared + workload.partition.experts).max(axis=0))


def _compression(workload: Workload, parameters: Array) -> dict[str, Array]:
    """Bytes of errors that were not sent and of a second copy of the weights, (3, plans); {} for neither."""
    options, parts = workload.plans.options, {}
    if options.compression != "none":
        parts["compression_errors"] = error_bytes(workload) * parameters
    if options.secondary_shards is not None:
        parts["secondary_weights"] = secondary_bytes(workload) * parameters
    return parts


def _casts(workload: Workload, parameters: Array) -> Array | float:
    """Bytes by which kept casts of the layers' `parameters` exceed what they replace, (3, plans)."""
    plans = workload.plans
    if not (workload.framework.keeps_casts and any_of(plans.below_16_bit)):
        return 0.0
    frozen = workload.model.weights_frozen
    if frozen:
        cast = element_bytes(workload) - 2.0
    else:
        replaced = plans.shards_optimizer & (plans.precision != PRECISIONS.index("nvfp4"))
        cast = 2 * element_bytes(workload) - np.where(replaced, 2.0, 0.0)
    return np.where(plans.below_16_bit & ~plans.gathers_weights, cast, 0.0) * parameters


def _owned(workload: Workload, shared: Array, experts: Array, shards: Whole) -> Array:
    """Parameters that a GPU keeps where `shards` data-parallel ranks share one copy."""
    if not workload.model.is_mixture:
        return shared / shards
    return shared / shards + experts / expert_copies(workload.plans, shards)


def _in_flight(plans: PlanBatch) -> Array:
    """Micro-batches whose activations a stage holds: all in GPipe, p - i in 1F1B (SC'21, section 2.2), and
    never more than there are.

    Interleaved, stage i runs the forward passes of 2 (p - i - 1) + (v - 1) p chunks before the first backward
    pass, and holds one more (Megatron-LM, `num_warmup_microbatches`). The first stage thus holds
    1 + (p - 1) / (p v) times as many as in 1F1B (Korthikanti et al. 2022, section 4.2.3).

    Schedules that split backward passes hold p on every stage, those of W that waits among them (Qi et al.
    2024, table 2), and p + 1 where micro-batches enter at both ends (DeepSeek-V3, table 2).
    """
    kinds, chunks = _fullest_kinds(plans)[:, None], plans.interleave
    position = np.where(kinds == LAST, plans.pp - 1, kinds)  # FIRST and HEAVY are 0 and 1
    later = plans.pp - position
    warmup = 2 * (later - 1) + (chunks - 1) * plans.pp
    wanted = np.where(chunks > 1, (warmup + 1) / chunks, later)
    in_flight = np.where(plans.gpipe, plans.microbatches, np.minimum(wanted, plans.microbatches))
    if not plans.splits_backward:
        return in_flight
    held = np.minimum(np.where(plans.both_ways, plans.pp + 1, plans.pp), plans.microbatches)
    return np.where(plans.zero_bubble > 0, held, in_flight)
