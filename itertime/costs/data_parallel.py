"""The exchange of data-parallel ranks (gradients, with ZeRO also weights) and the optimizer's step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from itertime.spec import PlanBatch

from .network import all_gather_s, all_reduce_s, ranks_together, reduce_scatter_s
from .offload import offloaded_step
from .partition import Workload

__all__ = [
    "OPTIMIZER_BYTES",
    "Exchange",
    "Sharded",
    "exchange",
    "expert_copies",
    "exposed_s",
    "optimizer_s",
    "sharded_s",
]

Array = NDArray[np.float64]
Parts = dict[str, Array]
Whole = NDArray[np.int64]
OPTIMIZER_BYTES = 50.0
"""Bytes that the optimizer moves per parameter: unscaling, gradient norm, Adam on 32-bit master weights, copy
to 16 bit."""


@dataclass(frozen=True)
class Exchange:
    """Seconds to combine all gradients, and to gather updated weights, of the first stage, which ends last.

    Both go in `buckets` equal pieces along the passes that can hide them. With interleaved chunks, `buckets`
    counts those of the first chunk: the rest of the pipeline hides the others.
    """

    reduce_s: Array
    gather_s: Array
    buckets: Whole


@dataclass(frozen=True)
class _Groups:
    """Groups of data-parallel ranks, one kind per plan.

    `ranks` GPUs, `local` of them in one NVLink domain, whose NICs `sharers` groups share; `stride` domains
    from one of a group's domains to the next.
    """

    ranks: Whole
    local: Whole
    sharers: Whole
    stride: Whole


def exchange(workload: Workload, layers: Whole, shared: Array, experts: Array) -> Exchange:
    """The exchange of a stage with `layers` layers, `shared` and `experts` parameters per GPU, plan by plan.

    Copies of an expert are ep x etp GPUs apart. Buckets are one a layer where they overlap a pass, unless
    `bucket_bytes` gives their size; without either, everything goes at once. Each bucket pays the latency of
    its own collective (Li et al., PyTorch Distributed, VLDB 2020, section 3.2).
    """
    plans = workload.plans
    size = _gradient_bytes(workload) * (shared + experts) / plans.interleave
    by_layer = np.maximum(layers // plans.interleave, 1)
    by_size = np.ceil(size / np.where(plans.bucket_bytes > 0, plans.bucket_bytes, np.inf)).astype(np.int64)
    buckets = np.where(plans.bucket_bytes > 0, np.maximum(by_size, 1), by_layer)
    calls = np.where(plans.grad_overlap | (plans.bucket_bytes > 0), buckets, 1) * plans.interleave
    ranks = plans.dp * plans.cp
    reduced, gathered = _sums(workload, shared / calls, ranks, plans.zero_group, plans.tp)
    if experts.any():
        copies, group, apart = ranks * plans.tp // _spread(plans), _expert_group(plans), _spread(plans)
        more = _sums(workload, experts / calls, copies, group, apart)
        reduced, gathered = reduced + more[0], gathered + more[1]
    per_chunk = calls / plans.interleave
    return Exchange(reduced * per_chunk, gathered * per_chunk, buckets)


def _sums(
    workload: Workload, parameters: Array, ranks: Whole, group: Whole, apart: Whole
) -> tuple[Array, Array]:
    """Seconds to combine gradients and to gather weights of `parameters` parameters per GPU, one call each.

    `ranks` ranks, each `apart` from the next, hold copies; ZeRO shards over `group` of them. No ZeRO: one
    all-reduce. ZeRO-1 over all ranks: reduce-scatter and all-gather. In smaller groups every group needs the
    whole sum, an all-reduce, and gathers for itself. From ZeRO-2 on, every micro-batch scatters its gradients
    (`sharded_s`); what remains is the sum over groups, if there are several.
    """
    plans = workload.plans
    nbytes = _gradient_bytes(workload) * parameters
    copies = _groups(workload, ranks, apart)
    whole, scattered = (plans.zero_stage == 1) & (group == ranks), plans.zero_stage >= 2
    reduced = _collective_s(all_reduce_s, workload, copies, ~whole & ~scattered, nbytes)
    gathered = np.zeros_like(reduced)
    if (plans.zero_stage > 0).any():
        reduced += _collective_s(reduce_scatter_s, workload, copies, whole, nbytes)
        if scattered.any():
            between = _groups(workload, ranks // group, apart * group)
            reduced += _collective_s(all_reduce_s, workload, between, scattered, nbytes / group)
        inside = _groups(workload, group, apart)
        gathers = (plans.zero_stage == 1) | (plans.zero_stage == 2)
        gathered = _collective_s(all_gather_s, workload, inside, gathers, 2.0 * parameters)
    return reduced, gathered


def exposed_s(comm: Array, cover: Array, buckets: Whole, overlap: NDArray[np.bool_]) -> Array:
    """Seconds of `comm`, sent in equal buckets, that a pass of `cover` seconds does not hide.

    The first bucket is ready after its share of the pass, the last one only at its end.
    """
    hidden = np.maximum(comm / buckets, comm - cover * (1 - 1 / buckets))
    return np.where(overlap, hidden, comm)


@dataclass(frozen=True)
class Sharded:
    """Seconds of what ZeRO-2 and ZeRO-3 (FSDP) move.

    With every micro-batch: a layer's weights and gradients (`forward`, `backward`), and the weights of the
    model's ends (`root_gather`). Once an iteration: the scatter that follows the last backward pass.
    """

    forward: Array
    backward: Array
    root_gather: Array
    last_scatter: Array


def sharded_s(workload: Workload) -> Sharded:
    """ZeRO-3 gathers a layer's weights before its forward and again before its backward. ZeRO-2 and ZeRO-3
    scatter its gradients afterwards (Zhao et al. 2023, PyTorch FSDP, section 3).

    Nothing precedes the tables of the model's ends and the first layer, so nothing hides their gather. Nor
    does anything hide their scatter after the last micro-batch.
    """
    plans, partition = workload.plans, workload.partition
    zero = np.zeros(len(plans))
    if not (plans.zero_stage >= 2).any():
        return Sharded(zero, zero, zero, zero)
    gather, scatter = _gather_and_scatter_s(workload, partition.shared, plans.zero_group, plans.tp)
    if workload.model.lora_rank:
        _, scatter = _gather_and_scatter_s(workload, partition.trained, plans.zero_group, plans.tp)
    if workload.model.experts > 1:
        more = _gather_and_scatter_s(workload, partition.experts, _expert_group(plans), _spread(plans))
        gather, scatter = gather + more[0], scatter + more[1]
    root_gather, root_scatter = _gather_and_scatter_s(workload, partition.tables, plans.zero_group, plans.tp)
    if workload.model.lora_rank:
        root_scatter = zero
    return Sharded(gather, gather + scatter, root_gather, scatter + root_scatter)


def _gather_and_scatter_s(
    workload: Workload, parameters: Array, ranks: Whole, apart: Whole
) -> tuple[Array, Array]:
    """Seconds to gather the weights, and to scatter the gradients, of `parameters` parameters per GPU."""
    plans = workload.plans
    groups = _groups(workload, ranks, apart)
    gather = _collective_s(all_gather_s, workload, groups, plans.zero_stage == 3, 2.0 * parameters)
    gradients = _gradient_bytes(workload) * parameters
    return gather, _collective_s(reduce_scatter_s, workload, groups, plans.zero_stage >= 2, gradients)


def optimizer_s(workload: Workload, shared: Array, experts: Array) -> Parts:
    """Seconds of the optimizer on the parameters a GPU owns: "optimizer", memory traffic only, and for a plan
    that offloads it "optimizer_copies".
    """
    plans = workload.plans
    group = np.where(plans.zero_stage >= 1, plans.zero_group, 1)
    owned = shared / group + experts / expert_copies(plans, group)
    seconds = workload.profile.elementwise_s(OPTIMIZER_BYTES * owned, "adam")
    seconds = seconds / workload.system.site.hbm_fraction
    if not plans.offload_optimizer.any():
        return {"optimizer": seconds}
    offloaded = offloaded_step(workload, owned)
    return {
        "optimizer": np.where(plans.offload_optimizer, offloaded.step, seconds),
        "optimizer_copies": np.where(plans.offload_optimizer, offloaded.gradients, 0.0),
    }


def _spread(plans: PlanBatch) -> Whole:
    """GPUs that hold different experts, or parts of them: copies of an expert are so many GPUs apart."""
    return plans.ep * plans.etp


def _expert_group(plans: PlanBatch) -> Whole:
    return expert_copies(plans, plans.zero_group)


def expert_copies(plans: PlanBatch, group: Whole) -> Whole:
    """GPUs that share an expert's ZeRO shards where `group` data-parallel ranks share those of the rest."""
    return np.maximum(group * plans.tp // _spread(plans), 1)


def _gradient_bytes(workload: Workload) -> Array:
    """Bytes of one parameter's gradient."""
    return np.where(workload.plans.fp32_gradients, 4.0, 2.0)


def _collective_s(
    operation: Callable[..., Array],
    workload: Workload,
    groups: _Groups,
    used: NDArray[np.bool_],
    nbytes: Array,
) -> Array:
    """Seconds of the operation; 0 where it is not `used`, and the profile is not asked for it."""
    if not used.any():
        return np.zeros(len(used))
    seconds = operation(
        np.where(used, nbytes, 0.0),
        groups.ranks,
        groups.local,
        workload.system,
        workload.profile,
        groups.sharers,
        groups.stride,
    )
    return np.where(used, seconds, 0.0)


def _groups(workload: Workload, ranks: Whole, apart: Whole) -> _Groups:
    """Groups of `ranks` data-parallel ranks, each `apart` GPUs of its stage from the next.

    Ranks count tp first, then cp, dp, pp (SC'21, section 3); or dp last, and then the stages of a pipeline
    lie between neighbouring ranks.
    """
    plans, system = workload.plans, workload.system
    domain = system.domain_gpus
    spacing = apart * np.where(plans.pp_before_dp, plans.pp, 1)
    local = ranks_together(ranks, np.maximum(domain // spacing, 1), system)
    if plans.pp_before_dp.any():
        together = np.minimum(plans.cp * plans.tp // apart, domain // plans.tp)
        local = np.where(plans.pp_before_dp, np.maximum(local, np.minimum(ranks, together)), local)
    sharers = np.maximum(domain // local, 1)
    return _Groups(ranks, local, sharers, np.maximum(spacing // domain, 1))
