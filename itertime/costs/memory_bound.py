"""Seconds of what in a layer only moves memory: norms, activations, additions, positions, copies.

The traffic follows Korthikanti et al. (2022), section 4.1, read as bytes moved rather than kept. Everything
is 16 bit, or 32 bit where the plan says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from itertime.arrays import Array, Flags
from itertime.spec import Elementwise

from .partition import Workload

PASSES = np.array([[False], [True]])  # forward, backward: the rows of a kernel's bytes


class Kernel(NamedTuple):
    """One memory-bound kernel, or `runs` equal ones: its kind in the profile, bytes forward and backward.

    `width` is that of the rows that it reduces. `of_scores`: it belongs to core attention. `routes`: it
    brings tokens to experts or back, or widens frozen weights. `module`: the module to recompute that has it
    (`spec/plans/recompute.py`). `sums`: it adds gradients of weights.
    """

    kind: str
    forward: Array
    backward: Array
    runs: int = 1
    of_scores: bool = False
    width: int | None = None
    routes: bool = False
    module: str = ""
    sums: bool = False


def _width(workload: Workload) -> Array:
    """Elements of a micro-batch between layers, on one rank."""
    return workload.tokens * workload.model.hidden / workload.sequence_split


def _residual(workload: Workload, count: int = 1) -> Kernel:
    """The addition to the residual stream; with dropout, the same kernel makes the mask."""
    width = _width(workload)
    if workload.model.dropout:
        return Kernel("dropout", 7 * width, 11 * width, count)
    return Kernel("elementwise", 6 * width, 6 * width, count)


def _memory_bound_kernels(workload: Workload) -> list[Kernel]:
    """Everything in a layer that only moves memory, with the bytes it reads and writes, 16 bit an element."""
    model, plans = workload.model, workload.plans
    t, tokens, fuses = 1.0 * plans.tp, workload.tokens, workload.framework.fused_operations
    width = _width(workload)
    middle = tokens * model.common_width / t
    keys = tokens * model.key_width / t
    queries = tokens * model.query_width / t
    joined = queries + (keys + tokens * model.v_hidden / t if model.latent_kv else 2 * keys)
    nothing = np.zeros(len(plans))
    mlp = "shared_experts" if model.experts > 1 else "mlp"
    activation = Kernel("gelu", 4 * middle, 6 * middle, module=mlp)
    if model.gated_mlp:
        activation = Kernel("swiglu", 10 * middle, 16 * middle, module=mlp)
    if fuses:  # with the cast of its result, which is neither written in 16 bit nor read again
        spared = 4 * middle * plans.below_16_bit
        again = spared * (2 if model.gated_mlp else 1)
        activation = activation._replace(
            forward=activation.forward - spared, backward=activation.backward - again
        )
    norm = "rmsnorm" if model.norm == "rmsnorm" else "layernorm"
    kernels = [
        Kernel(norm, 4 * width, 6 * width, model.norms_per_layer, width=model.hidden, module="layernorm"),
        _residual(workload, model.additions),
        *([activation] if model.mlp else []),
        # Joins the gradients of queries, keys and values.
        *([Kernel("elementwise", nothing, 4 * joined)] if model.attends else []),
        Kernel("elementwise", nothing, plans.accumulated * workload.trained_parameters, sums=True),
    ]
    if model.lora_rank:
        kernels += _beside_frozen_weights(workload)
    if model.cross_attention:  # joins gradients of keys and values, adds those of the encoder's output
        joined = 8 * model.kv_hidden / t + 6 * model.hidden / workload.sequence_split
        kernels.append(Kernel("elementwise", nothing, workload.cross_tokens * joined))
    if not model.attends:  # whose own kernels are those of its recurrence
        return kernels
    if model.output_gate:
        gated = tokens * model.v_hidden / t
        kernels.append(Kernel("elementwise", 6 * gated, 10 * gated))
    if model.positions == "rotary":
        turned = 4 * (queries + keys)
        kernels.append(Kernel("rotary", turned, turned, module="mla_up_proj" if model.latent_kv else ""))
    if model.qk_norm:
        kernels += [Kernel(norm, 4 * each, 6 * each, width=model.head_width) for each in (queries, keys)]
    for latent in (model.latent_q, model.latent_kv):
        if latent:
            each = tokens * latent / workload.sequence_split
            kernels.append(Kernel(norm, 4 * each, 6 * each, width=latent))
    if model.attention == "core":
        scores = tokens * model.heads * workload.micro_batch.length / t
        # Into the batched GEMMs' layout and back.
        kernels.append(Kernel("elementwise", 4 * queries, 8 * queries))
        kernels.append(Kernel("softmax", 4 * scores, 6 * scores, of_scores=True, width=model.seq_len))
        if model.dropout:
            kernels.append(Kernel("dropout", 5 * scores, 5 * scores, of_scores=True))
    return kernels


def _beside_frozen_weights(workload: Workload) -> list[Kernel]:
    """What scales each low-rank result and adds it to the frozen one's, and the same of gradients; what
    widens weights of 4 bit, which every product reads in 16 (bitsandbytes, `MatMul4Bit`).
    """
    model, tokens, t = workload.model, workload.tokens, 1.0 * workload.plans.tp
    kernels = []
    fused = workload.framework.fused_operations
    matrices = zip(model.lora_shapes, model.adapted_token_shares, strict=True)
    for (narrow, wide), share in () if fused else matrices:
        rows = share * tokens
        scaled = 4 * rows * wide / t
        kernels.append(Kernel("elementwise", scaled, scaled))
        kernels.append(Kernel("elementwise", 6 * rows * wide / t, 6 * rows * narrow / t))
    if model.frozen_bits < 16:
        widened = (model.frozen_bytes + 2.0) * (workload.shared_parameters + workload.expert_parameters)
        kernels.append(Kernel("elementwise", widened, widened, routes=True))
    return kernels


@dataclass(frozen=True)
class MemoryBound:
    """Seconds of a layer's memory-bound kernels by pass; of those forward, core attention's, those that
    bring tokens to experts and back, and those of each module where a plan recomputes modules. `sums`: of
    the backward pass those that add gradients of weights.
    """

    forward: Array
    backward: Array
    scores: Array
    routing: Array
    modules: Mapping[str, Array]
    sums: Array


def memory_bound_s(
    forms: Sequence[Workload], expert_kernels: Iterable[Iterable[Kernel]]
) -> list[MemoryBound]:
    """The memory-bound kernels of one layer on one micro-batch, as the framework fuses them.

    `forms` are the same plans with different kinds of layers, `expert_kernels` those of their experts. The
    profile answers for all kernels of one kind at once.
    """
    of_forms = [
        [*_memory_bound_kernels(form), *of_experts]
        for form, of_experts in zip(forms, expert_kernels, strict=True)
    ]
    kernels = [kernel for form_kernels in of_forms for kernel in form_kernels]
    rows_by_kind: dict[tuple[str, float | None], list[int]] = {}
    for row, kernel in enumerate(kernels):
        rows_by_kind.setdefault((kernel.kind, kernel.width), []).append(row)
    moved = np.array([(kernel.forward, kernel.backward) for kernel in kernels])
    seconds = np.empty_like(moved)  # (kernels, passes, plans)
    for (kind, width), rows in rows_by_kind.items():
        seconds[rows] = _profile_s(forms[0], kind, width, moved[rows], PASSES)
    seconds = np.array([kernel.runs for kernel in kernels])[:, None, None] * _at_site(forms[0], seconds)
    results, start = [], 0
    for form_kernels in of_forms:
        form_seconds = seconds[start : start + len(form_kernels)]
        modules = _by_module(form_kernels, form_seconds[:, 0]) if forms[0].plans.recomputed_modules else {}
        results.append(_of_one_form(form_kernels, form_seconds, modules))
        start += len(form_kernels)
    return results


def _by_module(kernels: Sequence[Kernel], seconds: Array) -> dict[str, Array]:
    """Seconds of the kernels of each module, forward; of norms only those before attention and MLP."""
    by_module: dict[str, Array] = {}
    for kernel, kernel_s in zip(kernels, seconds, strict=True):
        if kernel.module == "layernorm":
            kernel_s = kernel_s * min(2 / kernel.runs, 1.0)
        by_module[kernel.module] = by_module.get(kernel.module, 0.0) + kernel_s
    return by_module


def _of_one_form(kernels: Sequence[Kernel], seconds: Array, modules: Mapping[str, Array]) -> MemoryBound:
    pass_s, nothing = seconds.sum(axis=0), np.zeros(seconds.shape[2])
    timed = list(zip(kernels, seconds[:, 0], strict=True))
    scores = sum((kernel_s for kernel, kernel_s in timed if kernel.of_scores), nothing)
    routing = sum((kernel_s for kernel, kernel_s in timed if kernel.routes), nothing)
    sums = sum((seconds[row, 1] for row, kernel in enumerate(kernels) if kernel.sums), nothing)
    return MemoryBound(pass_s[0], pass_s[1], scores, routing, modules, sums)


def residual_s(workload: Workload) -> Array:
    """Seconds of one addition to the residual stream, forward."""
    kernel = _residual(workload)
    return _at_site(workload, _profile_s(workload, kernel.kind, kernel.width, kernel.forward, False))


def _profile_s(
    workload: Workload, kind: str, width: float | None, nbytes: Array, backward: Flags | bool
) -> Array:
    """The profile's seconds in the framework's style."""
    style = workload.framework.elementwise
    return workload.profile.seconds(
        Elementwise(
            nbytes * workload.plans.width, kind, width, None if style == "profile" else style, backward
        )
    )


def _at_site(workload: Workload, seconds: Array) -> Array:
    return workload.framework.elementwise_multiplier * seconds / workload.system.site.hbm_fraction
