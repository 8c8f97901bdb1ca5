"""Seconds of one transformer layer on one micro-batch, forward and backward, by part; all plans of a batch at once.

b sequences of s tokens, width h, MLP width f, a heads of d, tensor parallelism t. Everything is 16 bit. The arithmetic follows
Narayanan et al. (SC'21), the element-wise traffic Korthikanti et al. (2022), section 4.1, read as bytes moved, not kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from itertime.collectives import all_gather_s, all_reduce_s
from itertime.model import ModelSpec
from itertime.plan import RECOMPUTE
from itertime.profile import Profile
from itertime.system import System

__all__ = ["LayerCosts", "LayerWork", "layer_costs", "linear_gemms"]

Array = NDArray[np.float64]
Parts = dict[str, Array]
# FlashAttention-2 is about twice as fast as the first FlashAttention and its Triton form (Dao 2023, abstract).
FLASH1_SLOWDOWN = 2.0
# Of batched GEMMs whose head dim is not a multiple of 8 (16 bytes): BigScience's runs with a head dim of 108 took 22 to 26 %
# longer than their neighbours (tr11 chronicles, bigscience-workshop), which is about this much of the attention's share.
UNALIGNED_SLOWDOWN = 6.0


@dataclass(frozen=True)
class LayerWork:
    """What the cost of a layer depends on, one element per case; as the columns of PlanBatch."""

    tp: NDArray[np.int64]
    micro_batch: NDArray[np.int64]
    recompute: NDArray[np.int64]
    sequence_parallel: NDArray[np.bool_]
    fp32_gradients: NDArray[np.bool_]

    @property
    def accumulated(self) -> Array:
        """Bytes moved to add one gradient to its sum: read both, write the sum."""
        return np.where(self.fp32_gradients, 10.0, 6.0)


@dataclass(frozen=True)
class LayerCosts:
    """Seconds of one layer and micro-batch by part; "recompute" belongs to the backward pass."""

    forward: Parts
    backward: Parts


def layer_costs(model: ModelSpec, work: LayerWork, system: System, profile: Profile) -> LayerCosts:
    """Costs of one layer for every case of `work`."""
    site = system.site
    gemm_forward, gemm_backward = _linear(model, work, profile)
    core_forward, core_backward = _core_attention(model, work, profile)
    memory_forward, memory_backward, scores_forward = _elementwise(model, work, profile)
    comm_forward, comm_backward, comm_recompute = _tensor_parallel(model, work, system, profile)
    attention = {
        "core": site.gemm_multiplier,
        "flash": site.attention_multiplier,
        "flash1": site.attention_multiplier * FLASH1_SLOWDOWN,
    }[model.attention]
    forward = {
        "gemm": site.gemm_multiplier * gemm_forward,
        "attention": attention * core_forward,
        "elementwise": memory_forward / site.hbm_fraction,
        "tp_comm": comm_forward,
        "overhead": np.full_like(gemm_forward, site.layer_overhead_s / 3),
    }
    whole = forward["gemm"] + forward["attention"] + forward["elementwise"] + comm_recompute
    core = (
        forward["attention"] + scores_forward / site.hbm_fraction
        if model.attention == "core"
        else np.zeros_like(whole)
    )
    backward = {
        "gemm": site.gemm_multiplier * gemm_backward,
        "attention": attention * core_backward,
        "elementwise": memory_backward / site.hbm_fraction,
        "tp_comm": comm_backward,
        "overhead": np.full_like(gemm_forward, site.layer_overhead_s * 2 / 3),
        "recompute": np.choose(work.recompute, [np.zeros_like(whole), core, whole]),
    }
    return LayerCosts(forward, backward)


def linear_gemms(
    model: ModelSpec, tp: NDArray[np.int64]
) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """(n, k) of the layer's weight matrices on one tensor-parallel rank: fused QKV, projection, MLP up (twice if gated), down."""
    h, f = model.hidden, model.ffn_hidden
    qkv = h / tp + 2 * model.kv_hidden / np.minimum(tp, model.kv_heads)
    wide = np.full_like(qkv, h)
    up = [(f / tp, wide)] * (2 if model.gated_mlp else 1)
    return [(qkv, wide), (wide, h / tp), *up, (wide, f / tp)]


def _linear(model: ModelSpec, work: LayerWork, profile: Profile) -> tuple[Array, Array]:
    """y = x w for every weight matrix; backward dx = dy w^T and dw = x^T dy."""
    rows = work.micro_batch * model.seq_len * 1.0
    shapes = linear_gemms(model, work.tp)
    n, k = (np.stack(column) for column in zip(*shapes, strict=True))
    m = np.broadcast_to(rows, n.shape)
    times = profile.gemm_s(np.stack([m, m, k]), np.stack([n, k, n]), np.stack([k, n, m]))
    forward, data, weight = times.sum(axis=1)
    return forward, data + weight


def _core_attention(model: ModelSpec, work: LayerWork, profile: Profile) -> tuple[Array, Array]:
    """QK^T and scores x V as batched GEMMs (two forward, four backward), or the flash attention kernel."""
    s, d = float(model.seq_len), float(model.head_dim)
    heads = model.heads / work.tp
    if model.attention != "core":
        kv_heads = np.maximum(model.kv_heads / work.tp, 1.0)
        arguments = (
            work.micro_batch,
            heads,
            kv_heads,
            model.head_dim,
            model.seq_len,
            model.seq_len,
            not model.encoder,
        )
        return profile.attention_s(*arguments), profile.attention_s(*arguments, backward=True)
    batch = work.micro_batch * heads
    n, k = np.array([[s], [d]]), np.array([[d], [s]])
    scores, context = profile.gemm_s(s, n, k, batch) * (UNALIGNED_SLOWDOWN if model.head_dim % 8 else 1.0)
    return (
        scores + context,
        scores + 3 * context,
    )  # dV, dQ and dK have the shape of the context, dP that of the scores


def _elementwise(model: ModelSpec, work: LayerWork, profile: Profile) -> tuple[Array, Array, Array]:
    """Seconds of everything that only moves memory, forward and backward, and the forward part that belongs to the scores.

    Bytes per element, forward/backward: norm 4/6, residual addition 6/6 (with dropout and its mask 7/11), GELU 4/6, SwiGLU
    10/16, copies around unfused attention 4/8, joining the gradients of queries, keys and values 0/4, rotary 4/4, softmax 4/6,
    dropout of the scores 5/5.
    """
    b, t, s, h = work.micro_batch * 1.0, work.tp * 1.0, model.seq_len, model.hidden
    width = b * s * h / np.where(work.sequence_parallel, t, 1.0)
    seconds = profile.elementwise_s
    norm = "rmsnorm" if model.norm == "rmsnorm" else "layernorm"
    residual, residual_back = (7, 11) if model.dropout else (6, 6)
    forward = 2 * seconds(4 * width, norm) + 2 * seconds(
        residual * width, "dropout" if model.dropout else "elementwise"
    )
    backward = 2 * seconds(6 * width, norm) + 2 * seconds(
        residual_back * width, "dropout" if model.dropout else "elementwise"
    )
    act, up, down = ("swiglu", 10, 16) if model.gated_mlp else ("gelu", 4, 6)
    middle = b * s * model.ffn_hidden / t
    forward, backward = forward + seconds(up * middle, act), backward + seconds(down * middle, act)
    if model.positions == "rotary":
        turned = seconds(4 * b * s * (h + model.kv_hidden) / t, "rotary")
        forward, backward = forward + turned, backward + turned
    scores_forward = np.zeros_like(forward)
    if model.attention == "core":
        scores = b * model.heads * s * s / t
        scores_forward, scores_backward = seconds(4 * scores, "softmax"), seconds(6 * scores, "softmax")
        if model.dropout:
            masked = seconds(5 * scores, "dropout")
            scores_forward, scores_backward = scores_forward + masked, scores_backward + masked
        copies = b * s * h / t
        forward = forward + scores_forward + seconds(4 * copies)
        backward = backward + scores_backward + seconds(8 * copies)
    backward = backward + seconds(4 * b * s * (h + 2 * model.kv_hidden) / t)
    backward = backward + seconds(work.accumulated * model.layer_parameters / t)
    return forward, backward, scores_forward


def _tensor_parallel(
    model: ModelSpec, work: LayerWork, system: System, profile: Profile
) -> tuple[Array, Array, Array]:
    """Two all-reduces of the activations each way (Shoeybi et al. 2019), and two for a full recompute.

    Under sequence parallelism each is a reduce-scatter and an all-gather of the same volume, and the backward pass
    gathers both inputs once more (Korthikanti et al. 2022, section 4.2.2).
    """
    nbytes = 2.0 * work.micro_batch * model.seq_len * model.hidden
    local = np.minimum(work.tp, system.gpus_per_node)
    sharers = system.gpus_per_node // local
    once = all_reduce_s(nbytes, work.tp, local, system, profile, sharers)
    again = np.zeros_like(once)
    if work.sequence_parallel.any():
        gathered = all_gather_s(nbytes, work.tp, local, system, profile, sharers)
        again = np.where(work.sequence_parallel, gathered, 0.0)
    recompute = np.where(work.recompute == RECOMPUTE.index("full"), 2 * once, 0.0)
    return 2 * once, 2 * once + 2 * again, recompute
