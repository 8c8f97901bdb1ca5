"""Seconds of what an iteration does once: the exchange of gradients and weights, and the optimizer's step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from itertime.arrays import Array
from itertime.costs.layer import Parts
from itertime.costs.network import Group, all_reduce_s
from itertime.costs.partition import Workload
from itertime.schedule import FIRST, LAST
from itertime.spec import PlanBatch

from .clipping import clipping_s
from .compression_kernels import compression_kernels_s
from .gradients import Exchange, exchange, exposed_s
from .local_steps import outer_sync_s
from .optimizer import optimizer_s


def once_s(workload: Workload, passes: Sequence[Array], waits: Array) -> tuple[Parts, Exchange]:
    """Seconds by part that an iteration spends once, on the first stage, the last to finish; its exchange.

    `passes`: seconds of both passes of its first chunk, which buckets may overlap. Kernels that run on a
    bucket before it is sent lengthen the backward pass (`clipping.py` derives it), beyond the seconds that
    the GPU `waits` for launches in it.
    """
    forward, backward = passes
    plans, partition, site = workload.plans, workload.partition, workload.system.site
    kind = np.where(plans.pp == 1, LAST, FIRST)
    column = np.arange(len(plans))
    layers = partition.layers[kind, column]
    shared, experts = (
        parameters[kind, column] for parameters in partition.trained_parameters(workload.model)
    )
    if not workload.model.lora_rank:
        shared = shared + partition.tables
    traffic = exchange(workload, layers, shared, experts)
    clipping = clipping_s(workload, shared, experts, traffic.calls, waits / traffic.buckets)
    once: Parts = {}
    if clipping is not None:
        once["clipping"] = clipping.seconds(traffic.calls)
        traffic = traffic.clipped(clipping.kernels, clipping.norm_s, clipping.overlapped)
    for seconds in traffic.kernels.values():
        backward = backward + traffic.buckets * seconds
    ahead = plans.grad_overlap & workload.framework.gather_overlap
    exposed = exposed_s(traffic.gather_s, forward, traffic.buckets, ahead)
    exposed = exposed + traffic.exposed_reduce_s(backward)
    if plans.options.compression != "none":
        once["compression_once"] = compression_kernels_s(workload, shared + experts)
    once |= {
        "dp_comm": exposed,
        "embedding_sync": _embedding_sync_s(workload),
        **optimizer_s(workload, shared, experts, layers),
        "iteration_overhead": site.iteration_overhead_s
        + workload.framework.iteration_s
        + _broadcasts(plans) * site.zero_broadcast_s,
    }
    if workload.outer.workers > 1:
        once["outer_sync"] = outer_sync_s(workload, shared, experts)
    if workload.framework.contention:
        once["contention_once"] = workload.framework.contention * np.maximum(traffic.total_s - exposed, 0.0)
    return once, traffic


def _broadcasts(plans: PlanBatch) -> Array:
    """Number of ranks that broadcast their share of the updated weights, one after the other."""
    ranks = plans.optimizer_shards / plans.weight_shards
    return np.where(ranks > 1, ranks, 0.0)


def _embedding_sync_s(workload: Workload) -> Array:
    """Seconds to sum the gradients of a tied embedding, which both ends of a pipeline hold."""
    plans, system = workload.plans, workload.system
    if not workload.model.tied_embeddings or workload.model.lora_rank or (plans.pp == 1).all():
        return np.zeros(len(plans))
    domain = system.domain_gpus
    together = np.where(plans.next_stage * plans.pp > domain, 1, 2)
    stride = np.maximum(plans.next_stage * (plans.pp - 1) // domain, 1)
    nbytes = 2.0 * plans.width * workload.partition.table
    seconds = all_reduce_s(nbytes, Group(2, together, domain, stride), workload.fabric)
    return np.where(plans.pp > 1, seconds, 0.0)
