"""Seconds that samples of different lengths cost: the slowest rank's excess, and the exchange of samples.

Data-parallel ranks wait for each other to combine gradients, so an iteration takes as long as the rank with
the most work. A pass takes the longer of its kernels and of the CPU's launches, so where the GPU waits for
launches, additional work first fills that wait. The mean pass is the mean of these maxima.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np

from itertime.arrays import Array, any_of
from itertime.costs.exchange.groups import collective_s, data_parallel_group
from itertime.costs.network import all_gather_s
from itertime.costs.partition import Workload
from itertime.schedule import FIRST, LAST

from .micro_batch import draws_of, node_ranks

ARRAYS = 4  # token ids, segment ids, attention mask, masked labels
ARRAY_BYTES = 2  # int16


class SampleExchange(NamedTuple):
    """An all-gather: bytes that every rank contributes, and whether it stays among the ranks of a node."""

    bytes_per_rank: int
    in_node: bool


def exchange_bytes(balance: str, samples: int, seq_len: int) -> SampleExchange:
    """The all-gather of one iteration of a rank's `samples` samples, for this `balance`; 0 bytes for none.

    MLPerf's runs gather 4 arrays of int16, samples x seq_len each, padding included: NVIDIA's over all ranks
    (`exchange_padding`), Samsung's among the ranks of a node (`group_exchange_padding`; repositories
    mlcommons/training_results_v1.0 and v1.1). Strata are drawn by the loader of each rank, without traffic.

    >>> exchange_bytes("exchanged", 16, 512)
    SampleExchange(bytes_per_rank=65536, in_node=True)
    """
    if balance in ("drawn", "stratified"):
        return SampleExchange(0, True)
    return SampleExchange(ARRAYS * ARRAY_BYTES * samples * seq_len, balance != "sorted")


ROUNDING_S = 1e-12
_GUMBEL_90 = math.log(math.log(0.05) / math.log(0.95))
"""From the 5th to the 95th percentile of a Gumbel distribution of scale 1."""
_LARGE = 40.0  # z above which E1(z) is below the last digit
_NODES = 64  # of the quadrature of smaller ones


@dataclass(frozen=True)
class Growth:
    """Seconds by which a pass of one micro-batch grows with its work, (4, plans) each: those that as many
    tokens again would add, and as much again of attention's squared lengths.
    """

    tokens: Array
    squares: Array

    @property
    def both(self) -> Array:
        return self.tokens + self.squares


@dataclass(frozen=True)
class Spread:
    """Seconds of one micro-batch of the slowest rank, (4, plans) each; of pairs, forward and backward pass.

    `excess`: what each pass takes longer than on the mean rank. `idle`: mean wait for launches in each pass.
    `low`, `high`: what an iteration at the 5th and at the 95th percentile takes more than the mean iteration.
    `error`: an upper bound of the standard error of the mean where the slowest rank is sampled, otherwise 0.
    """

    excess: tuple[Array, Array]
    idle: tuple[Array, Array]
    low: Array
    high: Array
    error: Array


def varies(workload: Workload) -> bool:
    """Whether ranks differ in their work."""
    return workload.lengths is not None and workload.plans.options.batching != "padded"


def spread_of(workload: Workload, idle: Sequence[Array], growth: Sequence[Growth]) -> Spread:
    """How much longer the slowest rank takes than the mean rank, spread evenly over its micro-batches.

    `idle`: seconds of each pass, (4, plans), that the GPU waits for launches. The excess x first fills that
    wait w: a pass grows by mean(max(x - w, 0)), and of the wait there remains mean(max(w - x, 0)) =
    w - mean(x) + mean(max(x - w, 0)).
    """
    stages, relative = workload.partition.stages, _relative_excess(workload, growth)
    mean, low, high, error = (np.zeros(stages.shape) for _ in range(4))
    excess: list[Array] = []
    unfilled: list[Array] = []
    for waits, growth_of_pass in zip(idle, growth, strict=True):
        per_excess = np.where(stages > 0, growth_of_pass.both, 0.0)
        average, pass_low, pass_high, pass_error = (share * per_excess for share in relative)
        waiting, shortfall = waits > ROUNDING_S, waits - average
        if any_of(waiting):
            above = above_wait_s(average, pass_low, pass_high, waits)
            average = np.where(waiting, above, average)
            pass_low, pass_high = (
                np.where(waiting, np.maximum(seconds - waits, 0.0), seconds)
                for seconds in (pass_low, pass_high)
            )
        excess.append(average)
        unfilled.append(np.maximum(shortfall + average, 0.0))
        # What exceeds a wait in a few iterations alone has its mean above the 95th percentile.
        pass_low, pass_high = np.minimum(pass_low, average), np.maximum(pass_high, average)
        mean, low, high = mean + average, low + pass_low, high + pass_high
        error = error + np.where(average > 0, pass_error, 0.0)
    return Spread((excess[0], excess[1]), (unfilled[0], unfilled[1]), low - mean, high - mean, error)


def _relative_excess(workload: Workload, growth: Sequence[Growth]) -> Array:
    """The work of the slowest rank over that of the mean rank, less 1: mean, 5th and 95th percentile, and the
    standard error of the mean, (4, plans).

    The work of a rank is its tokens and squares, weighted by the seconds by which all stages grow with each.
    The relative excess is taken to be that of every stage.
    """
    assert workload.lengths is not None
    stages = workload.partition.stages
    per_token = ((growth[0].tokens + growth[1].tokens) * stages).sum(axis=0) / workload.micro_batch.tokens
    per_square = ((growth[0].squares + growth[1].squares) * stages).sum(axis=0) / workload.micro_batch.squares
    draws = draws_of(workload.model, workload.plans, workload.lengths, workload.system.domain_gpus)
    slowest_ranks = [
        rank.slowest(max(linear, 0.0), max(quadratic, 0.0))
        for rank, linear, quadratic in zip(draws, per_token.tolist(), per_square.tolist(), strict=True)
    ]
    values = np.array(
        [(rank.mean, rank.low, rank.high, rank.average + rank.error) for rank in slowest_ranks]
    ).T
    excess: Array = values / np.array([rank.average for rank in slowest_ranks]) - 1
    return excess


def above_wait_s(mean: Array, low: Array, high: Array, waits: Array) -> Array:
    """The mean of max(x - `waits`, 0), where x is what the slowest rank takes longer than the mean rank, with
    the given `mean`, 5th (`low`) and 95th (`high`) percentile.

    x is taken to have a Gumbel distribution, as the largest of many ranks has in the limit (Fisher and
    Tippett 1928). Its distribution function F is exp(-exp(-(x-m)/b)), its mean m + 0.5772 b. The integral of
    1 - F from w on is b (0.5772 + ln z + E1(z)) with z = exp(-(w-m)/b) and the exponential integral E1.

    >>> float(above_wait_s(*(np.array([each]) for each in (1.0, 1.0, 1.0, 0.25)))[0])
    0.75
    """
    scale = (high - low) / _GUMBEL_90
    with np.errstate(divide="ignore", invalid="ignore"):
        place = np.clip((waits - mean) / scale + np.euler_gamma, -500.0, 500.0)
        z = np.exp(-place)
        above = scale * np.where(z > _LARGE, np.euler_gamma - place, _ein(np.minimum(z, _LARGE)))
    alone = np.maximum(mean - waits, 0.0)
    return np.where(scale > ROUNDING_S, np.maximum(above, alone), alone)


def _ein(z: Array) -> Array:
    """0.5772 + ln z + E1(z) for z of 0 to 40, to about 1e-13 of it: the integral of (1 - exp(-z u))/u over u
    from 0 to 1 (Abramowitz and Stegun 1964, 5.1.39), by Gauss and Legendre. Importing SciPy for E1 would take
    longer than a prediction's other imports together.
    """
    places, weights = _quadrature()
    integral: Array = -np.expm1(-z[..., None] * places) @ weights
    return integral


@cache
def _quadrature() -> tuple[Array, Array]:
    """Nodes u of 0 to 1, and their weights over u."""
    places, weights = np.polynomial.legendre.leggauss(_NODES)
    places = (places + 1) / 2
    return places, weights / 2 / places


def balance_s(workload: Workload, spread: Spread) -> Array:
    """Seconds in which the ranks exchange the samples of an iteration, (plans,): an all-gather of each array,
    within the node or over all ranks. It precedes the first layer, so only the launches that the GPU would
    wait for in its first pass hide it: the CPU issues them meanwhile.
    """
    plans = workload.plans
    first_stage = np.where(plans.pp == 1, LAST, FIRST), np.arange(len(plans))
    hidden = spread.idle[0][first_stage] / plans.interleave
    sent = exchange_bytes(plans.options.balance, 1, workload.model.seq_len)
    if not sent.bytes_per_rank:
        return np.zeros(len(plans))
    in_node = node_ranks(plans, workload.system.domain_gpus)
    ranks = in_node if sent.in_node else plans.dp
    groups = data_parallel_group(workload, ranks, plans.tp * plans.cp)
    samples = (ranks * plans.microbatches * plans.micro_batch).astype(float)
    nbytes: Array = sent.bytes_per_rank / ARRAYS * samples
    return np.maximum(ARRAYS * collective_s(all_gather_s, workload, groups, ranks > 1, nbytes) - hidden, 0.0)
