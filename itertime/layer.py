"""Seconds of one transformer layer on one micro-batch, forward and backward, by part; many cases together.

b sequences of s tokens, width h, MLP width f, a heads of d, tensor parallelism t. Everything is 16 bit. The
arithmetic follows Narayanan et al. (SC'21), the element-wise traffic Korthikanti et al. (2022), section 4.1,
read as bytes moved, not kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from itertime.launch import kernels
from itertime.layer_comm import context_parallel_s, expert_parallel_s, tensor_parallel_s
from itertime.model import ModelSpec
from itertime.plan import RECOMPUTE
from itertime.planbatch import PlanBatch
from itertime.profile import Profile
from itertime.stages import layer_shards
from itertime.system import System

__all__ = ["LayerCosts", "layer_costs"]

Array = NDArray[np.float64]
Parts = dict[str, Array]
# Of batched GEMMs whose head dim is not a multiple of 8 (16 bytes): BigScience's runs with a head dim of 108
# took 22 to 26 % longer than their neighbours (tr11 chronicles, bigscience-workshop), which is about this
# much of the attention's share.
UNALIGNED_SLOWDOWN = 6.0
_EARLY_STOP = RECOMPUTE.index("early-stop")


@dataclass(frozen=True)
class LayerCosts:
    """Seconds of one layer and micro-batch by part; "recompute" belongs to the backward pass.

    "launch" is what the GPU waits for the CPU (`itertime.launch`), left out where GEMMs alone take longer.
    """

    forward: Parts
    backward: Parts


def layer_costs(
    model: ModelSpec, plans: PlanBatch, reduced: Array, system: System, profile: Profile
) -> LayerCosts:
    """Costs of one layer under every plan; `reduced` is its `activation_all_reduce_s`."""
    site = system.site
    gemm_forward, gemm_backward, last_gemm = _linear(model, plans, profile)
    core_forward, core_backward = _core_attention(model, plans, profile)
    memory_forward, memory_backward, scores_forward = _elementwise(model, plans, profile)
    attention = site.gemm_multiplier
    if model.attention != "core":
        kernel = model.attention, model.head_dim, model.seq_len, not model.encoder
        attention = site.attention_multiplier * profile.attention_factor(*kernel)
    forward = {
        "gemm": site.gemm_multiplier * gemm_forward,
        "attention": attention * core_forward,
        "elementwise": memory_forward / site.hbm_fraction,
    }
    backward = {
        "gemm": site.gemm_multiplier * gemm_backward,
        "attention": attention * core_backward,
        "elementwise": memory_backward / site.hbm_fraction,
    }
    forward["tp_comm"], backward["tp_comm"] = tensor_parallel_s(model, plans, reduced, system, profile)
    if model.experts > 1:
        dispatched = expert_parallel_s(model, plans, system, profile)
        forward["ep_comm"], backward["ep_comm"] = dispatched, dispatched
    core = np.zeros(len(plans))
    if model.attention == "core":
        core = forward["attention"] + scores_forward / site.hbm_fraction
    elif (plans.cp > 1).any():
        passes = forward["attention"], backward["attention"]
        forward["cp_comm"], backward["cp_comm"] = context_parallel_s(model, plans, passes, system, profile)
    if plans.recompute.any():
        whole = sum(forward.values(), np.zeros(len(plans)))
        needed = whole
        if (plans.recompute == _EARLY_STOP).any():
            needed = whole - _ending_s(model, plans, last_gemm, reduced, system, profile)
        backward["recompute"] = np.choose(plans.recompute, [np.zeros(len(plans)), core, whole, needed])
    else:
        backward["recompute"] = np.zeros(len(plans))
    issued = [site.launch_s * count for count in kernels(model, plans)]
    both = forward, backward
    if any((cpu > parts["gemm"]).any() for parts, cpu in zip(both, issued, strict=True)):
        for parts, cpu in zip(both, issued, strict=True):
            parts["launch"] = np.maximum(cpu - sum(parts.values(), np.zeros(len(plans))), 0.0)
    forward["overhead"] = np.full(len(plans), site.layer_overhead_s / 3)
    backward["overhead"] = np.full(len(plans), site.layer_overhead_s * 2 / 3)
    return LayerCosts(forward, backward)


def _ending_s(
    model: ModelSpec, plans: PlanBatch, last_gemm: Array, reduced: Array, system: System, profile: Profile
) -> Array:
    """Seconds of a layer's forward pass that recomputing with an early stop does not come to: the MLP's last
    GEMM, whose inputs are the last tensors that backward needs, the sum of its result over the
    tensor-parallel ranks (half of it under sequence parallelism, a reduce-scatter), the residual addition.

    The gradients of a mixture's router need what its experts put out: there only the addition is spared.
    With dropout nothing is: its mask is the last tensor that backward needs, and one kernel makes it, drops
    and adds.
    """
    if model.dropout:
        return np.zeros(len(plans))
    residual = _residual(model, plans)
    seconds = profile.elementwise_s(residual.forward, residual.kind) / system.site.hbm_fraction
    if model.experts == 1:
        summed = reduced * np.where(plans.sequence_parallel, 0.5, 1.0)
        seconds = seconds + system.site.gemm_multiplier * last_gemm + summed
    return seconds


def _linear(model: ModelSpec, plans: PlanBatch, profile: Profile) -> tuple[Array, Array, Array]:
    """y = x w for every weight matrix; backward dx = dy w^T and dw = x^T dy; forward of the last alone."""
    m, n, k, batch = _linear_gemms(model, plans)
    times = profile.gemm_s(np.array([m, m, k]), np.array([n, k, n]), np.array([k, n, m]), batch)
    forward, data, weight = times.sum(axis=1)
    return forward, data + weight, times[0, -1]


def _linear_gemms(model: ModelSpec, plans: PlanBatch) -> tuple[Array, Array, Array, Array]:
    """m, n, k and batch, (matrices, plans) each, on one rank: fused QKV, projection, MLP up (two if gated),
    down; with experts the router too, and every expert of the rank on its share of the tokens.
    """
    h, f, tp = model.hidden, model.ffn_hidden / plans.tp, plans.tp
    tokens = plans.tokens(model.seq_len)
    wide, one = np.full(len(plans), float(h)), np.ones(len(plans))
    routed, experts = tokens, one
    if model.experts > 1:
        experts = model.experts / plans.ep
        routed = np.maximum(tokens * model.experts_per_token / experts, 1.0)
    qkv = h / tp + 2 * model.kv_hidden / np.minimum(tp, model.kv_heads)
    up = [(routed, f, wide, experts)] * (2 if model.gated_mlp else 1)
    shapes = [(tokens, qkv, wide, one), (tokens, wide, h / tp, one), *up, (routed, wide, f, experts)]
    if model.experts > 1:
        shapes.append((tokens, model.experts * one, wide, one))
    m, n, k, batch = np.array(shapes).transpose(1, 0, 2)
    return m, n, k, batch


def _core_attention(model: ModelSpec, plans: PlanBatch, profile: Profile) -> tuple[Array, Array]:
    """QK^T and scores x V as batched GEMMs (two forward, four backward), or the flash attention kernel.

    Under context parallelism a rank has the queries of two pieces, one from either end of the sequence, so
    that masks leave all ranks equally much to do (Llama 3, 2024, section 3.3.2).
    """
    s, d = float(model.seq_len), float(model.head_dim)
    heads = model.heads / plans.tp
    if model.attention != "core":
        kv_heads = np.maximum(model.kv_heads / plans.tp, 1.0)
        sequences = s / plans.cp, s
        arguments = (plans.micro_batch, heads, kv_heads, model.head_dim, *sequences, not model.encoder)
        return profile.attention_s(*arguments), profile.attention_s(*arguments, backward=True)
    batch = plans.micro_batch * heads
    n, k = np.array([[s], [d]]), np.array([[d], [s]])
    scores, context = profile.gemm_s(s, n, k, batch) * (UNALIGNED_SLOWDOWN if model.head_dim % 8 else 1.0)
    # dV, dQ and dK have the shape of the context, dP that of the scores
    return scores + context, scores + 3 * context


@dataclass(frozen=True)
class _Kernel:
    """One memory-bound kernel (or `count` alike): its kind in the profile, bytes forward and backward, and
    the width of the rows that it reduces.
    """

    kind: str
    forward: Array
    backward: Array
    count: int = 1
    of_scores: bool = False
    width: int | None = None


def _width(model: ModelSpec, plans: PlanBatch) -> Array:
    """Elements of a micro-batch between layers, on one rank."""
    return plans.tokens(model.seq_len) * model.hidden / np.where(plans.sequence_parallel, plans.tp, 1.0)


def _residual(model: ModelSpec, plans: PlanBatch, count: int = 1) -> _Kernel:
    """The addition to the residual stream, with dropout its mask too."""
    width = _width(model, plans)
    if model.dropout:
        return _Kernel("dropout", 7 * width, 11 * width, count)
    return _Kernel("elementwise", 6 * width, 6 * width, count)


def _kernels(model: ModelSpec, plans: PlanBatch) -> list[_Kernel]:
    """Everything in a layer that only moves memory, with the bytes it reads and writes, 16 bit an element."""
    t = 1.0 * plans.tp
    tokens = plans.tokens(model.seq_len)
    width = _width(model, plans)
    middle = tokens * model.experts_per_token * model.ffn_hidden / t
    keys = tokens * model.kv_hidden / t
    queries = tokens * model.hidden / t
    nothing = np.zeros(len(plans))
    activation = _Kernel("gelu", 4 * middle, 6 * middle)
    if model.gated_mlp:
        activation = _Kernel("swiglu", 10 * middle, 16 * middle)
    norm = "rmsnorm" if model.norm == "rmsnorm" else "layernorm"
    shared, experts = layer_shards(model, plans)
    kernels = [
        _Kernel(norm, 4 * width, 6 * width, 2, width=model.hidden),
        _residual(model, plans, 2),
        activation,
        # Joins the gradients of queries, keys and values.
        _Kernel("elementwise", nothing, 4 * (queries + 2 * keys)),
        _Kernel("elementwise", nothing, plans.accumulated * (shared + experts)),
    ]
    if model.positions == "rotary":
        kernels.append(_Kernel("rotary", 4 * (queries + keys), 4 * (queries + keys)))
    if model.attention == "core":
        scores = tokens * model.heads * model.seq_len / t
        # Into the batched GEMMs' layout and back.
        kernels.append(_Kernel("elementwise", 4 * queries, 8 * queries))
        kernels.append(_Kernel("softmax", 4 * scores, 6 * scores, of_scores=True, width=model.seq_len))
        if model.dropout:
            kernels.append(_Kernel("dropout", 5 * scores, 5 * scores, of_scores=True))
    if model.experts > 1:
        # A token's copies for its experts, and their weighted sum; the router's scores in 32 bit.
        moved = (2 + 2 * model.experts_per_token) * width
        kernels.append(_Kernel("elementwise", moved, moved, 2))
        kernels.append(_Kernel("softmax", 12.0 * tokens * model.experts, 12.0 * tokens * model.experts))
    return kernels


def _elementwise(model: ModelSpec, plans: PlanBatch, profile: Profile) -> tuple[Array, Array, Array]:
    """Seconds of `_kernels`, forward and backward, and the forward part that belongs to the scores."""
    both = np.zeros((2, len(plans)))
    scores = np.zeros(len(plans))
    for kernel in _kernels(model, plans):
        seconds = kernel.count * profile.elementwise_s(
            np.array([kernel.forward, kernel.backward]), kernel.kind, kernel.width
        )
        both += seconds
        if kernel.of_scores:
            scores += seconds[0]
    return both[0], both[1], scores
