"""Groups of data-parallel ranks that communicate, and a collective of such groups."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from itertime.arrays import Array, Flags, Whole, any_of
from itertime.costs.network import Fabric, Group, all_reduce_s, ranks_together
from itertime.costs.partition import Workload
from itertime.spec import PlanBatch

LEAST_BYTES = 512.0  # of the collectives that profiles measure


def expert_spread(plans: PlanBatch) -> Whole:
    """GPUs that hold different experts, or parts of them: copies of an expert are so many GPUs apart."""
    return plans.ep * plans.etp


def expert_copies(plans: PlanBatch, group: Whole) -> Whole:
    """GPUs that share an expert's shards where `group` data-parallel ranks share those of the rest."""
    return np.maximum(group * plans.tp // expert_spread(plans), 1)


def copies_of_states(plans: PlanBatch) -> Array | float:
    """Copies of a stage that share the optimizer's states, (plans,): the two of a plan whose micro-batches
    enter at both ends, where ranks share them.
    """
    if not plans.splits_backward:
        return 1.0
    return np.where(plans.both_ways & plans.shards_optimizer, 2.0, 1.0)


@dataclass(frozen=True)
class Shards:
    """Ranks that share one copy of the weights, of the gradients and of the optimizer's states, (plans,)."""

    weights: Whole
    gradients: Whole
    optimizer: Whole

    @classmethod
    def of(cls, plans: PlanBatch) -> Shards:
        """Those of all parameters but experts."""
        return cls(plans.weight_shards, plans.gradient_shards, plans.optimizer_shards)

    def of_experts(self, plans: PlanBatch) -> Shards:
        """The same of experts, of which there are fewer copies. What one rank alone holds nothing shares,
        though `etp` < `tp` leaves several copies of an expert in one such rank.
        """
        weights, gradients, optimizer = (
            np.where(ranks > 1, expert_copies(plans, ranks), 1)
            for ranks in (self.weights, self.gradients, self.optimizer)
        )
        return Shards(weights, gradients, optimizer)


def collective_s(
    operation: Callable[[Array, Group, Fabric], Array],
    workload: Workload,
    group: Group,
    senders: Flags,
    nbytes: Array,
) -> Array:
    """Seconds of the operation; 0 in plans that are no `senders`, and the profile is not asked for them."""
    if not any_of(senders):
        return np.zeros(len(senders))
    seconds = operation(np.where(senders, nbytes, 0.0), group, workload.fabric)
    return np.where(senders, seconds, 0.0)


def data_parallel_group(workload: Workload, ranks: Whole, spacing: Whole) -> Group:
    """The group of `ranks` data-parallel ranks, each `spacing` GPUs of its stage from the next.

    Ranks count tp first, then cp, dp, pp (SC'21, section 3); or dp last, and then the stages of a pipeline
    lie between neighbouring ranks.
    """
    plans, system = workload.plans, workload.system
    domain = system.domain_gpus
    stage_spacing = spacing * np.where(plans.pp_before_dp, plans.pp, 1)
    local = ranks_together(ranks, np.maximum(domain // stage_spacing, 1), system)
    if any_of(plans.pp_before_dp):
        together = np.minimum(plans.cp * plans.tp // spacing, domain // plans.tp)
        local = np.where(plans.pp_before_dp, np.maximum(local, np.minimum(ranks, together)), local)
    return Group.side_by_side(ranks, local, system, np.maximum(stage_spacing // domain, 1))


def norm_sums_s(workload: Workload, nbytes: Array | float, group: Whole, stages: bool = True) -> Array:
    """Seconds to add up `nbytes` bytes of norms over the ranks that hold the parts of one copy of the model.

    Tensor and pipeline parallelism divide a copy, experts do, and so does a `group` of data-parallel ranks
    that shares the rest. Without `stages`, each stage adds up its own. Fewer bytes than profiles measure
    take as long as the fewest that they do: the latency of a message.
    """
    plans, domain = workload.plans, workload.system.domain_gpus
    divided = group
    if workload.model.is_mixture:
        divided = np.maximum(group, -(-expert_spread(plans) // plans.tp))
    local = np.minimum(data_parallel_group(workload, divided, plans.tp).ranks_per_node * plans.tp, domain)
    ranks = divided * plans.tp
    if stages:
        local = np.where(plans.next_stage * plans.pp <= domain, local * plans.pp, local)
        ranks = ranks * plans.pp
    return all_reduce_s(np.maximum(nbytes, LEAST_BYTES), Group(ranks, local), workload.fabric)
