"""Seconds of what in a layer only moves memory: norms, activations, additions, positions, copies.

The traffic follows Korthikanti et al. (2022), section 4.1, read as bytes moved rather than kept. Everything
is 16 bit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .partition import Workload

__all__ = ["Kernel", "MemoryBound", "memory_bound_s", "residual_s"]

Array = NDArray[np.float64]

PASSES = np.array([[False], [True]])  # forward, backward: the rows of a kernel's bytes


@dataclass(frozen=True)
class Kernel:
    """One memory-bound kernel, or `count` equal ones: its kind in the profile, bytes forward and backward.

    `width` is that of the rows that it reduces. `of_scores`: it belongs to core attention. `routes`: it
    brings tokens to experts or back.
    """

    kind: str
    forward: Array
    backward: Array
    count: int = 1
    of_scores: bool = False
    width: int | None = None
    routes: bool = False


def _width(workload: Workload) -> Array:
    """Elements of a micro-batch between layers, on one rank."""
    model, plans = workload.model, workload.plans
    return plans.tokens(model.seq_len) * model.hidden / np.where(plans.sequence_parallel, plans.tp, 1.0)


def _residual(workload: Workload, count: int = 1) -> Kernel:
    """The addition to the residual stream; with dropout, the same kernel makes the mask."""
    width = _width(workload)
    if workload.model.dropout:
        return Kernel("dropout", 7 * width, 11 * width, count)
    return Kernel("elementwise", 6 * width, 6 * width, count)


def _memory_bound_kernels(workload: Workload) -> list[Kernel]:
    """Everything in a layer that only moves memory, with the bytes it reads and writes, 16 bit an element."""
    model, plans = workload.model, workload.plans
    t = 1.0 * plans.tp
    tokens = plans.tokens(model.seq_len)
    width = _width(workload)
    middle = tokens * (model.shared_ffn_hidden if model.experts > 1 else model.ffn_hidden) / t
    keys = tokens * model.key_width / t
    queries = tokens * model.query_width / t
    joined = queries + (keys + tokens * model.v_hidden / t if model.latent_kv else 2 * keys)
    nothing = np.zeros(len(plans))
    activation = Kernel("gelu", 4 * middle, 6 * middle)
    if model.gated_mlp:
        activation = Kernel("swiglu", 10 * middle, 16 * middle)
    norm = "rmsnorm" if model.norm == "rmsnorm" else "layernorm"
    found = [
        Kernel(norm, 4 * width, 6 * width, model.norms_per_layer, width=model.hidden),
        _residual(workload, 2),
        activation,
        # Joins the gradients of queries, keys and values.
        Kernel("elementwise", nothing, 4 * joined),
        Kernel("elementwise", nothing, plans.accumulated * workload.partition.trained),
    ]
    if model.lora_rank:  # adds the low-rank result to the frozen one's, and the gradients of their input
        found += [
            Kernel("elementwise", 6 * tokens * wide / t, 6 * tokens * narrow / t)
            for narrow, wide in model.lora_shapes
        ]
    if model.positions == "rotary":
        found.append(Kernel("rotary", 4 * (queries + keys), 4 * (queries + keys)))
    if model.qk_norm:
        found += [Kernel(norm, 4 * each, 6 * each, width=model.head_width) for each in (queries, keys)]
    for latent in (model.latent_q, model.latent_kv):
        if latent:
            each = tokens * latent / np.where(plans.sequence_parallel, t, 1.0)
            found.append(Kernel(norm, 4 * each, 6 * each, width=latent))
    if model.attention == "core":
        scores = tokens * model.heads * model.seq_len / t
        # Into the batched GEMMs' layout and back.
        found.append(Kernel("elementwise", 4 * queries, 8 * queries))
        found.append(Kernel("softmax", 4 * scores, 6 * scores, of_scores=True, width=model.seq_len))
        if model.dropout:
            found.append(Kernel("dropout", 5 * scores, 5 * scores, of_scores=True))
    return found


@dataclass(frozen=True)
class MemoryBound:
    """Seconds of a layer's memory-bound kernels by pass; of those forward, core attention's and those that
    bring tokens to experts and back.
    """

    forward: Array
    backward: Array
    scores: Array
    routing: Array


def memory_bound_s(workload: Workload, more: Iterable[Kernel] = ()) -> MemoryBound:
    """The memory-bound kernels of one layer on one micro-batch, as the framework fuses them, and `more`."""
    both = np.zeros((2, len(workload)))
    scores, routing = np.zeros(len(workload)), np.zeros(len(workload))
    for kernel in (*_memory_bound_kernels(workload), *more):
        seconds = kernel.count * _seconds(workload, kernel, np.array([kernel.forward, kernel.backward]))
        both += seconds
        if kernel.of_scores:
            scores += seconds[0]
        if kernel.routes:
            routing += seconds[0]
    return MemoryBound(both[0], both[1], scores, routing)


def residual_s(workload: Workload) -> Array:
    """Seconds of one addition to the residual stream, forward."""
    kernel = _residual(workload)
    return _seconds(workload, kernel, kernel.forward)


def _seconds(workload: Workload, kernel: Kernel, nbytes: Array) -> Array:
    framework = workload.framework
    style = None if framework.elementwise == "profile" else framework.elementwise
    backward = PASSES if nbytes.ndim == 2 else False
    seconds = workload.profile.elementwise_s(nbytes, kernel.kind, kernel.width, style, backward)
    return framework.elementwise_multiplier * seconds / workload.system.site.hbm_fraction
