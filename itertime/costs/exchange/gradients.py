"""The exchange of data-parallel ranks: gradients, and with ZeRO also weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from itertime.costs.network import all_gather_s, all_reduce_s, reduce_scatter_s
from itertime.costs.partition import Workload

from .groups import Shards, collective_s, expert_spread, gradient_bytes, groups_of

__all__ = ["Exchange", "Sharded", "exchange", "exposed_s", "sharded_s"]

Array = NDArray[np.float64]
Whole = NDArray[np.int64]


@dataclass(frozen=True)
class Exchange:
    """Seconds to combine all gradients, and to gather updated weights, of the first stage, which ends last.

    Both go in `buckets` equal pieces along the passes that can hide them. With interleaved chunks, `buckets`
    counts those of the first chunk: the rest of the pipeline hides the others.
    """

    reduce_s: Array
    gather_s: Array
    buckets: Whole


def exchange(workload: Workload, layers: Whole, shared: Array, experts: Array) -> Exchange:
    """The exchange of a stage with `layers` layers, `shared` and `experts` parameters per GPU, plan by plan.

    Copies of an expert are ep x etp GPUs apart. Buckets are one a layer where they overlap a pass, unless
    `bucket_bytes` gives their size; without either, everything goes at once. Each bucket pays the latency of
    its own collective (Li et al., PyTorch Distributed, VLDB 2020, section 3.2).
    """
    plans = workload.plans
    size = gradient_bytes(workload) * (shared + experts) / plans.interleave
    by_layer = np.maximum(layers // plans.interleave, 1)
    by_size = np.ceil(size / np.where(plans.bucket_bytes > 0, plans.bucket_bytes, np.inf)).astype(np.int64)
    buckets = np.where(plans.bucket_bytes > 0, np.maximum(by_size, 1), by_layer)
    calls = np.where(plans.grad_overlap | (plans.bucket_bytes > 0), buckets, 1) * plans.interleave
    ranks, shards = plans.dp * plans.cp, Shards.of(plans)
    reduced, gathered = _sums(workload, shared / calls, ranks, shards, plans.tp)
    if experts.any():
        apart = expert_spread(plans)
        copies = ranks * plans.tp // apart
        more = _sums(workload, experts / calls, copies, shards.of_experts(plans), apart)
        reduced, gathered = reduced + more[0], gathered + more[1]
    per_chunk = calls / plans.interleave
    return Exchange(reduced * per_chunk, gathered * per_chunk, buckets)


def _sums(
    workload: Workload, parameters: Array, ranks: Whole, shards: Shards, apart: Whole
) -> tuple[Array, Array]:
    """Seconds to combine gradients and to gather weights of `parameters` parameters per GPU, one call each.

    `ranks` ranks, each `apart` from the next, hold copies. What every micro-batch scatters (`sharded_s`) is
    already summed within the `shards` of the gradients; what remains is the sum over those groups. If all
    ranks share the optimizer's states, each needs its part of the sum, a reduce-scatter: ZeRO-1 over all
    ranks. Otherwise it is an all-reduce: no ZeRO, or ZeRO in groups, each of which needs the whole sum. After
    the step, weights travel from the shards of the optimizer to those of the weights (Wu et al. 2023, PaRO,
    which divides each over no ranks, those of a group, or all).
    """
    plans = workload.plans
    nbytes = gradient_bytes(workload) * parameters / shards.gradients
    between = groups_of(workload, ranks // shards.gradients, apart * shards.gradients)
    whole = shards.optimizer == ranks
    reduced = collective_s(all_reduce_s, workload, between, ~whole, nbytes)
    reduced = reduced + collective_s(reduce_scatter_s, workload, between, whole, nbytes)
    if not plans.shards_optimizer.any():
        return reduced, np.zeros_like(reduced)
    inside = groups_of(workload, shards.optimizer // shards.weights, apart * shards.weights)
    gathers = plans.shards_optimizer & (shards.optimizer > shards.weights)
    return reduced, collective_s(all_gather_s, workload, inside, gathers, 2.0 * parameters / shards.weights)


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
    if not plans.scatters_gradients.any():
        return Sharded(zero, zero, zero, zero)
    shards = Shards.of(plans)
    gather, scatter = _gather_and_scatter_s(workload, partition.shared, shards, plans.tp)
    if workload.model.lora_rank:
        _, scatter = _gather_and_scatter_s(workload, partition.trained, shards, plans.tp)
    if workload.model.experts > 1:
        of_experts = shards.of_experts(plans)
        more = _gather_and_scatter_s(workload, partition.experts, of_experts, expert_spread(plans))
        gather, scatter = gather + more[0], scatter + more[1]
    root_gather, root_scatter = _gather_and_scatter_s(workload, partition.tables, shards, plans.tp)
    if workload.model.lora_rank:
        root_scatter = zero
    return Sharded(gather, gather + scatter, root_gather, scatter + root_scatter)


def _gather_and_scatter_s(
    workload: Workload, parameters: Array, shards: Shards, apart: Whole
) -> tuple[Array, Array]:
    """Seconds to gather the weights, and to scatter the gradients, of `parameters` parameters per GPU."""
    plans = workload.plans
    gathering = scattering = groups_of(workload, shards.gradients, apart)
    if not np.array_equal(shards.weights, shards.gradients):
        gathering = groups_of(workload, shards.weights, apart)
    gather = collective_s(all_gather_s, workload, gathering, plans.gathers_weights, 2.0 * parameters)
    gradients = gradient_bytes(workload) * parameters
    scatter = collective_s(reduce_scatter_s, workload, scattering, plans.scatters_gradients, gradients)
    return gather, scatter
