"""What ranks send in place of their gradients: collectives, volumes and error buffers.

What a compression does to convergence is not predicted. The number of steps is an input, and so is the share
of them that a warm-up sends in full (`PlanOptions.warmup_share`).

Bytes that each of P ranks sends for one parameter with bandwidth-optimal collectives. A gradient has g bytes,
and p = (P-1)/P:

| compression | bytes |
|---|---|
| none | 2 p g |
| fp16, fp8 | 4 p, 2 p |
| int8, int4 | 2 p, p (in place of a reduce-scatter p, p / 2) |
| topk, of which a share d of the entries is sent | (P-1) d (g + 4) |
| powersgd | 2 p g x share of factors and vectors in the parameters |
| onebit-adam, onebit-lamb, zeroone-adam | p / 4 |

- fp16 and fp8 are all-reduces of 2 and 1 bytes; fp8 has one of the buckets' scales before them (FP8-LM, Peng
  et al. 2023, section 2.1).
- Integers cannot be summed in transit, because the sum needs more bits. An all-to-all within the node, a sum,
  an all-to-all between nodes and another sum make a reduce-scatter (qgZ of ZeRO++, Wang et al. 2023, section
  3.3). An all-gather of the sums completes an all-reduce.
- topk gathers values and 32-bit indices of all ranks, so its volume grows with their number (Lin et al. 2018,
  DGC, section 3).
- powersgd all-reduces both low-rank factors of every matrix, and vectors as they are (Vogels et al. 2019,
  algorithm 1).
- 1-bit optimizers send the signs of their momentum by an all-to-all, sum, and gather the signs of the sums
  (1-bit Adam, Tang et al. 2021, algorithm 1).

1-bit optimizers exchange inside their step, after the backward pass (DeepSpeed, `OnebitAdam.step`), so
nothing hides it. All others are hooks on a bucket of gradients (PyTorch, `ddp_comm_hooks`), which leave the
overlap of the buckets' collectives with the backward pass as it is.
"""

from __future__ import annotations

import numpy as np

from itertime.arrays import Array, Flags, any_of
from itertime.costs.network import Group, all_gather_s, all_reduce_s, all_to_all_s, reduce_scatter_s
from itertime.costs.partition import Workload
from itertime.spec import ONE_BIT, PlanOptions

from .groups import collective_s
from .power_sgd import power_factors

SENT_BITS = {"fp16": 16, "fp8": 8, "int8": 8, "int4": 4, **dict.fromkeys(ONE_BIT, 1)}
"""Bits of a gradient as it is sent, by compression, scales apart."""
INDEX_BYTES = 4.0
"""Of the index of an entry that top-k sends: a 32-bit number."""
SCALE_BYTES = 4.0
"""A 32-bit scale per row of `hidden` integers (DeepSpeed 0.10.3, `all_to_all_quant_reduce`)."""


def in_step(options: PlanOptions) -> bool:
    """Whether the exchange is part of the optimizer's step, where no pass hides it."""
    return options.compression in ONE_BIT


def combined_s(workload: Workload, group: Group, senders: Flags, parameters: Array) -> Array:
    """Seconds until every rank of the `group` has the sum of the gradients of `parameters` parameters.

    0 in plans that are no `senders`. Of 0/1 Adam: on average over the iterations, of which every
    `local_steps`-th exchanges.
    """
    options, gradient = workload.plans.options, workload.plans.gradient_bytes
    compression, bits = options.compression, SENT_BITS.get(options.compression, 0)
    if compression == "none":
        return collective_s(all_reduce_s, workload, group, senders, gradient * parameters)
    if compression in ("fp16", "fp8"):
        sent = collective_s(all_reduce_s, workload, group, senders, bits / 8 * parameters)
        return sent + _scales_s(workload, group, senders & (parameters > 0))
    if not any_of(senders):
        return np.zeros(len(senders))
    if compression == "topk":
        entry_bytes = options.compression_density * parameters * (gradient + INDEX_BYTES)
        return collective_s(all_gather_s, workload, group, senders, group.ranks * entry_bytes)
    if compression == "powersgd":
        shares = power_factors(workload).shares
        return sum(
            (
                collective_s(all_reduce_s, workload, group, senders, share * gradient * parameters)
                for share in shares
            ),
            np.zeros(len(workload)),
        )
    gathered = collective_s(all_gather_s, workload, group, senders, _integer_bytes(workload) * parameters)
    if compression not in ONE_BIT:
        return scattered_s(workload, group, senders, parameters) + gathered
    gap = options.local_steps if compression == "zeroone-adam" else 1
    return (collective_s(all_to_all_s, workload, group, senders, bits / 8 * parameters) + gathered) / gap


def scattered_s(workload: Workload, group: Group, senders: Flags, parameters: Array) -> Array:
    """Seconds until every rank of the `group` has its part of the sum of the gradients of `parameters`
    parameters, of which it has its own; 0 in plans that are no `senders`.

    Compressions that need the whole gradient on every rank scatter nothing (`spec.broken_options`).
    """
    compression = workload.plans.options.compression
    if compression == "none":
        nbytes = workload.plans.gradient_bytes * parameters
        return collective_s(reduce_scatter_s, workload, group, senders, nbytes)
    if not any_of(senders) or compression in (*ONE_BIT, "topk", "powersgd"):
        return np.zeros(len(senders))
    if compression in ("fp16", "fp8"):
        nbytes = SENT_BITS[compression] / 8 * parameters
        sent = collective_s(reduce_scatter_s, workload, group, senders, nbytes)
        return sent + _scales_s(workload, group, senders & (parameters > 0))
    local = group.ranks_per_node
    nodes = -(-group.ranks // local)
    node_group = group._replace(ranks=local)
    node_peers = Group(nodes, np.ones_like(nodes), group.nic_sharers * local, group.stride)
    nbytes = _integer_bytes(workload) * parameters
    return collective_s(all_to_all_s, workload, node_group, senders, nbytes) + collective_s(
        all_to_all_s, workload, node_peers, senders, nbytes / local
    )


def _integer_bytes(workload: Workload) -> float:
    """Bytes of a parameter's gradient in `int8`, `int4` or signs; a sign's scale belongs to the whole."""
    compression = workload.plans.options.compression
    scales = 0.0 if compression in ONE_BIT else SCALE_BYTES / workload.model.hidden
    return SENT_BITS[compression] / 8 + scales


def _scales_s(workload: Workload, group: Group, senders: Flags) -> Array:
    """Seconds to agree on the scale of a bucket in fp8, the smallest of all ranks'."""
    if workload.plans.options.compression != "fp8":
        return np.zeros(len(workload))
    return collective_s(all_reduce_s, workload, group, senders, np.full(len(workload), SCALE_BYTES))


def error_bytes(workload: Workload) -> Array | float:
    """Bytes that a compression keeps for every parameter whose gradient it sends, (plans,); 0 for none.

    1-bit Adam has a worker's error in 32 bit and a server's for a rank's chunk (Tang et al. 2021, algorithm
    1). 1-bit LAMB has a fresh variance in addition (Li et al. 2021), 0/1 Adam the momentum since the last
    exchange (Lu et al. 2022), each in 32 bit. Top-k and PowerSGD keep what they did not
    send in the precision of gradients (Lin et al. 2018, section 3; PyTorch's `PowerSGDState.error_dict`).
    """
    plans = workload.plans
    compression = plans.options.compression
    if compression in ("topk", "powersgd"):
        return workload.plans.gradient_bytes
    if compression not in ONE_BIT:
        return 0.0
    momentum = 0.0 if compression == "onebit-adam" else 4.0
    return 4.0 + 4.0 / (plans.dp * plans.cp) + momentum
