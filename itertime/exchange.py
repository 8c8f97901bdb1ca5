"""What data-parallel ranks exchange: gradients, and with ZeRO weights; and the optimizer's step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from itertime.collectives import all_gather_s, all_reduce_s, reduce_scatter_s
from itertime.model import ModelSpec
from itertime.plan import PlanBatch
from itertime.profile import Profile
from itertime.system import System

__all__ = [
    "OPTIMIZER_BYTES",
    "Exchange",
    "exchange",
    "exposed_s",
    "optimizer_s",
    "sharded_layer_s",
]

Array = NDArray[np.float64]
Whole = NDArray[np.int64]
OPTIMIZER_BYTES = (
    50.0  # per parameter: unscaling, gradient norm, Adam on 32-bit master weights, copy to 16 bit
)


@dataclass(frozen=True)
class Exchange:
    """Of the first stage, which ends last: seconds to combine all gradients and to gather updated weights.

    Both go in `buckets` equal pieces, one a layer, along the passes they can hide behind. With interleaved
    chunks only those of the first chunk count: the others have the rest of the pipeline to hide behind.
    """

    reduce_s: Array
    gather_s: Array
    buckets: Whole


def exchange(
    plans: PlanBatch, layers: Whole, parameters: Array, system: System, profile: Profile
) -> Exchange:
    """The exchange of a stage with `layers` layers and `parameters` parameters per GPU, one element a plan.

    No ZeRO: one all-reduce. ZeRO-1 over all ranks: reduce-scatter and all-gather; in smaller groups every
    group needs the whole sum, an all-reduce, and gathers for itself. From ZeRO-2 on gradients are scattered
    with every micro-batch (`sharded_layer_s`); what remains is the sum over groups, if there are several.
    """
    nbytes = np.where(plans.fp32_gradients, 4.0, 2.0) * parameters
    local, sharers = _neighbours(plans, system, plans.dp)
    group_local, group_sharers = _neighbours(plans, system, plans.zero_group)
    everyone = all_reduce_s(nbytes, plans.dp, local, system, profile, sharers)
    reduced, gathered = everyone, np.zeros_like(everyone)
    if (plans.zero_stage > 0).any():
        scattered = reduce_scatter_s(nbytes, plans.dp, local, system, profile, sharers)
        reduced = np.where((plans.zero_stage == 1) & (plans.zero_group == plans.dp), scattered, everyone)
        groups = plans.dp // plans.zero_group
        across = all_reduce_s(nbytes / plans.zero_group, groups, 1, system, profile, system.gpus_per_node)
        reduced = np.where(plans.zero_stage >= 2, across, reduced)
        weights = all_gather_s(
            2.0 * parameters, plans.zero_group, group_local, system, profile, group_sharers
        )
        gathered = np.where((plans.zero_stage == 1) | (plans.zero_stage == 2), weights, 0.0)
    return Exchange(
        reduced / plans.interleave, gathered / plans.interleave, np.maximum(layers // plans.interleave, 1)
    )


def exposed_s(comm: Array, cover: Array, buckets: Whole, overlap: NDArray[np.bool_]) -> Array:
    """Seconds of `comm`, sent in equal buckets, that a pass of `cover` seconds does not hide.

    The first bucket is ready after its share of the pass, the last one only at its end.
    """
    hidden = np.maximum(comm / buckets, comm - cover * (1 - 1 / buckets))
    return np.where(overlap, hidden, comm)


def sharded_layer_s(
    model: ModelSpec, plans: PlanBatch, system: System, profile: Profile
) -> tuple[Array, Array]:
    """Seconds of communication per layer and micro-batch, forward and backward, of ZeRO-2 and ZeRO-3 (FSDP).

    ZeRO-3 gathers the layer's weights before its forward and again before its backward; both scatter its
    gradients after (Zhao et al. 2023, PyTorch FSDP, section 3).
    """
    zero = np.zeros(len(plans))
    if not (plans.zero_stage >= 2).any():
        return zero, zero
    local, sharers = _neighbours(plans, system, plans.zero_group)
    weights = 2.0 * model.layer_parameters / plans.tp
    gather = all_gather_s(weights, plans.zero_group, local, system, profile, sharers)
    gradients = np.where(plans.fp32_gradients, 2.0, 1.0) * weights
    scatter = reduce_scatter_s(gradients, plans.zero_group, local, system, profile, sharers)
    gather = np.where(plans.zero_stage == 3, gather, 0.0)
    return gather, gather + np.where(plans.zero_stage >= 2, scatter, 0.0)


def optimizer_s(plans: PlanBatch, parameters: Array, system: System, profile: Profile) -> Array:
    """Seconds of the optimizer on the parameters a GPU owns: memory traffic only."""
    shards = np.where(plans.zero_stage >= 1, plans.zero_group, 1)
    return profile.elementwise_s(OPTIMIZER_BYTES * parameters / shards, "adam") / system.site.hbm_fraction


def _neighbours(plans: PlanBatch, system: System, ranks: Whole) -> tuple[Whole, Whole]:
    """Of `ranks` neighbours in a data-parallel group: how many share a node, how many groups its NICs.

    Ranks count tp first, then dp, then pp (SC'21, section 3), so a node holds up to gpus_per_node / tp of
    them.
    """
    room = np.maximum(system.gpus_per_node // plans.tp, 1)
    local = np.minimum(ranks, room)
    return local, np.maximum(system.gpus_per_node // local, 1)
