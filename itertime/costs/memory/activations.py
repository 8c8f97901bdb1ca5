"""Bytes that a layer keeps for its backward pass, per micro-batch.

Korthikanti et al. (2022), section 4: s b h (10 + 24/t + 5 a s / h t) for a 4h GELU MLP with dropout, each
term written here for any shape.

Below 16 bit, Transformer Engine keeps the inputs of matrix products as cast, in place of 16 bit (its modules
save `inputmat` in the recipe's format). The attention kernel keeps its own output in 16 bit, so the input of
the projection is a second copy of that.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from itertime.arrays import Array
from itertime.costs.mixers import kept_bytes as kept_of_mixer
from itertime.costs.partition import Workload
from itertime.spec import PRECISIONS, ModelSpec, modules_of, op_shares, outer_modules

# An element and its share of the scales: blocks of 128 with a 32-bit scale (DeepSeek-V3, 2024, section 3.3),
# of 32 with 8 bit (OCP microscaling, 2023), of 16 with 8 bit (NVIDIA, NVFP4).
_BYTES = {
    "bf16": 2.0,
    "fp8": 1.0,
    "fp8_block": 1 + 4 / 128,
    "mxfp8": 1 + 1 / 32,
    "nvfp4": 0.5 + 1 / 16,
    "tf32": 4.0,
    "fp32": 4.0,
}
# Of an element that sequence parallelism gathers, while a layer runs backward: the input of a product and its
# gradient, the sum before it is scattered, and the gathered gradient of that, in 16 bit each.
_GATHERED_BYTES = 8.0
_BYTES_BY_CODE = np.array([_BYTES[name] for name in PRECISIONS])


@dataclass(frozen=True)
class Activations:
    """Bytes per micro-batch on one GPU, (plans,) each: what a layer keeps, what a layer holds while it is
    recomputed, and a layer's input. `plain`: what a layer of a stage keeps on average that is not recomputed,
    where only a share of its layers is.
    """

    kept: Array
    live: Array
    given: Array
    plain: Array


def element_bytes(workload: Workload) -> Array:
    """Bytes of one element of a tensor cast to the plan's precision, with its share of the scales."""
    return _BYTES_BY_CODE[workload.plans.precision]


def _cast_bytes(workload: Workload) -> Array:
    """Bytes of an input of a matrix product, before `PlanBatch.width` is applied."""
    return element_bytes(workload) / workload.plans.width


def activations_of(workload: Workload) -> Activations:
    """Full recompute keeps the layer's input, 2 s b h; selective drops the term in s^2; that of memory-bound
    kernels drops the outputs of norms and of the activation.

    Hugging Face's eager modules of models with RMS norms (`Framework.wide_core`, modeling_llama.py) keep 4
    bytes more of a score, the softmax in 32 bit beside its copy in 16; of a norm its input in 32 bit, and the
    normalised input in 16.
    """
    model, plans, framework = workload.model, workload.plans, workload.framework
    t, tokens = 1.0 * plans.tp, workload.tokens
    h, f = model.hidden, model.common_width
    shared = workload.sequence_split
    cast = _cast_bytes(workload) if framework.keeps_casts else 2.0  # of an input of a matrix product
    norms = 2.0 * (model.norms_per_layer - model.additions)  # the inputs of norms beyond the usual ones
    wide_core = framework.wide_core and model.attention == "core" and model.norm == "rmsnorm"
    if wide_core:  # inputs in 32 bit, and normalised in 16
        norms = norms + 4.0 * model.norms_per_layer
    # The inputs of the norms, their outputs (inputs of QKV and of the MLP), masks of dropout.
    products, kept = _kept_inputs(model, cast)
    outputs = (1 + products) * kept if model.additions == 2 else (products if model.mlp else 1) * kept
    masks = 2.0 if model.dropout else 0.0
    if model.cross_attention:
        outputs, masks = (2 + products) * kept, 1.5 * masks
    unsplit = tokens * (2.0 * model.additions + outputs + masks + norms) * h / shared
    if model.latent_kv and model.attends:
        latents = model.latent_q + model.latent_kv  # before and after their norms
        unsplit = unsplit + tokens * ((2 + kept) * latents + 2 * model.rope_head_dim) / shared
    gathered = tokens * h * (1 - 1 / shared)  # elements of a layer's input that sequence parallelism adds
    unsplit = unsplit + framework.kept_gathers * 2 * model.additions * gathered
    attention = 1.0 if plans.options.attention_precision == "fp8" else 2.0
    widths = attention * _attention_width(model)
    split = tokens * (widths + _projected(workload, cast) + _activated(workload) * f) / t
    if model.cross_attention:
        split = split + _of_cross_attention(workload, attention, _projected(workload, cast))
    split = split + tokens * products * kept * f / t
    if not model.attends:
        split = split + kept_of_mixer(workload)
    # Outputs of norms and of the activation.
    light = tokens * (outputs * h / shared + products * kept * f / t)
    if model.experts > 1:
        of_experts, of_activations = _of_experts(workload, products * kept)
        split, light = split + of_experts, light + of_activations
    scores = _scores(workload, wide_core)
    layer_input = tokens * 2 * h / shared
    layer_bytes = unsplit + split + scores
    choices = [layer_bytes, unsplit + split, layer_input, layer_input, layer_bytes - light]
    of_modules = _without_modules(workload, cast, scores, layer_bytes)
    kept_bytes = plans.by_recompute(choices, {code: layer_bytes - gone for code, gone in of_modules.items()})
    share = plans.recompute_permille / 1000
    kept_bytes = share * kept_bytes + (1 - share) * layer_bytes
    live = plans.by_recompute([np.zeros(len(plans)), scores, layer_bytes, layer_bytes, light], of_modules)
    live = live + _GATHERED_BYTES * gathered
    width = plans.width
    if not model.passes_back:
        kept_bytes = live = layer_bytes = np.zeros(len(plans))
    return Activations(
        width * kept_bytes, width * live, width * layer_input, width * (1 - share) * layer_bytes
    )


def _of_cross_attention(workload: Workload, attention: float, projected: Array | float) -> Array:
    """Bytes of attention to an encoder's output: queries, output and row sums of own tokens, keys and values
    of the encoder's. `attention`: bytes of an element.
    """
    model, t = workload.model, 1.0 * workload.plans.tp
    queries = workload.tokens * (2 * attention * model.q_hidden + projected + 4.0 * model.heads)
    return (queries + workload.cross_tokens * 2 * attention * model.kv_hidden) / t


def _of_experts(workload: Workload, input_bytes: Array | float) -> tuple[Array, Array]:
    """Bytes of an expert's input, of what its activation reads and writes, and the last of these alone. Its
    output, weighted there, is not kept. `input_bytes`: of an element that a product reads.
    """
    model, plans = workload.model, workload.plans
    copies = workload.tokens / workload.sequence_split * model.experts_per_token
    copies = copies * np.minimum(model.load_imbalance, 1.0 * plans.ep)
    wide = ((4 if model.gated_mlp else 2) + input_bytes) * model.ffn_hidden
    return copies * (input_bytes * model.hidden + wide), copies * input_bytes * model.ffn_hidden


def _kept_inputs(model: ModelSpec, cast: Array | float) -> tuple[int, Array | float]:
    """Whether an MLP keeps the inputs of its products, and bytes of an element of an input that is kept. They
    are for gradients of weights: beside frozen ones for low-rank matrices alone, in 16 bit.
    """
    if not model.weights_frozen:
        return 1, cast
    return int(model.lora_rank > 0 and model.lora_targets == "linear"), 2.0 if model.lora_rank else 0.0


def _scores(workload: Workload, wide_core: bool) -> Array:
    """Bytes that core attention keeps: of unfused attention the scores, of a kernel the sums of its rows; of
    sparse attention also the numbers of the picked keys, and the indexer's queries and key.
    """
    model, tokens, t = workload.model, workload.tokens, 1.0 * workload.plans.tp
    if model.attention == "core":
        per_score = (5.0 if model.dropout else 2.0) + (4.0 if wide_core else 0.0)
        return tokens * per_score * model.heads * workload.micro_batch.length / t
    sums = tokens * 4.0 * model.heads * model.attends / t
    if not (model.is_sparse and model.attends):
        return sums
    picked = 4.0 * np.minimum(float(model.index_keys), (workload.micro_batch.length + 1) / 2)
    return sums + tokens * (picked + 2.0 * (model.index_heads + 1) * model.index_head_dim)


def _attention_width(model: ModelSpec) -> int:
    """Elements per token of queries, keys, values and the attention's output, with its gate."""
    if not model.attends:
        return 0
    if model.is_sparse:  # queries and output as wide as compressed keys and values, and as they are elsewhere
        compressed = model.heads * (2 * model.latent_kv + model.rope_head_dim)
        return compressed + model.query_width + model.v_hidden
    if model.latent_kv:
        return model.query_width + model.key_width + 2 * model.v_hidden
    gate = 2 * model.v_hidden if model.output_gate else 0  # the gate, and the gated output
    return 2 * model.q_hidden + 2 * model.kv_hidden + gate


def _without_modules(
    workload: Workload, cast: Array | float, scores: Array, layer_bytes: Array
) -> dict[int, Array]:
    """Bytes of `layer_bytes` that a layer does not keep, by the code of the modules that a plan recomputes.

    Megatron Core drops the outputs of norms, up-projections and activations once the next module has read
    them, and keeps the input alone of an MLP, of a mixture, or of its shared experts.
    """
    model, plans = workload.model, workload.plans
    if not plans.recomputed_modules:
        return {}
    t, tokens, shared = 1.0 * plans.tp, workload.tokens, workload.sequence_split
    adapted, kept = _kept_inputs(model, cast)
    mlp = model.common_width
    attention = 1.0 if plans.options.attention_precision == "fp8" else 2.0
    dropped: dict[str, Array] = {
        "core_attn": scores if model.attention == "core" else np.zeros(len(plans)),
        "layernorm": tokens * (1 + adapted if model.additions == 2 else 1) * kept * model.hidden / shared,
    }
    if model.latent_kv and model.attends:
        expanded = model.query_width + (0 if model.is_sparse else model.key_width + model.v_hidden)
        dropped["mla_up_proj"] = tokens * attention * expanded / t
    of_mlp = tokens * (_activated(workload) + adapted * kept) * mlp / t
    dropped["mlp" if model.experts == 1 else "shared_experts"] = of_mlp
    if model.experts > 1:
        copies = tokens / shared * model.experts_per_token * np.minimum(model.load_imbalance, 1.0 * plans.ep)
        dropped["moe_act"] = copies * adapted * kept * model.ffn_hidden
        wide = (4 if model.gated_mlp else 2) * model.ffn_hidden
        dropped["moe"] = copies * (adapted * kept * model.hidden + wide) + dropped["moe_act"] + of_mlp
    if any("op" in modules_of(code) for code in plans.recomputed_modules):
        dropped["op"] = layer_bytes - _kept_by_operators(workload, scores)
    return {
        code: sum(
            (dropped[module] for module in outer_modules(code) if module in dropped),
            np.zeros(len(plans)),
        )
        for code in plans.recomputed_modules
    }


def _kept_by_operators(workload: Workload, scores: Array) -> Array:
    """Bytes that a layer keeps under torchtitan's checkpointing of operators, in 16 bit: its input, what the
    products of `op_shares` that are not repeated give, the attention's output, and what is reduced and
    scattered.
    """
    model, t = workload.model, 1.0 * workload.plans.tp
    keys, *_ = op_shares(model)
    split = (1 - keys) * (model.q_hidden + 2 * model.kv_hidden) + model.v_hidden + model.ffn_hidden
    scattered = np.where(workload.sequence_split > 1, 2.0, 0.0)  # after attention and MLP
    whole = (1 + scattered) * model.hidden / workload.sequence_split + model.hidden
    return np.asarray(2.0 * workload.tokens * (whole + split / t) + scores)


def _projected(workload: Workload, cast: Array | float) -> Array | float:
    """Bytes per token of a second form of the attention's output, as the projection reads it: below 16 bit
    its cast, beside an output in 16 bit. A frozen projection's low-rank product reads 16 bit, beside an
    output in 8 bit.
    """
    model, plans = workload.model, workload.plans
    in_8_bit = plans.options.attention_precision == "fp8"
    if not model.attends:
        return 0.0
    if model.weights_frozen:
        return 2.0 * model.v_hidden if in_8_bit and model.lora_rank else 0.0
    if in_8_bit or not workload.framework.keeps_casts:
        return 0.0
    return np.where(plans.below_16_bit, cast, 0.0) * model.v_hidden


def _activated(workload: Workload) -> float:
    """Bytes per element of an MLP's width that its activation keeps beside its result: its input; with a gate
    both factors, and the activated gate too where kernels are not fused.
    """
    model, fused = workload.model, workload.framework.elementwise in ("fused", "compiled")
    element = 1.0 if workload.plans.options.activation_inputs == "fp8" else 2.0
    if not model.gated_mlp:
        return element
    return 2 * element if fused else 2 * element + 2.0
