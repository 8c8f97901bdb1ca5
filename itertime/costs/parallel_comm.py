"""Seconds of communication in one layer on one micro-batch: tensor and context parallelism.

Ranks count tp first, then cp, then dp. What brings tokens to experts is in `mixture.py`.
"""

from __future__ import annotations

import numpy as np

from itertime.arrays import Array, Whole, any_of
from itertime.spec import CP_EXCHANGES, Elementwise, ModelSpec

from .network import Group, all_gather_s, all_reduce_s, all_to_all_s, p2p_s, ranks_together, reduce_scatter_s
from .partition import Workload

_GATHER, _ALL_TO_ALL = CP_EXCHANGES.index("gather"), CP_EXCHANGES.index("ulysses")


def activation_all_reduce_s(workload: Workload) -> Array:
    """Seconds to sum one micro-batch's activations, 2 s b h bytes or twice that, over the group's ranks.

    Under sequence parallelism it is a reduce-scatter and an all-gather. Between nodes both are rings, which a
    tree of an all-reduce is not; within a node they take about as long as the all-reduce.
    """
    plans = workload.plans
    if not any_of(plans.tp > 1):
        return np.zeros(len(plans))
    nbytes, group, fabric = _activation_bytes(workload), tensor_group(workload), workload.fabric
    summed = all_reduce_s(nbytes, group, fabric)
    in_rings = plans.sequence_parallel & (plans.tp > group.ranks_per_node)
    if not in_rings.any():
        return summed
    scattered = reduce_scatter_s(nbytes, group, fabric)
    return np.where(in_rings, scattered + all_gather_s(nbytes, group, fabric), summed)


def tensor_parallel_s(workload: Workload, reduced: Array) -> tuple[Array, Array]:
    """Forward and backward: two all-reduces of the activations each way (Shoeybi et al. 2019).

    Under sequence parallelism each is a reduce-scatter and an all-gather of the same volume, and the backward
    pass gathers both inputs once more (Korthikanti et al. 2022, section 4.2.2). A parallel block sums the
    outputs of attention and MLP at once, and the gradients of their one input (GPT-J; PaLM, Chowdhery et al.
    2022, section 2). A mixture's experts have their own group (`mixture.py`); beside attention only an MLP
    that every token passes is summed here. `reduced`: `activation_all_reduce_s`.
    """
    plans = workload.plans
    if not any_of(plans.tp > 1):
        return reduced, reduced
    blocks = summed_blocks(workload.model)
    sums = blocks * reduced
    if workload.model.cross_attention:
        return _with_cross_attention(workload, sums)
    if not any_of(plans.sequence_parallel):
        return sums, sums
    gathered = all_gather_s(_activation_bytes(workload), tensor_group(workload), workload.fabric)
    return sums, sums + np.where(plans.sequence_parallel, blocks * gathered, 0.0)


def _with_cross_attention(workload: Workload, sums: Array) -> tuple[Array, Array]:
    """`tensor_parallel_s` of layers that attend to the encoder's output too: backward the gradients of that
    output are summed as well; under sequence parallelism each layer gathers it, in both passes.
    """
    plans, group, fabric = workload.plans, tensor_group(workload), workload.fabric
    output = 2.0 * plans.width * workload.model.hidden * workload.cross_tokens
    backward = sums + all_reduce_s(output, group, fabric)
    if not any_of(plans.sequence_parallel):
        return sums, backward
    inputs = summed_blocks(workload.model) * all_gather_s(_activation_bytes(workload), group, fabric)
    gathered, again = all_gather_s(output, group, fabric), plans.sequence_parallel
    return sums + np.where(again, gathered, 0.0), backward + np.where(again, inputs + gathered, 0.0)


def summed_blocks(model: ModelSpec) -> int:
    """Outputs of a layer that tensor-parallel ranks sum: attention's and an MLP's, unless they are one."""
    if model.parallel_block:
        return 1
    return model.additions - int(model.experts > 1 and not model.shared_ffn_hidden)


def context_parallel_s(workload: Workload, attention: tuple[Array, Array]) -> tuple[Array, Array]:
    """Forward and backward seconds that moving keys and values adds to `attention`, the passes' kernels.

    Ring: in each of cp - 1 steps a rank sends its block on while it works on it; the part that a step's share
    of the kernel does not cover is exposed. Backward, the blocks' gradients travel with them (Liu et al.
    2023, section 3). Gather: one all-gather before the kernel; backward another, and a reduce-scatter of the
    gradients, all exposed. All-to-all: `_heads_exchanged_s`, all exposed.
    """
    model, plans, fabric = workload.model, workload.plans, workload.fabric
    kv_heads = np.minimum(plans.tp, model.kv_heads)
    row = 2.0 * (model.key_width + model.v_hidden) if model.latent_kv else 4.0 * model.kv_hidden
    block = row * workload.tokens / kv_heads
    group = neighbours(workload, plans.cp, plans.tp)
    steps = plans.cp - 1
    across = plans.cp > group.ranks_per_node
    # One rank at either end of a domain's part of the ring sends to another domain.
    ring = []
    for blocks, kernel in zip((1, 2), attention, strict=True):
        sent = p2p_s(blocks * block, across, fabric, group.nic_sharers)
        ring.append(np.multiply(steps, np.maximum(sent - kernel / plans.cp, 0.0)))
    if not any_of(plans.cp_exchange):
        return ring[0], ring[1]
    forward, backward = ring
    is_gather, by_heads = plans.cp_exchange == _GATHER, plans.cp_exchange == _ALL_TO_ALL
    if any_of(is_gather):
        gathered = all_gather_s(block * plans.cp, group, fabric)
        scattered = reduce_scatter_s(block * plans.cp, group, fabric)
        forward = np.where(is_gather, gathered, forward)
        backward = np.where(is_gather, gathered + scattered, backward)
    if any_of(by_heads):
        heads = _heads_exchanged_s(workload, group)
        forward, backward = np.where(by_heads, heads[0], forward), np.where(by_heads, heads[1], backward)
    return forward, backward


def _heads_exchanged_s(workload: Workload, group: Group) -> tuple[Array, Array]:
    """Forward and backward seconds of exchanging a part of the tokens for a part of the heads.

    Queries, keys, values and the output each have an all-to-all of their own; backward the output, its
    gradient and those of queries, keys and values. Attention in 8 bit sends 8 bit. What is sent is put in
    order before and after (Transformer Engine, `AttnFuncWithCPAndQKVOA2A`, `flash_attn_a2a_communicate`).
    """
    model, plans, tokens = workload.model, workload.plans, workload.tokens / workload.plans.tp
    width = 1.0 if plans.options.attention_precision == "fp8" else 2.0 * plans.width
    values = model.v_hidden if model.latent_kv else model.kv_hidden
    query, key, value, output = (
        _all_to_all_in_order_s(width * tokens * columns, group, workload)
        for columns in (model.query_width, model.key_width, values, model.v_hidden)
    )
    inputs = query + key + value
    exchanged = np.where(plans.cp > 1, inputs + output, 0.0)
    return exchanged, np.where(plans.cp > 1, exchanged + output, 0.0)


def _all_to_all_in_order_s(nbytes: Array, group: Group, workload: Workload) -> Array:
    moved = workload.profile.seconds(Elementwise(4.0 * nbytes)) / workload.system.site.hbm_fraction
    return all_to_all_s(nbytes, group, workload.fabric) + moved


def _activation_bytes(workload: Workload) -> Array:
    return 2.0 * workload.plans.width * workload.model.hidden * workload.tokens


def tensor_group(workload: Workload) -> Group:
    """The tensor-parallel group of every plan: ranks beside one another."""
    tp, system = workload.plans.tp, workload.system
    return Group.side_by_side(tp, ranks_together(tp, system.domain_gpus, system), system)


def neighbours(workload: Workload, ranks: Whole, spacing: Whole) -> Group:
    """The group of `ranks` ranks, `spacing` GPUs from one to the next; as many as fit fill a domain."""
    system = workload.system
    local = ranks_together(ranks, np.maximum(system.domain_gpus // spacing, 1), system)
    return Group.side_by_side(ranks, local, system)
