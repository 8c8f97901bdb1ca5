"""What data-parallel ranks exchange: gradients, and with ZeRO weights; and the optimizer's step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from itertime.collectives import all_gather_s, all_reduce_s, reduce_scatter_s
from itertime.model import ModelSpec
from itertime.planbatch import PlanBatch
from itertime.profile import Profile
from itertime.stages import layer_shards
from itertime.system import System

__all__ = [
    "OPTIMIZER_BYTES",
    "Exchange",
    "Sharded",
    "exchange",
    "exposed_s",
    "optimizer_s",
    "sharded_s",
]

Array = NDArray[np.float64]
Whole = NDArray[np.int64]
OPTIMIZER_BYTES = (
    50.0  # per parameter: unscaling, gradient norm, Adam on 32-bit master weights, copy to 16 bit
)


@dataclass(frozen=True)
class Exchange:
    """Of the first stage, which ends last: seconds to combine all gradients and to gather updated weights.

    Both go in `buckets` equal pieces along the passes they can hide behind. With interleaved chunks only
    those of the first chunk count: the others have the rest of the pipeline to hide behind.
    """

    reduce_s: Array
    gather_s: Array
    buckets: Whole


def exchange(
    plans: PlanBatch, layers: Whole, shared: Array, experts: Array, system: System, profile: Profile
) -> Exchange:
    """The exchange of a stage with `layers` layers, `shared` and `experts` parameters per GPU, plan by plan.

    Copies of an expert are on every ep-th rank. Buckets are one a layer where they overlap a pass, unless
    `bucket_bytes` gives their size; without either, everything goes at once. Each bucket pays the latency of
    its own collective (Li et al., PyTorch Distributed, VLDB 2020, section 3.2).
    """
    size = np.where(plans.fp32_gradients, 4.0, 2.0) * (shared + experts) / plans.interleave
    by_layer = np.maximum(layers // plans.interleave, 1)
    by_size = np.ceil(size / np.where(plans.bucket_bytes > 0, plans.bucket_bytes, np.inf)).astype(np.int64)
    buckets = np.where(plans.bucket_bytes > 0, np.maximum(by_size, 1), by_layer)
    calls = np.where(plans.grad_overlap | (plans.bucket_bytes > 0), buckets, 1) * plans.interleave
    ranks, one = plans.dp * plans.cp, np.ones_like(plans.dp)
    reduced, gathered = _sums(plans, shared / calls, ranks, plans.zero_group, one, system, profile)
    if experts.any():
        group = np.maximum(plans.zero_group // plans.ep, 1)
        more = _sums(plans, experts / calls, ranks // plans.ep, group, plans.ep, system, profile)
        reduced, gathered = reduced + more[0], gathered + more[1]
    per_chunk = calls / plans.interleave
    return Exchange(reduced * per_chunk, gathered * per_chunk, buckets)


def _sums(
    plans: PlanBatch,
    parameters: Array,
    ranks: Whole,
    group: Whole,
    apart: Whole,
    system: System,
    profile: Profile,
) -> tuple[Array, Array]:
    """Seconds to combine gradients and to gather weights of `parameters` parameters per GPU, one call each.

    No ZeRO: one all-reduce. ZeRO-1 over all ranks: reduce-scatter and all-gather; in smaller groups every
    group needs the whole sum, an all-reduce, and gathers for itself. From ZeRO-2 on gradients are scattered
    with every micro-batch (`sharded_s`); what remains is the sum over groups, if there are several.
    """
    nbytes = np.where(plans.fp32_gradients, 4.0, 2.0) * parameters
    where = _neighbours(plans, system, ranks, apart)
    whole, scattered = (plans.zero_stage == 1) & (group == ranks), plans.zero_stage >= 2
    reduced = _collective(all_reduce_s, ~whole & ~scattered, nbytes, ranks, where, system, profile)
    gathered = np.zeros_like(reduced)
    if (plans.zero_stage > 0).any():
        reduced += _collective(reduce_scatter_s, whole, nbytes, ranks, where, system, profile)
        between = _neighbours(plans, system, ranks // group, apart * group)
        across = nbytes / group, ranks // group, between
        reduced += _collective(all_reduce_s, scattered, *across, system, profile)
        inside = _neighbours(plans, system, group, apart)
        gathers = (plans.zero_stage == 1) | (plans.zero_stage == 2)
        gathered = _collective(all_gather_s, gathers, 2.0 * parameters, group, inside, system, profile)
    return reduced, gathered


def exposed_s(comm: Array, cover: Array, buckets: Whole, overlap: NDArray[np.bool_]) -> Array:
    """Seconds of `comm`, sent in equal buckets, that a pass of `cover` seconds does not hide.

    The first bucket is ready after its share of the pass, the last one only at its end.
    """
    hidden = np.maximum(comm / buckets, comm - cover * (1 - 1 / buckets))
    return np.where(overlap, hidden, comm)


@dataclass(frozen=True)
class Sharded:
    """What ZeRO-2 and ZeRO-3 (FSDP) move, in seconds: with every micro-batch a layer's weights and gradients,
    and the weights of the model's ends (`root`); once an iteration, what follows the last backward.
    """

    forward: Array
    backward: Array
    root_gather: Array
    last_scatter: Array


def sharded_s(model: ModelSpec, plans: PlanBatch, tables: Array, system: System, profile: Profile) -> Sharded:
    """ZeRO-3 gathers a layer's weights before its forward and again before its backward; it and ZeRO-2
    scatter its gradients after (Zhao et al. 2023, PyTorch FSDP, section 3).

    Nothing precedes the `tables` (parameters per GPU of the model's ends) and the first layer, so nothing
    hides their gather; nor, after the last micro-batch, their scatter.
    """
    zero = np.zeros(len(plans))
    if not (plans.zero_stage >= 2).any():
        return Sharded(zero, zero, zero, zero)
    shared, experts = layer_shards(model, plans)
    gather, scatter = _gather_and_scatter(plans, shared, plans.zero_group, 1, system, profile)
    if model.experts > 1:
        group = np.maximum(plans.zero_group // plans.ep, 1)
        more = _gather_and_scatter(plans, experts, group, plans.ep, system, profile)
        gather, scatter = gather + more[0], scatter + more[1]
    root_gather, root_scatter = _gather_and_scatter(plans, tables, plans.zero_group, 1, system, profile)
    return Sharded(gather, gather + scatter, root_gather, scatter + root_scatter)


def _gather_and_scatter(
    plans: PlanBatch, parameters: Array, group: Whole, apart: Whole | int, system: System, profile: Profile
) -> tuple[Array, Array]:
    where = _neighbours(plans, system, group, apart)
    gathers, scatters = plans.zero_stage == 3, plans.zero_stage >= 2
    gather = _collective(all_gather_s, gathers, 2.0 * parameters, group, where, system, profile)
    gradients = np.where(plans.fp32_gradients, 4.0, 2.0) * parameters
    return gather, _collective(reduce_scatter_s, scatters, gradients, group, where, system, profile)


def optimizer_s(plans: PlanBatch, shared: Array, experts: Array, system: System, profile: Profile) -> Array:
    """Seconds of the optimizer on the parameters a GPU owns: memory traffic only."""
    group = np.where(plans.zero_stage >= 1, plans.zero_group, 1)
    owned = shared / group + experts / np.maximum(group // plans.ep, 1)
    return profile.elementwise_s(OPTIMIZER_BYTES * owned, "adam") / system.site.hbm_fraction


def _collective(
    operation: Callable[..., Array],
    used: NDArray[np.bool_],
    nbytes: Array,
    ranks: Whole,
    where: tuple[Whole, Whole, Whole],
    system: System,
    profile: Profile,
) -> Array:
    """Seconds, 0 where the operation is not `used`; the profile is not asked for what is not sent."""
    local, sharers, stride = where
    seconds = operation(np.where(used, nbytes, 0.0), ranks, local, system, profile, sharers, stride)
    return np.where(used, seconds, 0.0)


def _neighbours(
    plans: PlanBatch, system: System, ranks: Whole, apart: Whole | int = 1
) -> tuple[Whole, Whole, Whole]:
    """Of `ranks` of a data-parallel group, each `apart` from the next: how many share a node, how many groups
    its NICs, and how many nodes lie from one of the group's nodes to the next.

    Ranks count tp first, then cp, dp, pp (SC'21, section 3); or dp last, which puts the stages of a
    pipeline between neighbours.
    """
    spacing = plans.tp * apart * np.where(plans.pp_before_dp, plans.pp, 1)
    local = np.minimum(ranks, np.maximum(system.gpus_per_node // spacing, 1))
    if plans.pp_before_dp.any():
        together = np.minimum(plans.cp // apart, system.gpus_per_node // plans.tp)
        local = np.where(plans.pp_before_dp, np.maximum(local, np.minimum(ranks, together)), local)
    sharers = np.maximum(system.gpus_per_node // local, 1)
    return local, sharers, np.maximum(spacing // system.gpus_per_node, 1)
