"""The exchange between workers: groups of data-parallel ranks that train alone for `local_steps` iterations.

Within a worker, every iteration is that of a job of its own (`PlanBatch.worker`). After H = `local_steps` of
them the workers exchange, all at the same time, and nothing hides it but of "dreamddp":

- "average": Local SGD averages the weights (Stich, ICLR 2019; McMahan et al., AISTATS 2017, FedAvg). The
  moments of an adaptive optimizer stay with each worker.
- "dreamddp": weights are averaged as above, but each layer in an iteration of its own. Of every H iterations
  each exchanges one H-th of the layers, as soon as they have their update, behind the backward pass of the
  layers before them (DreamDDP, Tang et al. 2025, partial local SGD). The groups are equal here; the paper
  chooses them, and repeats exchanges where there is time.
- "diloco": each worker sends an outer gradient, the difference between the weights that all began with and
  its own. The mean is the gradient of a step with Nesterov momentum (DiLoCo, Douillard et al. 2023, algorithm
  1). A worker keeps the weights it began with, the anchor, and the outer momentum, in 32 bit.
- "des-loc": weights are averaged every H iterations, first moments every `momentum_steps`, second moments
  every `variance_steps` (DES-LOC, Iacob et al. 2025). With one period for all it is Local Adam.

An entry is sent in the bytes of a gradient (4 with `fp32_gradients`, else 2), or in fewer with a compression.
With workers, a compression is that of their exchange alone: gradients within a worker are not compressed.
Exchanges that overlap the next steps are not modelled. Nor is convergence: the number
of steps that local training takes is an input.

Network. A system with a site link has one worker at every site, and all that its GPUs exchange shares the
link of the site. Otherwise workers exchange over NVLink and NICs. A worker's ranks that hold the same
parameters each exchange a part of them, and then gather the whole within the worker.
"""

from __future__ import annotations

import numpy as np

from itertime.arrays import Array, Whole, any_of
from itertime.costs.network import (
    Group,
    all_gather_s,
    all_reduce_between_sites_s,
    all_reduce_s,
    ranks_together,
)
from itertime.costs.offload import copy_s, on_cpu_s
from itertime.costs.partition import Workload
from itertime.spec import Elementwise, PlanOptions

from .compression import SENT_BITS
from .groups import Shards, collective_s, data_parallel_group, expert_spread

AVERAGED_BYTES, MOMENT_BYTES = 10.0, 8.0
"""Bytes that a GPU's memory moves per parameter to apply a mean: it reads the mean and writes the 32-bit
state, of a weight the 16-bit copy too."""
NESTEROV_BYTES = 38.0
"""The same of DiLoCo. The outer gradient: reads weight and anchor, writes the difference (12). The step:
reads the mean, anchor and momentum; writes momentum, anchor and weight, and the 16-bit copy (26)."""
_NO_PASS_S = 1e-300
_ANCHOR_AND_MOMENTUM = 8.0  # bytes, 32 bit each


def outer_sync_s(workload: Workload, shared: Array, experts: Array, backward: Array) -> Array:
    """Seconds of the exchanges between workers, their mean over the iterations, (plans,).

    `shared` and `experts`: parameters of a stage per GPU, as for `exchange`. `backward`: seconds of the last
    backward pass, which hides a part of "dreamddp".
    """
    options, shards = workload.outer, workload.plans.optimizer_shards
    owned = shared / shards + experts / Shards.of(workload.plans).of_experts(workload.plans).optimizer
    nbytes = entry_bytes(workload)
    if options.outer == "dreamddp":
        groups = options.local_steps
        of_group = workers_exchange_s(workload, shared, experts, nbytes / groups)
        step = _step_s(workload, owned, AVERAGED_BYTES, nbytes) / groups
        return exposed_in_turn_s(of_group, backward, groups) + step
    once = workers_exchange_s(workload, shared, experts, nbytes)
    of_weights = NESTEROV_BYTES if options.outer == "diloco" else AVERAGED_BYTES
    weights, *moments = _periods(options)
    seconds = (once + _step_s(workload, owned, of_weights, nbytes)) / weights
    for period in moments:
        seconds = seconds + (once + _step_s(workload, owned, MOMENT_BYTES, nbytes)) / period
    return seconds


def exposed_in_turn_s(of_group: Array, backward: Array, groups: int) -> Array:
    """Seconds that the backward pass does not hide where equal groups of layers exchange in turn, one in an
    iteration; their mean, (plans,). `of_group`: seconds of one exchange.

    The group before which k of G groups lie begins once it has its gradients, and k / G of the pass is left:
    it exposes max(0, e - B k / G). The sum over k has the n = min(G, ceil(e G / B)) first terms.

    >>> exposed_in_turn_s(np.array([1.0, 9.0]), np.array([4.0, 4.0]), 4).tolist()
    [0.25, 7.5]
    """
    with np.errstate(over="ignore"):
        exposing = np.minimum(np.ceil(of_group * groups / np.maximum(backward, _NO_PASS_S)), groups)
    return exposing * (of_group - backward * (exposing - 1) / (2 * groups)) / groups


def workers_exchange_s(
    workload: Workload, shared: Array, experts: Array, bytes_per_parameter: Array
) -> Array:
    """Seconds of one exchange of all workers, each of whose parameters takes so many bytes, (plans,).

    Over the site link, an all-reduce of all that a worker has. Otherwise every GPU all-reduces its part with
    its counterparts in the other workers. Then ranks that hold the same parameters gather the parts.
    """
    plans, system, workers = workload.plans, workload.system, workload.outer.workers
    ranks = plans.dp * plans.cp
    held = Shards.of(plans)
    alone = Shards(ranks, ranks, ranks).of_experts(plans).weights
    if system.site_link_bytes_per_s is not None:
        nbytes = bytes_per_parameter * worker_parameters(workload)
        seconds = all_reduce_between_sites_s(nbytes, workers, plans.gpus, system)
    else:
        nbytes = bytes_per_parameter * (shared / ranks + experts / alone)
        everywhere = np.ones(len(plans), dtype=bool)
        seconds = collective_s(all_reduce_s, workload, _counterparts(workload), everywhere, nbytes)
    seconds = seconds + _gathered_s(workload, bytes_per_parameter * shared, ranks, held.optimizer, plans.tp)
    if any_of(experts):
        owned, spacing = held.of_experts(plans).optimizer, expert_spread(plans)
        seconds = seconds + _gathered_s(workload, bytes_per_parameter * experts, alone, owned, spacing)
    return seconds


def _gathered_s(workload: Workload, nbytes: Array, ranks: Whole, shards: Whole, spacing: Whole) -> Array:
    """Seconds until every rank of a worker has all of its part, one of `shards` of `nbytes` bytes.

    Of `ranks` ranks, each `spacing` GPUs from the next, those with the same part have exchanged a piece each.
    """
    copies = ranks > shards
    if not any_of(copies):
        return np.zeros(len(workload))
    copy_group = data_parallel_group(workload, ranks // shards, spacing * shards)
    return collective_s(all_gather_s, workload, copy_group, copies, nbytes / shards)


def worker_parameters(workload: Workload) -> Array:
    """Trained parameters of one worker, (plans,): the copies that tensor-parallel ranks hold count as such,
    those of data-parallel ranks do not, and a tied table counts once.
    """
    plans, partition, model = workload.plans, workload.partition, workload.model
    shared, experts = partition.trained_parameters(model)
    head = model.trains_head and not model.tied_embeddings
    tables = partition.table * (int(model.trains_embedding) + int(head))
    if partition.trained_front is not None:
        tables = tables + partition.trained_front
    of_layers = (partition.stages * shared).sum(axis=0)
    in_experts: Array = (partition.stages * experts).sum(axis=0) * expert_spread(plans)
    return in_experts + (of_layers + tables) * plans.tp


def entry_bytes(workload: Workload) -> Array:
    """Bytes in which one entry is sent between workers, (plans,), on average over the run; scales of blocks
    are left out.
    """
    full, options = workload.plans.gradient_bytes, workload.outer
    if options.compression == "none":
        return full
    return options.warmup_share * full + (1 - options.warmup_share) * SENT_BITS[options.compression] / 8


def sent_per_iteration(options: PlanOptions) -> float:
    """Entries that workers exchange per parameter and iteration, the mean over the iterations; plain data
    parallelism exchanges one.

    >>> 1 / sent_per_iteration(PlanOptions(workers=8, local_steps=500, outer="diloco"))
    500.0
    """
    return sum(1 / period for period in _periods(options))


def outer_state_bytes(options: PlanOptions) -> float:
    """Bytes of GPU memory per parameter that a rank owns for what workers keep from one exchange to the
    next.
    """
    return _ANCHOR_AND_MOMENTUM if options.workers > 1 and options.outer == "diloco" else 0.0


def _periods(options: PlanOptions) -> tuple[int, ...]:
    """Iterations between two exchanges: of the weights, and of each of the moments that are exchanged."""
    steps = options.local_steps
    if options.outer != "des-loc":
        return (steps,)
    return steps, options.momentum_steps or steps, options.variance_steps or steps


def _counterparts(workload: Workload) -> Group:
    """The group of the GPUs that have the same place in every worker; workers are numbered last."""
    plans, system = workload.plans, workload.system
    domain, workers = system.domain_gpus, np.full(len(plans), workload.outer.workers)
    local = ranks_together(workers, np.maximum(domain // plans.gpus, 1), system)
    return Group.side_by_side(workers, local, system, np.maximum(plans.gpus // domain, 1))


def _step_s(workload: Workload, owned: Array, nbytes: float, sent: Array) -> Array:
    """Seconds to apply what was exchanged: `nbytes` bytes of memory traffic for each of `owned` parameters.

    Where the CPU keeps the states, what is exchanged travels from and to the CPU, `sent` bytes an entry.
    """
    plans, system = workload.plans, workload.system
    seconds = workload.profile.seconds(Elementwise(nbytes * owned, "adam")) / system.site.hbm_fraction
    if not any_of(plans.offload_optimizer):
        return seconds
    on_cpu = on_cpu_s(nbytes * owned, system) + copy_s(2 * sent * owned, system)
    return np.where(plans.offload_optimizer, on_cpu, seconds)
