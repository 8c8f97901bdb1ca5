"""Seconds of a layer's matrix products with weights, in the plan's precision, and of the casts to it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from itertime.spec import PRECISIONS

from .partition import Workload

__all__ = ["Linear", "linear_s"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Linear:
    """Seconds on one micro-batch: the products of both passes, the last one forward, and the casts."""

    forward: Array
    backward: Array
    last_forward: Array
    casts_forward: Array
    casts_backward: Array


def linear_s(workload: Workload) -> Linear:
    """y = x w for every weight matrix; backward dx = dy w^T and dw = x^T dy.

    Below 16 bit, x is cast before the forward products, once for all matrices that read it, and dy before the
    backward ones (Micikevicius et al., FP8 Formats for Deep Learning, 2022; NVIDIA Transformer Engine).
    """
    framework, plans = workload.framework, workload.plans
    m, n, k, batch = _linear_gemms(workload)
    shapes = np.array([m, m, k]), np.array([n, k, n]), np.array([k, n, m]), batch
    multiplier = workload.gemm_factor
    nothing = np.zeros(len(plans))
    used = np.unique(plans.precision).tolist()
    times, casts = np.zeros((3, *m.shape)), np.zeros((2, len(plans)))
    for code in used:
        precision = PRECISIONS[code]
        found = multiplier * workload.profile.gemm_s(*shapes, precision=precision)
        if precision != "bf16":
            found = found * framework.fp8_multiplier
            read = m * k * batch
            read[_same_input(workload)] = 0.0
            forward = workload.profile.cast_s(read, precision).sum(axis=0)
            backward = workload.profile.cast_s(m * n * batch, precision).sum(axis=0)
            found_casts = framework.cast_multiplier * np.array([forward, backward])
            casts = np.where(plans.precision == code, found_casts, casts)
        times = found if len(used) == 1 else np.where(plans.precision == code, found, times)
    forward, data, weight = times.sum(axis=1)
    last = times[0, -1]
    if workload.model.lora_rank:  # frozen weights have no gradients
        small = multiplier * _low_rank_s(workload)
        forward, weight = forward + small[0], small[1] + small[2]
    casts = casts / workload.system.site.hbm_fraction
    return Linear(forward, data + weight, last, casts[0] + nothing, casts[1] + nothing)


def _low_rank_s(workload: Workload) -> Array:
    """Seconds of the low-rank products of a layer, (y dx dw, plans): B (A x) beside W x, all in 16 bit (LoRA,
    Hu et al. 2021). Tensor parallelism splits every A and B once, as Megatron-Bridge's adapters are split.
    """
    model, plans = workload.model, workload.plans
    tokens, t, rank = plans.tokens(model.seq_len), plans.tp, np.full(len(plans), float(model.lora_rank))
    shapes = []
    for narrow, wide in model.lora_shapes:
        shapes += [(tokens, rank, narrow / t), (tokens, wide / t, rank)]
    m, n, k = np.array(shapes).transpose(1, 0, 2)
    passes = np.array([m, m, k]), np.array([n, k, n]), np.array([k, n, m])
    return np.asarray(workload.profile.gemm_s(*passes).sum(axis=1))


def _same_input(workload: Workload) -> list[int]:
    """The matrices of `_linear_gemms` that read what the one before reads: queries' compression, the gate."""
    model = workload.model
    gate = 2 + len(_latent_gemms(workload)) if model.latent_kv else 3
    gated = model.gated_mlp and (model.experts == 1 or model.shared_ffn_hidden)
    return [1] * bool(model.latent_kv) + [gate] * bool(gated)


def _linear_gemms(workload: Workload) -> tuple[Array, Array, Array, Array]:
    """m, n, k and batch, (matrices, plans) each, on one rank: fused QKV, or those of compressed keys and
    values; projection; MLP up (two if gated), down. In a mixture the MLP is the one that every token passes.
    """
    model, plans = workload.model, workload.plans
    h, tp, tokens = model.hidden, plans.tp, plans.tokens(model.seq_len)
    wide = np.full(len(plans), float(h))
    projection = (tokens, wide, model.v_hidden / tp)
    if model.latent_kv:
        shapes = [*_latent_gemms(workload), projection]
    else:
        qkv = model.q_hidden / tp + 2 * model.kv_hidden / np.minimum(tp, model.kv_heads)
        shapes = [(tokens, qkv, wide), projection]
    ffn = model.shared_ffn_hidden if model.experts > 1 else model.ffn_hidden
    if ffn:
        f = ffn / tp
        shapes += [*[(tokens, f, wide)] * (2 if model.gated_mlp else 1), (tokens, wide, f)]
    m, n, k = np.array(shapes).transpose(1, 0, 2)
    return m, n, k, np.ones(m.shape)


def _latent_gemms(workload: Workload) -> list[tuple[Array, Array, Array]]:
    """m, n and k of what leads to queries, keys and values through latents (DeepSeek-V2, 2024, section 2.1).

    Every tensor-parallel rank compresses its share of the tokens under sequence parallelism, else all of them
    (Megatron Core's MLASelfAttention); the matrices that expand them are split by heads.
    """
    model, plans = workload.model, workload.plans
    tokens, tp, nothing = plans.tokens(model.seq_len), plans.tp, np.zeros(len(plans))
    own, wide = tokens / np.where(plans.sequence_parallel, tp, 1), nothing + model.hidden
    latent, queries = nothing + model.latent_kv, model.query_width / tp
    shapes = [(own, latent + model.rope_head_dim, wide)]
    if model.latent_q:
        compressed = nothing + model.latent_q
        shapes += [(own, compressed, wide), (tokens, queries, compressed)]
    else:
        shapes.append((tokens, queries, wide))
    return [*shapes, (tokens, (model.q_hidden + model.v_hidden) / tp, latent)]
