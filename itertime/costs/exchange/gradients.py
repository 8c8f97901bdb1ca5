"""The exchange of data-parallel ranks: gradients, and with ZeRO also weights."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from itertime.arrays import Array, Flags, Whole, any_of
from itertime.costs.network import all_gather_s
from itertime.costs.partition import Workload

from .compression import combined_s, in_step, scattered_s
from .groups import Shards, collective_s, data_parallel_group, expert_spread
from .quantised_zero import Moved, moved_s

_TENSORS = 7  # of a layer: queries, keys and values; the projection; three of a gated MLP; two norms


@dataclass(frozen=True)
class Exchange:
    """Seconds to combine all gradients and to gather updated weights on the first stage, the last to finish.

    `reduce_s`, `gather_s`: seconds of `buckets` equal buckets. Where they overlap a pass, these are the
    buckets of the first chunk, since the rest of the pipeline hides those of other chunks; otherwise of all
    chunks. `calls`: buckets of all chunks; a chunk whose gradients are sent at once has one.

    `kernels`: by name and in order, seconds of what the GPU runs on each bucket before it is sent, (plans,).
    `norm_s`: seconds of a norm that is taken once, before or after the exchange. `overlapped`: plans whose
    gradients travel during the last backward pass.

    `late_s`: seconds of what overlaps that pass and goes on after it; None unless a schedule splits it.

    In a share `warmup_share` of the iterations the exchange is the uncompressed `warmup`.
    """

    reduce_s: Array
    gather_s: Array
    buckets: Whole
    calls: Whole
    overlapped: Flags
    norm_s: Array
    kernels: dict[str, Array] = field(default_factory=dict)
    warmup_share: float = 0.0
    warmup: Exchange | None = None
    late_s: Array | None = None

    @property
    def total_s(self) -> Array:
        """Seconds of communication, hidden or not, on average over the run."""
        seconds = self.gather_s + self.reduce_s
        if self.warmup is None:
            return seconds
        return (1 - self.warmup_share) * seconds + self.warmup_share * self.warmup.total_s

    def clipped(self, kernels: dict[str, Array], norm_s: Array, overlapped: Flags) -> Exchange:
        """The exchange with the kernels of clipping, of which only plans in `overlapped` keep the overlap."""
        return replace(self, kernels=kernels, norm_s=norm_s, overlapped=self.overlapped & overlapped)

    def division(self, rows: Whole) -> Exchange:
        """Of several divisions into buckets, (divisions, plans), that of each plan."""
        columns = {
            name: of_division(getattr(self, name), rows)
            for name in ("reduce_s", "gather_s", "buckets", "calls", "late_s")
            if getattr(self, name) is not None
        }
        kernels = {name: of_division(seconds, rows) for name, seconds in self.kernels.items()}
        return replace(self, **columns, kernels=kernels)


def of_division(values: Any, rows: Whole) -> Any:
    """Of `values`, (divisions, plans), those at `rows`; all of them where they are the same in any division,
    (plans,). One column stands for all plans.
    """
    return values if values.ndim == 1 else values[rows, np.arange(len(rows)) % values.shape[1]]


def exchanges(workload: Workload, layers: Whole, shared: Array, experts: Array) -> Exchange:
    """The exchange of a stage with `layers` layers, `shared` and `experts` parameters per GPU, plan by plan,
    (plans,). Where a framework divides a plan's gradients into several buckets, (divisions, plans): in a
    second row the same at once.

    Copies of an expert are ep x etp GPUs apart. Gradients that overlap a pass go in the framework's buckets,
    unless `bucket_bytes` gives their size; without either, or in the step of a 1-bit optimizer, everything of
    a chunk goes at once. Each bucket pays the latency of its own collective (Li et al., PyTorch Distributed,
    VLDB 2020, section 3.2).
    """
    plans, options = workload.plans, workload.plans.options
    late, stated = in_step(options), plans.bucket_bytes > 0
    divides, buckets = plans.grad_overlap | stated, np.ones(len(plans), dtype=np.int64)
    if any_of(divides) or options.clipping == "bucket":  # nothing else depends on their number
        divided = _buckets(workload, layers, (shared + experts) / plans.interleave)
        several = plans.grad_overlap & ~stated & (divided > 1)
        buckets = np.array([divided, np.where(several, 1, divided)]) if any_of(several) else divided
    calls = np.where(divides, buckets, 1) * plans.interleave
    if late:
        calls = np.ones_like(calls)
    ranks, shards = plans.dp * plans.cp, Shards.of(plans)
    reduced, gathered = _sums(workload, shared / calls, ranks, shards, plans.tp)
    if workload.model.is_mixture:
        spacing = expert_spread(plans)
        copies = ranks * plans.tp // spacing
        expert_sums = _sums(workload, experts / calls, copies, shards.of_experts(plans), spacing)
        reduced, gathered = reduced + expert_sums[0], gathered + expert_sums[1]
    nothing = np.zeros(len(plans))
    # Of so many chunks the pipeline hides all but one.
    ahead = 1 if late else np.where(plans.grad_overlap, plans.interleave, 1)
    reduce_s = reduced * calls / (1 if options.clipping == "before" else ahead)
    gather_s = gathered * calls / ahead
    if workload.framework.weight_broadcasts and any_of(plans.shards_optimizer):
        gather_s = _broadcasts_s(workload, layers, shared, ranks)
    return Exchange(
        reduce_s=reduce_s,
        gather_s=gather_s,
        buckets=buckets,
        calls=calls,
        # Gradients of weights that all layers share are complete with those of the first layer.
        overlapped=nothing > 0 if late or workload.model.shares_all_weights else plans.grad_overlap,
        norm_s=nothing,
    )


def _broadcasts_s(workload: Workload, layers: Whole, parameters: Array, ranks: Whole) -> Array:
    """Seconds in which the ranks that share the optimizer's states send their weights to each other, one rank
    after the other, (plans,).

    A broadcast travels the ring of all ranks, as a gather of as many bytes does. Ranks own whole tensors
    (InternEvo, `broadcast_params` of hybrid_zero_optim.py), so there are no more senders than tensors.
    """
    plans, shards = workload.plans, Shards.of(workload.plans)
    owners = shards.optimizer // shards.weights
    senders = np.minimum(owners, np.maximum(_TENSORS * layers, 1))
    group = data_parallel_group(workload, owners, plans.tp * shards.weights)
    nbytes = 2.0 * plans.width * parameters / shards.weights / senders
    gathers = plans.shards_optimizer & (owners > 1)
    return senders * collective_s(all_gather_s, workload, group, gathers, nbytes)


def _buckets(workload: Workload, layers: Whole, parameters: Array) -> Whole:
    """Buckets of the gradients of a chunk with so many parameters on a GPU, of a stage with `layers` layers.

    A plan may state their size. Otherwise it is the framework's (`Framework.bucket_parameters` and the two
    keys after it), or one bucket a layer: what FSDP wraps, so also wherever gradients are scattered.
    """
    plans, framework = workload.plans, workload.framework
    gradient, stated = workload.plans.gradient_bytes, plans.bucket_bytes > 0
    by_layer = np.maximum(layers // plans.interleave, 1)
    of_ranks = np.maximum(framework.bucket_parameters, framework.bucket_parameters_per_rank * plans.dp)
    nbytes = np.maximum(gradient * of_ranks, framework.bucket_bytes)
    by_rule = (nbytes > 0) & (plans.gradient_shards == 1)
    sizes = np.where(stated, plans.bucket_bytes, np.where(by_rule, nbytes, np.inf))
    by_size = np.ceil(gradient * parameters / sizes).astype(np.int64)
    return np.where(stated | by_rule, np.maximum(by_size, 1), by_layer)


def _sums(
    workload: Workload, parameters: Array, ranks: Whole, shards: Shards, spacing: Whole
) -> tuple[Array, Array]:
    """Seconds to combine gradients and to gather weights of `parameters` parameters per GPU, one call each;
    (plans,), or for several divisions (divisions, plans).

    `ranks` ranks, each `spacing` GPUs from the next, hold copies. What every micro-batch scatters
    (`sharded_s`) is already summed within the `shards` of the gradients; what remains is the sum over those
    groups. If all ranks share the optimizer's states, each needs its part of the sum, a reduce-scatter:
    ZeRO-1 over all ranks. Otherwise it is an all-reduce: no ZeRO, or ZeRO in groups, each of which needs the
    whole sum. After the step, weights travel from the shards of the optimizer to those of the weights. PaRO
    (Wu et al. 2023) leaves each of the three whole, or divides it over a group or over all ranks.

    Distributed LAMB in groups sends less: a reduce-scatter within the group, then an all-reduce of each shard
    over the groups (Apex, apex/contrib/optimizers/distributed_fused_lamb.py, `dwu_group_size`).
    """
    plans = workload.plans
    if not any_of(plans.shards_optimizer):  # nor then anything else
        everywhere = np.ones(len(plans), dtype=bool)
        copies = data_parallel_group(workload, ranks, spacing)
        return combined_s(workload, copies, everywhere, parameters), np.zeros(len(plans))
    unsummed = parameters / shards.gradients
    between = data_parallel_group(workload, ranks // shards.gradients, spacing * shards.gradients)
    full_shards = (shards.optimizer == ranks) & (ranks > 1)
    reduced = scattered_s(workload, between, full_shards, unsummed)
    if plans.options.optimizer != "lamb":
        reduced = reduced + combined_s(workload, between, ~full_shards, unsummed)
    else:
        group = shards.optimizer
        scattered = (shards.gradients == 1) & (group > 1) & ~full_shards
        reduced = reduced + combined_s(workload, between, ~full_shards & ~scattered, unsummed)
        group_peers = data_parallel_group(workload, group, spacing)
        group_counterparts = data_parallel_group(workload, ranks // group, spacing * group)
        reduced = reduced + scattered_s(workload, group_peers, scattered, unsummed)
        reduced = reduced + combined_s(workload, group_counterparts, scattered, unsummed / group)
    gathering = data_parallel_group(workload, shards.optimizer // shards.weights, spacing * shards.weights)
    gathers = plans.shards_optimizer & (shards.optimizer > shards.weights)
    nbytes = 2.0 * plans.width * parameters / shards.weights
    return reduced, collective_s(all_gather_s, workload, gathering, gathers, nbytes)


def exposed_s(comm: Array, cover: Array, buckets: Whole, overlap: Flags) -> Array:
    """Seconds of `comm`, sent in equal buckets, that a pass of `cover` seconds does not hide.

    The first bucket is ready after its share of the pass, the last one only at its end.
    """
    if not any_of(overlap):
        return comm
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


def _frozen_moves(workload: Workload, moves: Moved, trained: Array, shards: Shards, spacing: Whole) -> Moved:
    """`moves` of weights that have no gradients: `trained` parameters beside them have, or none."""
    if not any_of(trained > 0):
        backward = moves.backward if workload.model.passes_back else np.zeros(len(workload))
        return replace(moves, backward=backward, scatter=np.zeros(len(workload)))
    return replace(moves, scatter=moved_s(workload, trained, shards, spacing).scatter)


def sharded_s(workload: Workload) -> Sharded:
    """ZeRO-3 gathers a layer's weights before its forward and again before its backward. ZeRO-2 and ZeRO-3
    scatter its gradients afterwards (Zhao et al. 2023, PyTorch FSDP, section 3).

    Nothing precedes the tables of the model's ends and the first layer, so nothing hides their gather. Nor
    does anything hide their scatter after the last micro-batch; without prefetch that of the layer is already
    among those of the pass, none of which anything hides.
    """
    plans, partition = workload.plans, workload.partition
    zero = np.zeros(len(plans))
    shards = Shards.of(plans)
    # Frozen weights of 4 bit travel as they are kept.
    layer = moved_s(workload, workload.model.frozen_bytes / 2 * workload.shared_parameters, shards, plans.tp)
    model, of_experts = workload.model, shards.of_experts(plans)
    if model.weights_frozen:
        layer = _frozen_moves(workload, layer, workload.trained_parameters, shards, plans.tp)
    if model.experts > 1:
        spread, stored_parameters = expert_spread(plans), model.frozen_bytes / 2 * workload.expert_parameters
        expert_moves = moved_s(workload, stored_parameters, of_experts, spread)
        if model.weights_frozen:
            trained = workload.partition.trained_experts[workload.form]
            expert_moves = _frozen_moves(workload, expert_moves, trained, of_experts, spread)
        layer += expert_moves
    root = moved_s(workload, partition.tables, shards, plans.tp)
    root_scatter = root.scatter
    if model.trains_part:
        root_scatter = moved_s(workload, partition.trained_tables, shards, plans.tp).scatter
        root_scatter = np.where(partition.trained_tables > 0, root_scatter, zero)
    last_scatter = np.where(workload.prefetch, layer.scatter, 0.0) + root_scatter
    return Sharded(layer.forward, layer.backward + layer.scatter, root.forward, last_scatter)
