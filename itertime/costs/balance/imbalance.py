"""What different lengths of samples cost: the slowest rank's extra time, and the exchange that balances.

Data-parallel ranks meet when they combine gradients, so an iteration takes as long as the rank with the most
work. Where the GPU waits for launches of the CPU, more work first fills that wait: a pass takes the longer of
both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from itertime.costs.exchange.groups import collective_s, groups_of
from itertime.costs.network import all_gather_s
from itertime.costs.partition import Workload

from .exchange import ARRAYS, exchange_bytes
from .micro_batch import draws_of, node_ranks

__all__ = ["Growth", "Spread", "add_imbalance", "balance_s", "varies"]

Array = NDArray[np.float64]
Parts = dict[str, Array]
ROUNDING_S = 1e-12


@dataclass(frozen=True)
class Growth:
    """Seconds of a pass of one micro-batch that grow with its tokens, and with the squares of attention's
    lengths, (4, plans) each: how much a pass with twice as many would take longer.
    """

    tokens: Array
    squares: Array

    @property
    def both(self) -> Array:
        return self.tokens + self.squares


@dataclass(frozen=True)
class Spread:
    """Seconds of one micro-batch, (4, plans), that iterations at the 5th and at the 95th percentile take more
    than the mean iteration, by their slowest rank.
    """

    low: Array
    high: Array


def varies(workload: Workload) -> bool:
    """Whether ranks differ in their work."""
    return workload.lengths is not None and workload.plans.options.batching != "padded"


def add_imbalance(
    workload: Workload, passes: Sequence[Parts], idle: Sequence[Array], growth: Sequence[Growth]
) -> Spread:
    """Adds "imbalance" to both passes: what the slowest rank takes longer than the mean rank, spread over its
    micro-batches. `idle`: seconds of each pass, (4, plans), that the GPU waits for launches.

    The work of a rank is a sum of tokens and squares, weighted by the seconds in which all stages grow with
    them. The relative excess of the slowest rank then applies to every stage.
    """
    assert workload.lengths is not None
    stages = workload.partition.stages
    per_token = ((growth[0].tokens + growth[1].tokens) * stages).sum(axis=0) / workload.micro_batch.tokens
    per_square = ((growth[0].squares + growth[1].squares) * stages).sum(axis=0) / workload.micro_batch.squares
    draws = draws_of(workload.model, workload.plans, workload.lengths, workload.system.domain_gpus)
    found = [
        one.slowest(max(linear, 0.0), max(quadratic, 0.0))
        for one, linear, quadratic in zip(draws, per_token.tolist(), per_square.tolist(), strict=True)
    ]
    values = np.array([(one.mean, one.low, one.high) for one in found]).T
    excess = values / np.array([one.average for one in found]) - 1
    mean, low, high = (np.zeros(stages.shape) for _ in range(3))
    for parts, waits, each in zip(passes, idle, growth, strict=True):
        grown = np.where(stages > 0, each.both, 0.0)
        more = [
            np.where(waits > ROUNDING_S, np.maximum(one * grown - waits, 0.0), one * grown) for one in excess
        ]
        parts["imbalance"] = more[0]
        mean, low, high = mean + more[0], low + more[1], high + more[2]
    return Spread(low - mean, high - mean)


def balance_s(workload: Workload) -> Array:
    """Seconds in which the ranks exchange the samples of an iteration, (plans,): an all-gather of each array,
    within the node or over all ranks. Nothing hides it: it precedes the first layer.
    """
    plans = workload.plans
    sent = exchange_bytes(plans.options.balance, 1, workload.model.seq_len)
    if not sent.bytes_per_rank:
        return np.zeros(len(plans))
    within = node_ranks(plans, workload.system.domain_gpus)
    ranks = within if sent.in_node else plans.dp
    groups = groups_of(workload, ranks, plans.tp * plans.cp)
    samples = (ranks * plans.microbatches * plans.micro_batch).astype(float)
    each: Array = sent.bytes_per_rank / ARRAYS * samples
    return ARRAYS * collective_s(all_gather_s, workload, groups, ranks > 1, each)
