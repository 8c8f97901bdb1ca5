"""Seconds of what an iteration does once: the exchange of gradients and weights, and the optimizer's step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from itertime.arrays import Array, Whole, any_of
from itertime.costs.layer import Parts
from itertime.costs.network import Group, all_reduce_s
from itertime.costs.partition import Workload
from itertime.schedule import FIRST, LAST
from itertime.spec import PlanBatch, System, stalled_sends

from .clipping import Clipping, clipping_s
from .compression_kernels import compression_kernels_s
from .gradients import Exchange, exchanges, exposed_s, of_division
from .local_steps import outer_sync_s
from .optimizer import optimizer_s

_ROUNDING = 1e-9  # equal times choose alike for one plan and for many


def once_s(workload: Workload, passes: Sequence[Array], waits: Array) -> tuple[Parts, Exchange]:
    """Seconds by part that an iteration spends once, on the first stage, the last to finish; its exchange.

    `passes`: seconds of both passes of its first chunk, which buckets may overlap. Kernels that run on a
    bucket before it is sent lengthen the backward pass (`clipping.py` derives it), beyond the seconds that
    the GPU `waits` for launches in it.
    """
    plans, partition, site = workload.plans, workload.partition, workload.system.site
    kind = np.where(plans.pp == 1, LAST, FIRST)
    column = np.arange(len(plans))
    layers = partition.sets_of_weights(kind, column)
    shared, experts = (
        parameters[kind, column] for parameters in partition.trained_parameters(workload.model)
    )
    if plans.splits_backward:  # the mirror image of the first stage lies on its GPU
        mirror = (parameters[LAST] for parameters in partition.trained_parameters(workload.model))
        shared, experts = (
            np.where(plans.both_ways, parameters + mirrored, parameters)
            for parameters, mirrored in zip((shared, experts), mirror, strict=True)
        )
        layers = np.where(plans.both_ways, layers + partition.layers[LAST], layers)
    if workload.model.trains_embedding or workload.model.trains_head:
        shared = shared + partition.trained_tables
    if partition.trained_front is not None:
        shared = shared + partition.trained_front
        stacks = [stack.model for stack in workload.model.tower_stacks]
        layers = layers + sum(stack.layers for stack in stacks if not stack.weights_frozen)
    exchanged = _beside(workload, (layers, shared, experts), passes, waits)
    if plans.options.warmup_share:
        options = replace(plans.options, compression="none", warmup_share=0.0)
        uncompressed = replace(workload, plans=replace(plans, options=options))
        warmup = _beside(uncompressed, (layers, shared, experts), passes, waits)
        exchanged = exchanged.after(warmup, plans.options.warmup_share)
    once: Parts = {}
    if exchanged.clipping is not None:
        once["clipping"] = exchanged.clipping
    if plans.options.compression != "none":
        once["compression_once"] = compression_kernels_s(workload, shared + experts)
    once |= {
        "dp_comm": exchanged.exposed,
        "embedding_sync": _embedding_sync_s(workload) + _copies_sync_s(workload, shared + experts),
        **optimizer_s(workload, shared, experts, layers),
        "iteration_overhead": site.iteration_overhead_s
        + workload.framework.iteration_s
        + _broadcasts(plans) * site.zero_broadcast_s,
    }
    if workload.framework.stalled_send_s:
        stalled_s, likely = stalled_sends(workload.framework, workload.system, plans)
        once["stalled_sends"] = np.where(likely, stalled_s, 0.0)
    if workload.outer.workers > 1:
        once["outer_sync"] = outer_sync_s(workload, shared, experts, passes[1])
    if workload.contention:
        once["contention_once"] = exchanged.contention
    return once, exchanged.traffic


@dataclass(frozen=True)
class _Exchanged:
    """An exchange with the seconds that it adds to an iteration: those that no pass hides, those by which it
    lengthens the passes that hide the others, and those of clipping; None without any.
    """

    traffic: Exchange
    exposed: Array
    contention: Array
    clipping: Array | None

    @property
    def seconds(self) -> Array:
        seconds = self.exposed + self.contention
        return seconds if self.clipping is None else seconds + self.clipping

    def division(self, rows: Whole) -> _Exchanged:
        """Of several divisions into buckets, (divisions, plans), that of each plan."""
        exposed, contention = of_division(self.exposed, rows), of_division(self.contention, rows)
        clipping = self.clipping if self.clipping is None else of_division(self.clipping, rows)
        return _Exchanged(self.traffic.division(rows), exposed, contention, clipping)

    def after(self, warmup: _Exchanged, share: float) -> _Exchanged:
        """The mean over a run, in a `share` of whose iterations the exchange is that of the warm-up."""
        exposed, contention = (
            (1 - share) * own + share * of_warmup
            for own, of_warmup in (
                (self.exposed, warmup.exposed),
                (self.contention, warmup.contention),
            )
        )
        traffic = replace(self.traffic, warmup_share=share, warmup=warmup.traffic)
        return _Exchanged(traffic, exposed, contention, self.clipping)


def _beside(
    workload: Workload, parameters: tuple[Whole, Array, Array], passes: Sequence[Array], waits: Array
) -> _Exchanged:
    """The exchange beside the passes, in the framework's buckets or at once.

    Every bucket has its own latency. Where those of a framework take longer than one exchange after the pass,
    it is taken to have been told so: overlap makes no iteration slower. Buckets of a stated size stay.
    """
    layers, shared, experts = parameters
    traffic = exchanges(workload, layers, shared, experts)
    clipping = clipping_s(workload, shared, experts, traffic.calls, waits / traffic.buckets)
    exchanged = _exchanged(workload, traffic, clipping, passes)
    if traffic.buckets.ndim == 1:
        return exchanged
    divided_s, at_once_s = exchanged.seconds
    return exchanged.division((divided_s > (1 + _ROUNDING) * at_once_s).astype(np.int64))


def _exchanged(
    workload: Workload, traffic: Exchange, clipping: Clipping | None, passes: Sequence[Array]
) -> _Exchanged:
    """What an exchange adds beside its passes."""
    (forward, backward), plans, framework = passes, workload.plans, workload.framework
    clipping_seconds = None
    if clipping is not None:
        clipping_seconds = clipping.seconds(traffic.calls)
        traffic = traffic.clipped(clipping.kernels, clipping.norm_s, clipping.overlapped)
    for seconds in traffic.kernels.values():
        backward = backward + traffic.buckets * seconds
    ahead = plans.grad_overlap & framework.gather_overlap
    exposed = exposed_s(traffic.gather_s, forward, traffic.buckets, ahead)
    late_s = exposed_s(traffic.reduce_s, backward, traffic.buckets, traffic.overlapped)
    exposed = exposed + late_s
    if plans.splits_backward:
        traffic = replace(traffic, late_s=np.where(traffic.overlapped, late_s, 0.0))
    contention = workload.contention * np.maximum(traffic.total_s - exposed, 0.0)
    return _Exchanged(traffic, exposed, contention, clipping_seconds)


def _broadcasts(plans: PlanBatch) -> Array:
    """Number of ranks that broadcast their share of the updated weights, one after the other."""
    ranks = plans.optimizer_shards / plans.weight_shards
    return np.where(ranks > 1, ranks, 0.0)


def _embedding_sync_s(workload: Workload) -> Array:
    """Seconds to sum the gradients of a tied embedding, which both ends of a pipeline hold."""
    plans, system = workload.plans, workload.system
    model = workload.model
    if not model.tied_embeddings or not model.trains_embedding or not any_of(plans.pp > 1):
        return np.zeros(len(plans))
    nbytes = 2.0 * plans.width * workload.partition.table
    seconds = all_reduce_s(nbytes, _both_ends(plans, system), workload.fabric)
    apart = plans.pp > 1
    if plans.splits_backward:
        apart = apart & ~plans.v_shaped & ~plans.both_ways
    return np.where(apart, seconds, 0.0)


def _copies_sync_s(workload: Workload, parameters: Array) -> Array | float:
    """Seconds to sum the gradients of two copies of `parameters` parameters, which lie on the GPUs of a stage
    and of its mirror image; each rank sums what it owns, and gathers as much of the weights.
    """
    plans = workload.plans
    if not (plans.splits_backward and plans.both_ways.any()):
        return 0.0
    nbytes = np.where(plans.both_ways, plans.gradient_bytes * parameters / plans.optimizer_shards, 0.0)
    seconds = all_reduce_s(nbytes, _both_ends(plans, workload.system), workload.fabric)
    return np.where(plans.both_ways, seconds, 0.0)


def _both_ends(plans: PlanBatch, system: System) -> Group:
    """The GPUs of the first and the last stage of each pipeline."""
    domain = system.domain_gpus
    together = np.where(plans.next_stage * plans.pp > domain, 1, 2)
    stride = np.maximum(plans.next_stage * (plans.pp - 1) // domain, 1)
    return Group(2, together, domain, stride)
