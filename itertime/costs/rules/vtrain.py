"""An iteration by the rules of vTrain's public artifact.

The source is VIA-Research/vTrain, commit f8dda84, src/predictor.py; the paper is Bang et al., MICRO 2024.
Kernels, their times, parameters of a stage and memory are those of this package. The rest is as there:

| what | rule |
|---|---|
| 1F1B | Megatron's order; layers evenly, the embedding on the first stage, the logits on the last |
| tensor parallelism | two all-reduces of a layer's activations forward and two backward, none of the ends |
| recomputation | the kernels of a stage's forward pass once more, without all-reduces; none on the last \
stage. It needs no gradients, so a stage repeats before they come (`StageTimes.ahead`) |
| sends | the stage waits for them: twice the activations of a micro-batch over a quarter of the node's \
NICs, after each forward pass but the last stage's, and each backward pass but the first stage's |
| gradients | one all-reduce of a stage's in 16 bit after the last backward pass, hidden by nothing; then \
the optimizer's step |
| all-reduces | in a node NCCL's times of the profile; else 2 (n - 1) / n of the bytes at NVLink's pace. \
Gradients of plans whose tensor parallelism fills the node: at the pace of all of its NICs |
| units | links of so many Gb/s carry 2^30 / 8 bytes for each |

Nothing else takes time: no launches, no constants of framework and site beside those of kernels, no exchange
of the embedding's gradients, no clipping, and no latency of the network.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from itertime.arrays import Array, Whole
from itertime.costs.exchange import Exchange, optimizer_s
from itertime.costs.layer import Parts
from itertime.costs.network import Group, all_reduce_s
from itertime.costs.parallel_comm import summed_blocks
from itertime.costs.partition import Workload
from itertime.costs.passes import MICRO_BATCH_COLUMNS, micro_batch_passes
from itertime.costs.stage import StageCosts
from itertime.schedule import FIRST, LAST, kind_column
from itertime.spec import RECOMPUTE

UNIT = 2**30 / 1e9
"""Bytes that the artifact takes for one of 10^9."""
SEND_SHARE = 0.25
"""Of the node's NICs, that a send from one stage to the next gets."""
_KIND = kind_column(4)
_KERNELS = ("gemm", "attention", "elementwise")
_FULL = RECOMPUTE.index("full")


def stage_costs(workload: Workload) -> StageCosts:
    """All parts of an iteration's time; what remains is the order in which the stages run."""
    plans, model = workload.plans, workload.model
    rows, where = plans.distinct(MICRO_BATCH_COLUMNS)
    distinct = workload.take(rows)
    passes = [one.take(where) for one in micro_batch_passes(distinct, np.zeros(len(rows)))]
    reduced = _in_node_or_over_s(distinct, _activation_bytes(distinct), distinct.plans.tp)[where]
    layers, send_s = workload.partition.layers, _send_s(workload)
    costs: list[Parts] = []
    for micro_batch, end in zip(passes, (LAST, FIRST), strict=True):
        parts = {name: layers * micro_batch.layers[0][name] for name in _KERNELS}
        parts["tp_comm"] = layers * summed_blocks(model) * reduced
        parts["embedding"] = np.where(workload.has_embedding, micro_batch.embedding, 0.0)
        parts["head"] = np.where(_KIND == LAST, micro_batch.head, 0.0)
        parts["p2p"] = np.where(end == _KIND, 0.0, send_s)
        costs.append(parts)
    forward, backward = costs
    again = sum((forward[name] for name in (*_KERNELS, "embedding")), np.zeros(layers.shape))
    backward["recompute"] = np.where((_KIND != LAST) & (plans.recompute == _FULL), again, 0.0)
    once, exchange = _once(workload)
    return StageCosts(workload, forward, backward, once, exchange, ahead=("recompute",))


def _once(workload: Workload) -> tuple[Parts, Exchange]:
    """Seconds by part that an iteration spends once, on the first stage, which holds most; its exchange."""
    plans, partition = workload.plans, workload.partition
    kind, column = np.where(plans.pp == 1, LAST, FIRST), np.arange(len(plans))
    parameters = partition.layer_parameters[0][kind, column] + partition.tables
    summed_s = _gradients_s(workload, 2.0 * parameters)
    nothing, single = np.zeros(len(plans)), np.ones(len(plans), dtype=np.int64)
    exchange = Exchange(summed_s, nothing, single, single, overlapped=nothing > 0, norm_s=nothing)
    step = optimizer_s(workload, parameters, nothing, partition.layers[kind, column])
    return {"dp_comm": summed_s, "optimizer": step["optimizer"]}, exchange


def _gradients_s(workload: Workload, nbytes: Array) -> Array:
    """Seconds of one all-reduce of `nbytes` bytes of gradients among the data-parallel ranks."""
    plans, system = workload.plans, workload.system
    beyond = nbytes * _passed(plans.dp) / (system.domain_nic_bytes_per_s * UNIT)
    together = _in_node_or_over_s(workload, nbytes, plans.dp)
    return np.where(plans.tp < system.domain_gpus, together, beyond)


def _in_node_or_over_s(workload: Workload, nbytes: Array, ranks: Whole) -> Array:
    """Seconds of an all-reduce of `nbytes` bytes: NCCL's in a node, else at the pace of NVLink."""
    system = workload.system
    local = np.minimum(ranks, system.domain_gpus)
    in_node = all_reduce_s(nbytes, Group.side_by_side(local, local, system), workload.fabric)
    over = nbytes * _passed(ranks) / (system.nvlink_bytes_per_s * UNIT)
    return np.where(ranks <= system.domain_gpus, in_node, over)


def _passed(ranks: ArrayLike) -> Array:
    """Bytes that a rank of a ring passes on in an all-reduce, over those of its buffer."""
    return 2 * (np.asarray(ranks) - 1) / np.asarray(ranks)


def _send_s(workload: Workload) -> Array:
    """Seconds for which a send to the next stage, or back, keeps its stage waiting."""
    pace = SEND_SHARE * workload.system.domain_nic_bytes_per_s * UNIT
    return np.where(workload.plans.pp > 1, 2 * _activation_bytes(workload) / pace, 0.0)


def _activation_bytes(workload: Workload) -> Array:
    """Bytes of a micro-batch's activations between layers, in 16 bit."""
    return 2.0 * workload.tokens * workload.model.hidden
