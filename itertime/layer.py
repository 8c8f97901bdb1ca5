"""Seconds of one transformer layer on one micro-batch, forward and backward, by part; many cases together.

b sequences of s tokens, width h, MLP width f, a heads of d, tensor parallelism t. Everything is 16 bit. The
arithmetic follows Narayanan et al. (SC'21), the element-wise traffic Korthikanti et al. (2022), section 4.1,
read as bytes moved, not kept.
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

__all__ = ["LayerCosts", "LayerWork", "activation_all_reduce_s", "layer_costs"]

Array = NDArray[np.float64]
Parts = dict[str, Array]
# FlashAttention-2 is about twice as fast as the first FlashAttention (Dao 2023, abstract).
FLASH1_SLOWDOWN = 2.0
# Of batched GEMMs whose head dim is not a multiple of 8 (16 bytes): BigScience's runs with a head dim of 108
# took 22 to 26 % longer than their neighbours (tr11 chronicles, bigscience-workshop), which is about this
# much of the attention's share.
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


def layer_costs(
    model: ModelSpec, work: LayerWork, reduced: Array, system: System, profile: Profile
) -> LayerCosts:
    """Costs of one layer for every case of `work`; `reduced` is its `activation_all_reduce_s`."""
    site = system.site
    gemm_forward, gemm_backward = _linear(model, work, profile)
    core_forward, core_backward = _core_attention(model, work, profile)
    memory_forward, memory_backward, scores_forward = _elementwise(model, work, profile)
    comm_forward, comm_backward, comm_recompute = _tensor_parallel(model, work, reduced, system, profile)
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


def _linear_gemms(
    model: ModelSpec, tp: NDArray[np.int64]
) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """(n, k) of the weight matrices on one rank: fused QKV, projection, MLP up (two if gated) and down."""
    h, f = model.hidden, model.ffn_hidden
    qkv = h / tp + 2 * model.kv_hidden / np.minimum(tp, model.kv_heads)
    wide = np.full_like(qkv, h)
    up = [(f / tp, wide)] * (2 if model.gated_mlp else 1)
    return [(qkv, wide), (wide, h / tp), *up, (wide, f / tp)]


def _linear(model: ModelSpec, work: LayerWork, profile: Profile) -> tuple[Array, Array]:
    """y = x w for every weight matrix; backward dx = dy w^T and dw = x^T dy."""
    rows = work.micro_batch * model.seq_len * 1.0
    shapes = _linear_gemms(model, work.tp)
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


def _kernels(model: ModelSpec, work: LayerWork) -> list[_Kernel]:
    """Everything in a layer that only moves memory, with the bytes it reads and writes, 16 bit an element."""
    t = 1.0 * work.tp
    tokens = 1.0 * work.micro_batch * model.seq_len
    width = tokens * model.hidden / np.where(work.sequence_parallel, t, 1.0)
    middle = tokens * model.ffn_hidden / t
    keys = tokens * model.kv_hidden / t
    queries = tokens * model.hidden / t
    nothing = np.zeros_like(tokens)
    # The residual addition, with dropout its mask too.
    added = _Kernel("elementwise", 6 * width, 6 * width, 2)
    if model.dropout:
        added = _Kernel("dropout", 7 * width, 11 * width, 2)
    activation = _Kernel("gelu", 4 * middle, 6 * middle)
    if model.gated_mlp:
        activation = _Kernel("swiglu", 10 * middle, 16 * middle)
    kernels = [
        _Kernel(
            "rmsnorm" if model.norm == "rmsnorm" else "layernorm", 4 * width, 6 * width, 2, width=model.hidden
        ),
        added,
        activation,
        # Joins the gradients of queries, keys and values.
        _Kernel("elementwise", nothing, 4 * (queries + 2 * keys)),
        _Kernel("elementwise", nothing, work.accumulated * model.layer_parameters / t),
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
    return kernels


def _elementwise(model: ModelSpec, work: LayerWork, profile: Profile) -> tuple[Array, Array, Array]:
    """Seconds of `_kernels`, forward and backward, and the forward part that belongs to the scores."""
    both = np.zeros((2, len(work.tp)))
    scores = np.zeros(len(work.tp))
    for kernel in _kernels(model, work):
        seconds = kernel.count * profile.elementwise_s(
            np.stack([kernel.forward, kernel.backward]), kernel.kind, kernel.width
        )
        both += seconds
        if kernel.of_scores:
            scores += seconds[0]
    return both[0], both[1], scores


def activation_all_reduce_s(model: ModelSpec, work: LayerWork, system: System, profile: Profile) -> Array:
    """Seconds to sum one micro-batch's activations, 2 s b h bytes, over the tensor-parallel ranks."""
    return all_reduce_s(
        _activation_bytes(model, work), work.tp, *_tensor_parallel_layout(work, system, profile)
    )


def _tensor_parallel(
    model: ModelSpec, work: LayerWork, reduced: Array, system: System, profile: Profile
) -> tuple[Array, Array, Array]:
    """Two all-reduces of the activations each way (Shoeybi et al. 2019), and two for a full recompute.

    Under sequence parallelism each is a reduce-scatter and an all-gather of the same volume, and the backward
    pass gathers both inputs once more (Korthikanti et al. 2022, section 4.2.2).
    """
    again = np.zeros_like(reduced)
    if work.sequence_parallel.any():
        layout = _tensor_parallel_layout(work, system, profile)
        gathered = all_gather_s(_activation_bytes(model, work), work.tp, *layout)
        again = np.where(work.sequence_parallel, gathered, 0.0)
    recompute = np.where(work.recompute == RECOMPUTE.index("full"), 2 * reduced, 0.0)
    return 2 * reduced, 2 * (reduced + again), recompute


def _activation_bytes(model: ModelSpec, work: LayerWork) -> Array:
    return 2.0 * model.seq_len * model.hidden * work.micro_batch.astype(float)


def _tensor_parallel_layout(
    work: LayerWork, system: System, profile: Profile
) -> tuple[NDArray[np.int64], System, Profile, NDArray[np.int64]]:
    """What a collective also needs: a group's ranks in one node, the groups that share the node's NICs."""
    local = np.minimum(work.tp, system.gpus_per_node)
    return local, system, profile, system.gpus_per_node // local
