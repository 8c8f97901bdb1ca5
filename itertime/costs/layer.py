"""Seconds of one transformer layer on one micro-batch, forward and backward, by part; many plans together.

b sequences of s tokens, width h, MLP width f, a heads of d, tensor parallelism t. Everything is 16 bit. The
arithmetic follows Narayanan et al. (SC'21). The element-wise traffic follows Korthikanti et al. (2022),
section 4.1, read as bytes moved rather than kept.

The CPU issues kernels one by one, so a pass takes the longer of the GPU's time and `Site.launch_s` times the
number of kernels. The two times do not add up, because the CPU runs ahead of a GPU that has enough to do.
The kernels are those of this model: GEMMs, attention, memory-bound kernels, collectives. A framework that
fuses less issues more of them; a larger `launch_s` stands for the others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from itertime.spec import RECOMPUTE, ModelSpec, PlanBatch

from .parallel_comm import context_parallel_s, expert_parallel_s, tensor_parallel_s
from .partition import Workload

__all__ = ["LayerCosts", "Parts", "kernel_counts", "layer_costs"]

Array = NDArray[np.float64]
Whole = NDArray[np.int64]
Parts = dict[str, Array]
# Factor of batched GEMMs whose head dim is not a multiple of 8 (16 bytes). BigScience's runs with a head dim
# of 108 took 22 to 26 % longer than their neighbours (tr11 chronicles, bigscience-workshop), which is about
# this much of the attention's share.
UNALIGNED_SLOWDOWN = 6.0
_EARLY_STOP = RECOMPUTE.index("early-stop")


@dataclass(frozen=True)
class LayerCosts:
    """Seconds of one layer and micro-batch by part; "recompute" belongs to the backward pass.

    "launch" is the time that the GPU waits for the CPU's launches, absent where GEMMs alone take longer.
    """

    forward: Parts
    backward: Parts


def layer_costs(workload: Workload, reduced: Array) -> LayerCosts:
    """Costs of one layer under every plan; `reduced` is its `activation_all_reduce_s`."""
    model, plans, site = workload.model, workload.plans, workload.system.site
    gemm_forward, gemm_backward, last_gemm = _linear_s(workload)
    memory_forward, memory_backward, scores_forward = _memory_bound_s(workload)
    core_forward, core_backward = _core_attention_s(workload)
    forward = {
        "gemm": site.gemm_multiplier * gemm_forward,
        "attention": core_forward,
        "elementwise": memory_forward / site.hbm_fraction,
    }
    backward = {
        "gemm": site.gemm_multiplier * gemm_backward,
        "attention": core_backward,
        "elementwise": memory_backward / site.hbm_fraction,
    }
    forward["tp_comm"], backward["tp_comm"] = tensor_parallel_s(workload, reduced)
    if model.experts > 1:
        forward["ep_comm"] = backward["ep_comm"] = expert_parallel_s(workload)
    if model.attention != "core" and (plans.cp > 1).any():
        kernel = forward["attention"], backward["attention"]
        forward["cp_comm"], backward["cp_comm"] = context_parallel_s(workload, kernel)
    scores = scores_forward / site.hbm_fraction
    backward["recompute"] = _recompute_s(workload, forward, scores, last_gemm, reduced)
    _add_launches(workload, forward, backward)
    forward["overhead"] = np.full(len(plans), site.layer_overhead_s / 3)
    backward["overhead"] = np.full(len(plans), site.layer_overhead_s * 2 / 3)
    return LayerCosts(forward, backward)


def _recompute_s(
    workload: Workload, forward: Parts, scores: Array, last_gemm: Array, reduced: Array
) -> Array:
    """Seconds of the `forward` pass that the backward pass repeats; `scores`: memory-bound kernels of core
    attention.
    """
    plans, nothing = workload.plans, np.zeros(len(workload))
    if not plans.recompute.any():
        return nothing
    core = forward["attention"] + scores if workload.model.attention == "core" else nothing
    whole = needed = sum(forward.values(), nothing)
    if (plans.recompute == _EARLY_STOP).any():
        needed = whole - _ending_s(workload, last_gemm, reduced)
    seconds: Array = np.choose(plans.recompute, [nothing, core, whole, needed])
    return seconds


def _add_launches(workload: Workload, forward: Parts, backward: Parts) -> None:
    """Adds "launch" to both passes, unless the GEMMs alone always take longer than the launches."""
    launch_s = workload.system.site.launch_s
    issued = [launch_s * count for count in kernel_counts(workload.model, workload.plans)]
    both = list(zip((forward, backward), issued, strict=True))
    if any((cpu > parts["gemm"]).any() for parts, cpu in both):
        for parts, cpu in both:
            parts["launch"] = np.maximum(cpu - sum(parts.values(), np.zeros(len(workload))), 0.0)


def _ending_s(workload: Workload, last_gemm: Array, reduced: Array) -> Array:
    """Seconds of a layer's forward pass that recomputing with an early stop skips.

    The inputs of the MLP's last GEMM are the last tensors that the backward pass needs. So that GEMM is
    skipped, the sum of its result over the tensor-parallel ranks (under sequence parallelism the
    reduce-scatter, half of it), and the residual addition. In a mixture the gradients of the router need the
    experts' outputs, and those of a norm after the MLP need its input: the addition alone is skipped. With
    dropout nothing is: its mask is the last tensor that the backward pass needs, and one kernel makes the
    mask, drops and adds.
    """
    model, plans, site = workload.model, workload.plans, workload.system.site
    if model.dropout:
        return np.zeros(len(plans))
    residual = _residual(workload)
    seconds = workload.profile.elementwise_s(residual.forward, residual.kind) / site.hbm_fraction
    if _ends_in_gemm(model):
        summed = reduced * np.where(plans.sequence_parallel, 0.5, 1.0)
        seconds = seconds + site.gemm_multiplier * last_gemm + summed
    return seconds


def _ends_in_gemm(model: ModelSpec) -> bool:
    """Whether the MLP's output goes to the residual stream as its last GEMM leaves it."""
    return model.experts == 1 and model.norms_per_layer <= 2


def _linear_s(workload: Workload) -> tuple[Array, Array, Array]:
    """y = x w for every weight matrix; backward dx = dy w^T and dw = x^T dy; forward of the last alone."""
    m, n, k, batch = _linear_gemms(workload)
    times = workload.profile.gemm_s(np.array([m, m, k]), np.array([n, k, n]), np.array([k, n, m]), batch)
    forward, data, weight = times.sum(axis=1)
    return forward, data + weight, times[0, -1]


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


def _core_attention_s(workload: Workload) -> tuple[Array, Array]:
    """QK^T and scores x V as batched GEMMs (two forward, four backward), or the flash attention kernel.

    Under context parallelism a rank has the queries of two pieces, one from either end of the sequence, so
    that masks leave all ranks equally much to do (Llama 3, 2024, section 3.3.2).
    """
    model, plans, profile, site = workload.model, workload.plans, workload.profile, workload.system.site
    s, d = float(model.seq_len), float(model.head_width)
    heads = model.heads / plans.tp
    if model.attention != "core":
        kv_heads = np.maximum(model.kv_heads / plans.tp, 1.0)
        causal = not model.encoder
        factor = profile.attention_factor(model.attention, model.head_width, model.seq_len, causal)
        factor = site.attention_multiplier * factor
        arguments = (plans.micro_batch, heads, kv_heads, model.head_width, s / plans.cp, s, causal)
        return (
            factor * profile.attention_s(*arguments),
            factor * profile.attention_s(*arguments, backward=True),
        )
    batch = plans.micro_batch * heads
    n, k = np.array([[s], [d]]), np.array([[d], [s]])
    scores, context = profile.gemm_s(s, n, k, batch) * (UNALIGNED_SLOWDOWN if model.head_width % 8 else 1.0)
    # dV, dQ and dK have the shape of the context, dP that of the scores
    return site.gemm_multiplier * (scores + context), site.gemm_multiplier * (scores + 3 * context)


@dataclass(frozen=True)
class _Kernel:
    """One memory-bound kernel, or `count` equal ones: its kind in the profile, bytes forward and backward.

    `width` is that of the rows that it reduces; `of_scores`: it belongs to core attention.
    """

    kind: str
    forward: Array
    backward: Array
    count: int = 1
    of_scores: bool = False
    width: int | None = None


def _width(workload: Workload) -> Array:
    """Elements of a micro-batch between layers, on one rank."""
    model, plans = workload.model, workload.plans
    return plans.tokens(model.seq_len) * model.hidden / np.where(plans.sequence_parallel, plans.tp, 1.0)


def _residual(workload: Workload, count: int = 1) -> _Kernel:
    """The addition to the residual stream; with dropout, the same kernel makes the mask."""
    width = _width(workload)
    if workload.model.dropout:
        return _Kernel("dropout", 7 * width, 11 * width, count)
    return _Kernel("elementwise", 6 * width, 6 * width, count)


def _memory_bound_kernels(workload: Workload) -> list[_Kernel]:
    """Everything in a layer that only moves memory, with the bytes it reads and writes, 16 bit an element."""
    model, plans = workload.model, workload.plans
    t = 1.0 * plans.tp
    tokens = plans.tokens(model.seq_len)
    width = _width(workload)
    middle = tokens * (model.experts_per_token * model.ffn_hidden + model.shared_ffn_hidden) / t
    keys = tokens * model.kv_hidden / t
    queries = tokens * model.q_hidden / t
    nothing = np.zeros(len(plans))
    activation = _Kernel("gelu", 4 * middle, 6 * middle)
    if model.gated_mlp:
        activation = _Kernel("swiglu", 10 * middle, 16 * middle)
    norm = "rmsnorm" if model.norm == "rmsnorm" else "layernorm"
    parameters = workload.partition.shared + workload.partition.experts
    found = [
        _Kernel(norm, 4 * width, 6 * width, model.norms_per_layer, width=model.hidden),
        _residual(workload, 2),
        activation,
        # Joins the gradients of queries, keys and values.
        _Kernel("elementwise", nothing, 4 * (queries + 2 * keys)),
        _Kernel("elementwise", nothing, plans.accumulated * parameters),
    ]
    if model.positions == "rotary":
        found.append(_Kernel("rotary", 4 * (queries + keys), 4 * (queries + keys)))
    if model.attention == "core":
        scores = tokens * model.heads * model.seq_len / t
        # Into the batched GEMMs' layout and back.
        found.append(_Kernel("elementwise", 4 * queries, 8 * queries))
        found.append(_Kernel("softmax", 4 * scores, 6 * scores, of_scores=True, width=model.seq_len))
        if model.dropout:
            found.append(_Kernel("dropout", 5 * scores, 5 * scores, of_scores=True))
    if model.experts > 1:
        # A token's copies for its experts, and their weighted sum; the router's scores in 32 bit.
        moved = (2 + 2 * model.experts_per_token) * width
        found.append(_Kernel("elementwise", moved, moved, 2))
        found.append(_Kernel("softmax", 12.0 * tokens * model.experts, 12.0 * tokens * model.experts))
    if model.shared_ffn_hidden:
        found.append(_Kernel("elementwise", 6 * width, 4 * width))  # joins its output to the experts'
    return found


def _memory_bound_s(workload: Workload) -> tuple[Array, Array, Array]:
    """Seconds of the memory-bound kernels, forward and backward, and the forward part of core attention."""
    both = np.zeros((2, len(workload)))
    scores = np.zeros(len(workload))
    for kernel in _memory_bound_kernels(workload):
        seconds = kernel.count * workload.profile.elementwise_s(
            np.array([kernel.forward, kernel.backward]), kernel.kind, kernel.width
        )
        both += seconds
        if kernel.of_scores:
            scores += seconds[0]
    return both[0], both[1], scores


def kernel_counts(model: ModelSpec, plans: PlanBatch) -> tuple[Whole, Whole]:
    """Kernels of one layer and micro-batch, forward and backward; backward includes the recomputed ones.

    Forward: a GEMM for every matrix, two batched ones or the flash kernel, the norms, two residual additions,
    the activation, the position encoding, the copies and the softmax around core attention; two collectives
    of a tensor-parallel group, four under sequence parallelism. Backward: every GEMM twice, every other
    kernel once, the sum of every matrix's gradient, the joint gradient of queries, keys and values.
    """
    matrices = 5 if model.gated_mlp else 4
    around = model.norms_per_layer + (4 if model.positions == "rotary" else 3)
    core, core_back, repeated_core = 1, 1, 0
    if model.attention == "core":
        dropout = 1 if model.dropout else 0
        core, core_back = 5 + dropout, 8 + dropout  # two and four GEMMs, two copies, softmax
        repeated_core = core
    if model.experts > 1:
        matrices, around = matrices + 1, around + 3  # the router; its softmax, copies out and back
    if model.shared_ffn_hidden:
        matrices += 3 if model.gated_mlp else 2
        around += 2  # its activation, its addition
    gathered_again = np.where(plans.sequence_parallel & (plans.tp > 1), 2, 0)  # both inputs
    exchanged = _collectives(model, plans) + gathered_again
    once = matrices + around + core + exchanged
    early = once - _after_early_stop(model, plans)
    repeated = np.choose(plans.recompute, [0, repeated_core, once, early])
    back = 3 * matrices + around + 1 + core_back
    return once, back + exchanged + gathered_again + repeated


def _collectives(model: ModelSpec, plans: PlanBatch) -> Whole:
    """Collectives of one pass without sequence parallelism, counting each as one kernel."""
    count = np.where(plans.tp > 1, 2, 0)
    if model.experts > 1:
        count = count + np.where(plans.ep > 1, 2, 0)
    if model.attention != "core":
        steps = plans.cp - 1
        count = count + np.where(plans.cp_gather, np.minimum(steps, 1), steps)
    return count


def _after_early_stop(model: ModelSpec, plans: PlanBatch) -> Whole:
    """Kernels of a forward pass that recomputing with an early stop skips: the residual addition, the MLP's
    last GEMM and its collective (`_ending_s` says when).
    """
    if model.dropout:
        return np.zeros_like(plans.tp)
    if not _ends_in_gemm(model):
        return np.ones_like(plans.tp)
    return np.where(plans.tp > 1, 3, 2)
