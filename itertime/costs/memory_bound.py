"""Seconds of what in a layer only moves memory: norms, activations, additions, positions, copies.

The traffic follows Korthikanti et al. (2022), section 4.1, read as bytes moved rather than kept. Everything
is 16 bit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .partition import Workload

__all__ = ["MemoryBound", "memory_bound_s", "residual_s"]

Array = NDArray[np.float64]

PASSES = np.array([[False], [True]])  # forward, backward: the rows of a kernel's bytes


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


@dataclass(frozen=True)
class MemoryBound:
    """Seconds of a layer's memory-bound kernels by pass, and the forward part of core attention."""

    forward: Array
    backward: Array
    scores: Array


def memory_bound_s(workload: Workload) -> MemoryBound:
    """The memory-bound kernels of one layer on one micro-batch, as the framework fuses them."""
    both = np.zeros((2, len(workload)))
    scores = np.zeros(len(workload))
    for kernel in _memory_bound_kernels(workload):
        seconds = kernel.count * _seconds(workload, kernel, np.array([kernel.forward, kernel.backward]))
        both += seconds
        if kernel.of_scores:
            scores += seconds[0]
    return MemoryBound(both[0], both[1], scores)


def residual_s(workload: Workload) -> Array:
    """Seconds of one addition to the residual stream, forward."""
    kernel = _residual(workload)
    return _seconds(workload, kernel, kernel.forward)


def _seconds(workload: Workload, kernel: _Kernel, nbytes: Array) -> Array:
    framework = workload.framework
    style = None if framework.elementwise == "profile" else framework.elementwise
    backward = PASSES if nbytes.ndim == 2 else False
    seconds = workload.profile.elementwise_s(nbytes, kernel.kind, kernel.width, style, backward)
    return framework.elementwise_multiplier * seconds / workload.system.site.hbm_fraction
