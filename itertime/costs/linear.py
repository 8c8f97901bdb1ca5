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
    multiplier = workload.system.site.gemm_multiplier * framework.gemm_multiplier
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
    casts = casts / workload.system.site.hbm_fraction
    return Linear(forward, data + weight, times[0, -1], casts[0] + nothing, casts[1] + nothing)


def _same_input(workload: Workload) -> list[int]:
    """The matrices of `_linear_gemms` that read what the one before reads: the MLP's gate."""
    return [3] if workload.model.gated_mlp else []


def _linear_gemms(workload: Workload) -> tuple[Array, Array, Array, Array]:
    """m, n, k and batch, (matrices, plans) each, on one rank: fused QKV, projection, MLP up (two if gated),
    down. With experts the router too, every expert of the rank on its share of the tokens, and the shared
    expert on all of them.
    """
    model, plans = workload.model, workload.plans
    h, f, tp = model.hidden, model.ffn_hidden / plans.tp, plans.tp
    tokens = plans.tokens(model.seq_len)
    wide, one = np.full(len(plans), float(h)), np.ones(len(plans))
    routed, experts = tokens, one
    if model.experts > 1:
        experts = model.experts / plans.ep
        routed = np.maximum(tokens * model.experts_per_token / experts, 1.0)
    qkv = model.q_hidden / tp + 2 * model.kv_hidden / np.minimum(tp, model.kv_heads)
    up = [(routed, f, wide, experts)] * (2 if model.gated_mlp else 1)
    projection = (tokens, wide, model.q_hidden / tp, one)
    shapes = [(tokens, qkv, wide, one), projection, *up, (routed, wide, f, experts)]
    if model.shared_ffn_hidden:
        f = model.shared_ffn_hidden / tp
        shapes += [*[(tokens, f, wide, one)] * (2 if model.gated_mlp else 1), (tokens, wide, f, one)]
    if model.experts > 1:
        shapes.append((tokens, model.experts * one, wide, one))
    m, n, k, batch = np.array(shapes).transpose(1, 0, 2)
    return m, n, k, batch
