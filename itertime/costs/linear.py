"""Seconds of a layer's matrix products with weights, in the plan's precision, and of the casts to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from itertime.arrays import Array
from itertime.spec import IN_32_BIT, PRECISIONS, Cast, Gemm, ModelSpec
from itertime.spec.layers import mixer_shapes

from .kernel_times import KernelTimes
from .mixers import mixer_gemms
from .partition import Workload

Shape = tuple[Array, Array, Array]
# What a cast to a precision takes over one with a single output. Scales of blocks run along the depth of a
# product, so that operands are cast along their rows for one product and along their columns for another, in
# one kernel (Transformer Engine, `MXFP8Quantizer`): it reads 2 bytes an element and writes two copies.
_CAST_FACTOR = {"mxfp8": (2 + 2 * 1.03125) / (2 + 1.03125), "nvfp4": (2 + 2 * 0.5625) / (2 + 0.5625)}


@dataclass(frozen=True)
class Linear:
    """Seconds on one micro-batch: the products of both passes, the last one forward, and the casts.

    `by_matrix`: seconds of each product of the forward pass with its cast, (matrices, plans). `weight`: those
    of the backward pass that give gradients of weights.
    """

    forward: Array
    backward: Array
    last_forward: Array
    casts_forward: Array
    casts_backward: Array
    by_matrix: Array
    weight: Array

    def module_s(self, form: Workload, module: str) -> Array:
        """Seconds of the products of a module, forward."""
        mine = [name == module for name in matrix_modules(form.model)]
        return np.asarray(self.by_matrix[mine].sum(axis=0))


def linear_s(forms: Sequence[Workload]) -> list[Linear]:
    """y = x w for every weight matrix; backward dx = dy w^T and dw = x^T dy.

    `forms` are the same plans with different kinds of layers. The profile answers for all of them at once.

    Below 16 bit, x is cast before the forward products, once for all matrices that read it, and dy before the
    backward ones (Micikevicius et al., FP8 Formats for Deep Learning, 2022; NVIDIA Transformer Engine).
    """
    workload = forms[0]
    framework, plans, profile = workload.framework, workload.plans, workload.profile
    matrices = [linear_gemms(form) for form in forms]
    m, n, k = np.array([shape for form_matrices in matrices for shape in form_matrices]).transpose(1, 0, 2)
    multiplier = workload.gemm_factor
    codes = set(plans.precision.tolist())
    times, casts = np.zeros((3, *m.shape)), np.zeros((2, *m.shape))
    for code in codes:
        precision = PRECISIONS[code]
        seconds = multiplier * profile.seconds(Gemm.of_both_passes(m, n, k, precision))
        if precision not in ("bf16", *IN_32_BIT):
            seconds = seconds * framework.fp8_multiplier
            reads = np.concatenate([*map(_first_reads, forms, matrices)])
            cast_s = operand_casts_s(profile, np.array([m * k * reads[:, None], m * n]), precision)
            casts = cast_s if len(codes) == 1 else np.where(plans.precision == code, cast_s, casts)
        times = seconds if len(codes) == 1 else np.where(plans.precision == code, seconds, times)
    results, start = [], 0
    for form, form_matrices in zip(forms, matrices, strict=True):
        rows = slice(start, start + len(form_matrices))
        forward, data, weight = times[:, rows].sum(axis=1)
        of_weights = weight
        if form.model.weights_frozen:  # which have no gradients
            small = multiplier * _low_rank_s(form)
            forward, weight, of_weights = forward + small[0], small[1] + small[2], small[2]
        of_casts = framework.cast_multiplier / workload.system.site.hbm_fraction
        cast = framework.cast_multiplier * casts[:, rows].sum(axis=1) / workload.system.site.hbm_fraction
        by_matrix = times[0, rows]
        if plans.recomputed_modules:
            by_matrix = by_matrix + of_casts * casts[0, rows]
        results.append(
            Linear(forward, data + weight, times[0, rows][-1], cast[0], cast[1], by_matrix, of_weights)
        )
        start = rows.stop
    return results


def operand_casts_s(profile: KernelTimes, elements: Array, precision: str) -> Array:
    """Seconds to cast operands of so many elements, 16 bit, for the products of both passes."""
    return np.asarray(_CAST_FACTOR.get(precision, 1.0) * profile.seconds(Cast(elements, precision)))


def _low_rank_s(workload: Workload) -> Array:
    """Seconds of the low-rank products of a layer, (y dx dw, plans): B (A x) beside W x, all in 16 bit (LoRA,
    Hu et al. 2021). Tensor parallelism splits every A and B once, as Megatron-Bridge's adapters are split.
    """
    model, plans = workload.model, workload.plans
    if not model.lora_shapes:
        return np.zeros((3, len(plans)))
    tokens, t, rank = workload.tokens, plans.tp, np.full(len(plans), float(model.lora_rank))
    shapes = []
    for (narrow, wide), share in zip(model.lora_shapes, model.adapted_token_shares, strict=True):
        rows = share * tokens
        shapes += [(rows, rank, narrow / t), (rows, wide / t, rank)]
    m, n, k = np.array(shapes).transpose(1, 0, 2)
    return np.asarray(workload.profile.seconds(Gemm.of_both_passes(m, n, k)).sum(axis=1))


def _first_reads(workload: Workload, matrices: Sequence[Shape]) -> Array:
    """1 for each matrix of `linear_gemms`, 0 for those that read what the one before reads: queries'
    compression, the gate.
    """
    model, reads = workload.model, np.ones(len(matrices))
    if model.latent_kv and model.attends:
        reads[1] = 0.0
        if model.is_sparse:  # an indexer reads what queries and their compression do
            start = 4 if model.latent_q else 3
            reads[start : start + 2] = 0.0
    if model.gated_mlp and model.common_width:
        reads[-2] = 0.0
    return reads


def linear_gemms(workload: Workload) -> list[Shape]:
    """m, n and k of every matrix, (plans,) each, on one rank: fused QKV, or those of compressed keys and
    values, or of another mixer; projection; MLP up (two if gated), down. In a mixture the MLP is the one that
    every token passes.
    """
    model, plans = workload.model, workload.plans
    h, tp, tokens = model.hidden, plans.tp, workload.tokens
    wide = np.full(len(plans), float(h))
    projection = (tokens, wide, model.v_hidden / tp)
    if not model.attends:
        shapes = mixer_gemms(workload)
    elif model.latent_kv:
        shapes = [*_latent_gemms(workload), *_index_gemms(workload), projection]
    else:
        qkv = model.q_hidden / tp + 2 * model.kv_hidden / np.minimum(tp, model.kv_heads)
        if model.output_gate:
            qkv = qkv + model.v_hidden / tp
        shapes = [(tokens, qkv, wide), projection]
    if model.cross_attention:
        keys_values = 2 * model.kv_hidden / np.minimum(tp, model.kv_heads)
        queries = (tokens, model.q_hidden / tp, wide)
        shapes += [queries, (workload.cross_tokens, keys_values, wide), projection]
    if model.common_width:
        f = model.common_width / tp
        shapes += [*[(tokens, f, wide)] * (2 if model.gated_mlp else 1), (tokens, wide, f)]
    return shapes


def _index_gemms(workload: Workload) -> list[Shape]:
    """m, n and k of an indexer's matrices, whole on every rank: its key with the weights of its heads, and
    its queries (DeepSeek-V3.2, 2025, section 2.1).
    """
    model = workload.model
    if not model.is_sparse:
        return []
    nothing, queries = np.zeros(len(workload)), float(model.index_heads * model.index_head_dim)
    beside, reads = float(model.index_head_dim + model.index_heads), float(model.latent_q or model.hidden)
    return [
        (workload.tokens, nothing + beside, nothing + model.hidden),
        (workload.tokens, nothing + queries, nothing + reads),
    ]


def matrix_modules(model: ModelSpec) -> list[str]:
    """For each matrix of `linear_gemms` the module that repeats its product; "" for none."""
    attention = ["", ""]  # queries, keys and values; projection
    if not model.attends:
        attention = [""] * len(mixer_shapes(model))
    elif model.latent_kv:  # compressed keys and values, and queries; what expands them; projection
        indexer = ["", ""] if model.is_sparse else []
        attention = ["", *([""] if model.latent_q else []), "mla_up_proj", "mla_up_proj", *indexer, ""]
    attention += [""] * 3 * model.cross_attention  # queries; keys and values; projection
    if not model.common_width:
        return attention
    module = "shared_experts" if model.experts > 1 else "mlp"
    return [*attention, *[module] * (3 if model.gated_mlp else 2)]


def _latent_gemms(workload: Workload) -> list[Shape]:
    """m, n and k of what leads to queries, keys and values through latents (DeepSeek-V2, 2024, section 2.1).

    Every tensor-parallel rank compresses its share of the tokens under sequence parallelism, else all of them
    (Megatron Core's MLASelfAttention); the matrices that expand them are split by heads.
    """
    model, plans = workload.model, workload.plans
    tokens, tp, nothing = workload.tokens, plans.tp, np.zeros(len(plans))
    compressed_tokens, wide = tokens / workload.sequence_split, nothing + model.hidden
    latent, queries = nothing + model.latent_kv, model.query_width / tp
    shapes = [(compressed_tokens, latent + model.rope_head_dim, wide)]
    if model.latent_q:
        compressed = nothing + model.latent_q
        shapes += [(compressed_tokens, compressed, wide), (tokens, queries, compressed)]
    else:
        shapes.append((tokens, queries, wide))
    return [*shapes, (tokens, (model.q_hidden + model.v_hidden) / tp, latent)]
