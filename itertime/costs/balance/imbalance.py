"""What different lengths of samples cost: the slowest rank's extra time, and the exchange that balances.

Data-parallel ranks meet when they combine gradients, so an iteration takes as long as the rank with the most
work. Where the GPU waits for launches of the CPU, more work first fills that wait: a pass takes the longer of
both, and the mean pass is the mean of the longer ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import exp1

from itertime.costs.exchange.groups import collective_s, groups_of
from itertime.costs.network import all_gather_s
from itertime.costs.partition import Workload

from .exchange import ARRAYS, exchange_bytes
from .micro_batch import draws_of, node_ranks

__all__ = ["Growth", "Spread", "add_imbalance", "balance_s", "varies"]

Array = NDArray[np.float64]
Parts = dict[str, Array]
ROUNDING_S = 1e-12
_GUMBEL_90 = math.log(math.log(0.05) / math.log(0.95))
"""From the 5th to the 95th percentile of a Gumbel distribution of scale 1."""
_FAR = 20.0  # scales above which z, the first term of the series, is the sum to the last digit


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
        average, least, most = (one * grown for one in excess)
        waiting = waits > ROUNDING_S
        if waiting.any():
            above = above_wait_s(average, least, most, waits)
            average = np.where(waiting, above, average)
            least, most = (np.where(waiting, np.maximum(one - waits, 0.0), one) for one in (least, most))
        parts["imbalance"] = average
        # What exceeds a wait in a few iterations alone has its mean above the 95th percentile.
        least, most = np.minimum(least, average), np.maximum(most, average)
        mean, low, high = mean + average, low + least, high + most
    return Spread(low - mean, high - mean)


def above_wait_s(mean: Array, low: Array, high: Array, waits: Array) -> Array:
    """The mean of max(x - `waits`, 0) for a slowest rank that takes x longer than the mean one; `mean`, and
    `low` and `high`, its 5th and 95th percentile, say what x is.

    The largest of many ranks follows a Gumbel distribution (Fisher and Tippett 1928), whose distribution
    function is exp(-exp(-(x-m)/b)) and whose mean is m + 0.5772 b. The integral of 1 minus that from w on is
    b (0.5772 + ln z + E1(z)) with z = exp(-(w-m)/b) and the exponential integral E1.

    >>> float(above_wait_s(*(np.array([each]) for each in (1.0, 1.0, 1.0, 0.25)))[0])
    0.75
    """
    scale = (high - low) / _GUMBEL_90
    with np.errstate(divide="ignore", invalid="ignore"):
        place = np.clip((waits - mean) / scale + np.euler_gamma, -500.0, 500.0)
        z = np.exp(-place)
        above = scale * np.where(place > _FAR, z, np.euler_gamma - place + exp1(z))
    alone = np.maximum(mean - waits, 0.0)
    return np.where(scale > ROUNDING_S, np.maximum(above, alone), alone)


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
