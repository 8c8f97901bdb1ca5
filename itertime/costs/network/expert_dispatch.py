"""Seconds to take tokens to the ranks of their experts (dispatch) and the results back (combine).

NCCL's all-to-all moves a copy of a token for each of its experts. DeepEP (Zhao et al., 2025) sends a token
once to each *rank* that holds one of its experts; between nodes once to each *node*, to the GPU of the
sender's own number there, which passes it on over NVLink. The way back sums on the same path.

DeepEP's kernels, of T tokens a rank, d ranks that a token reaches, row bytes b, s multiprocessors:

- in a node: a + T ((work/s)^4 + link^4)^(1/4), with work = p + q b + d (u + v b) seconds of one
  multiprocessor and link = d b / (f x NVLink's bandwidth). `IN_NODE` has a, p, q, u, v, f of each direction,
  fitted to H100 and B200 with hidden 2,048 and 7,168.
- across N nodes: the square root of the sum of the squares of that time, with all ranks that tokens reach,
  and of T r b / B, where r of a token's nodes are not its own, and B is the GPU's share of the NICs; and
  `NOTIFY_S`, in which the ranks tell each other how much will come.

HybridEP copies by the tensor memory accelerator of 16 multiprocessors, so NVLink decides alone: a + T d b /
(f (8/P)^g x NVLink's bandwidth) among P ranks, 8 at least. `HYBRID_EP` has f and g, fitted to the kernels'
bandwidths on 8 B200 and on 8 to 36 GB200 (deepseek-ai/DeepEP, docs/README_Hybrid-EP.md, 4,096 tokens of 7,168
in 16 bit), to 1.3 % in the mean. `python benchmarks/expert_dispatch.py` fits DeepEP's, and compares.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from itertime.arrays import Array
from itertime.spec import System

from .collectives import all_to_all_s, all_to_all_share
from .group import Fabric, Group

MULTIPROCESSORS = 20
"""Of a GPU, that DeepEP takes; its own default and Megatron Core's."""
NOTIFY_S = 55e-6
"""Median of DeepEP's notification among 2 and 4 nodes of H100, 256 to 4,096 tokens."""


class DeepEpKernel(NamedTuple):
    """DeepEP within a node: seconds, seconds a token, a byte, a copy, a byte copied; a share of NVLink."""

    start_s: float
    token_s: float
    byte_s: float
    copy_s: float
    copied_byte_s: float
    link: float


IN_NODE = {
    "dispatch": DeepEpKernel(3.921e-5, 1.917e-7, 2.056e-13, 1.006e-7, 3.820e-11, 0.9571),
    "combine": DeepEpKernel(5.778e-5, 3.741e-8, 5.607e-11, 4.863e-8, 3.438e-11, 0.8928),
}
HYBRID_EP = {"dispatch": (0.8999, 0.1506), "combine": (0.8537, 0.1911)}
"""HybridEP within a node: the share of NVLink among 8 ranks, and the power of ranks with which it falls."""


@dataclass(frozen=True)
class RoutedTokens:
    """Tokens of one rank on their way to experts; arrays broadcast.

    Each token goes to `copies` different ones of `experts` experts, drawn alike unless a router keeps it to
    `most_nodes` nodes (DeepSeek-V3: 4). `row_bytes` are those of one token: hidden x 2 in bf16,
    hidden x (1 + 4/128) in fp8 with a scale per 128 elements.
    """

    tokens: ArrayLike
    row_bytes: ArrayLike
    copies: int
    experts: int
    most_nodes: int | None = None


def dispatch_s(
    routed: RoutedTokens,
    group: Group,
    fabric: Fabric,
    dispatcher: str = "alltoall",
    multiprocessors: int = MULTIPROCESSORS,
) -> Array:
    """Seconds to take `routed` to the experts of the group's ranks.

    `dispatcher` is one of `itertime.spec.DISPATCHERS`. A single rank takes no time. Predictions use the
    default of `multiprocessors`; `benchmarks/expert_dispatch.py` compares other counts with published
    measurements.
    """
    return _exchange_s("dispatch", routed, group, fabric, dispatcher, multiprocessors)


def combine_s(
    routed: RoutedTokens,
    group: Group,
    fabric: Fabric,
    dispatcher: str = "alltoall",
    multiprocessors: int = MULTIPROCESSORS,
) -> Array:
    """Seconds to take the experts' results back, as `dispatch_s`; results are 16 bit in every framework."""
    return _exchange_s("combine", routed, group, fabric, dispatcher, multiprocessors)


def distinct_parts(experts: int, copies: int, parts: ArrayLike) -> Array:
    """Of `parts` ranks or nodes with equally many `experts`, those that a token with `copies` different ones
    reaches, on average.

    A part of g of E experts holds none of them with the probability (E-g)/E x (E-g-1)/(E-1) x ...

    >>> float(distinct_parts(8, 2, 8))
    2.0
    """
    count = np.asarray(parts, dtype=float)
    drawn = np.arange(copies).reshape(-1, *[1] * count.ndim)
    missed = np.maximum(experts - experts / count - drawn, 0.0) / (experts - drawn)
    return np.asarray(count * (1 - missed.prod(axis=0)))


def _exchange_s(
    direction: str,
    routed: RoutedTokens,
    group: Group,
    fabric: Fabric,
    dispatcher: str,
    multiprocessors: int,
) -> Array:
    system = fabric.system
    tokens, row = np.asarray(routed.tokens, dtype=float), np.asarray(routed.row_bytes, dtype=float)
    if dispatcher == "alltoall":
        return all_to_all_s(routed.copies * tokens * row, group, fabric)
    ranks = np.asarray(group.ranks)
    reached = distinct_parts(routed.experts, routed.copies, ranks)
    local = np.minimum(group.ranks_per_node, ranks)
    if dispatcher == "hybridep":
        in_node = _hybrid_ep_s(direction, tokens * row * reached, local, system)
    else:
        in_node = _deep_ep_s(IN_NODE[direction], tokens, row, reached, system, multiprocessors)
    nodes = np.ceil(ranks / local)
    across = tokens * _other_nodes(routed, nodes) * row / _gpu_bytes_per_s(nodes, system)
    seconds = np.where(nodes > 1, np.hypot(in_node, across) + NOTIFY_S, in_node)
    return np.where((ranks > 1) & (tokens > 0), seconds, 0.0)


def _deep_ep_s(
    kernel: DeepEpKernel,
    tokens: Array,
    row: Array,
    reached: Array,
    system: System,
    multiprocessors: int,
) -> Array:
    """Seconds of what NVLink carries: every copy that a rank passes on, its own among them."""
    link = reached * row / (kernel.link * system.nvlink_bytes_per_s)
    work = kernel.token_s + kernel.byte_s * row + reached * (kernel.copy_s + kernel.copied_byte_s * row)
    return kernel.start_s + tokens * np.sqrt(np.sqrt((work / multiprocessors) ** 4 + link**4))


def _hybrid_ep_s(direction: str, nbytes: Array, ranks: ArrayLike, system: System) -> Array:
    """Seconds of HybridEP's kernel, which takes `nbytes` bytes to a GPU among `ranks` ranks of its node."""
    share, power = HYBRID_EP[direction]
    achieved = share * (8 / np.maximum(ranks, 8)) ** power
    return IN_NODE[direction].start_s + nbytes / (achieved * system.nvlink_bytes_per_s)


def _other_nodes(routed: RoutedTokens, nodes: Array) -> Array:
    """Nodes other than its own that a token has to reach, on average."""
    if routed.most_nodes is None:
        reached = distinct_parts(routed.experts, routed.copies, nodes)
    else:
        allowed = np.minimum(nodes, routed.most_nodes)
        experts = routed.experts * allowed / nodes
        missed = np.ones_like(nodes)
        for drawn in range(routed.copies):
            missed = missed * np.maximum(experts * (1 - 1 / allowed) - drawn, 0.0) / (experts - drawn)
        reached = allowed * (1 - missed)
    return reached * (1 - 1 / nodes)


def _gpu_bytes_per_s(nodes: Array, system: System) -> Array:
    """Bytes/s of one GPU through its part of the NICs."""
    share = np.minimum(system.domain_nic_bytes_per_s / system.domain_gpus, system.gpu_nic_bytes_per_s)
    return system.achieved_network * share * all_to_all_share(nodes, 1, system)
