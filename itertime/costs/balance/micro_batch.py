"""What one micro-batch computes: its tokens, and the sequences of its attention.

A sample has as many tokens as its text; a micro-batch may compute more. With b samples of lengths l, and
sequences of s tokens:

| batching | tokens | attention |
|---|---|---|
| padded, or a model without lengths | b s | b squares of s |
| longest | b max(l) | b squares of max(l) |
| unpadded | sum of l | the squares of l |
| packed | s for every row | the squares of l |

The cost functions take means over the draws of samples. A kernel for sequences of different lengths takes
a time of the form A sum(l^2) + B sum(l) + C (`AttentionModel`: thread blocks of a few queries each read all
keys). That is the time of n equal sequences of q tokens if n q = sum(l) and n q^2 = sum(l^2), so one pair
(n, q) stands for all lengths exactly. Only C, the last wave, sees q in place of the longest length.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from statistics import NormalDist
from typing import Any

import numpy as np

from itertime.arrays import Array, Whole
from itertime.spec import Lengths, ModelSpec, PlanBatch

from .drawn_work import DrawnWork, drawn_work, rows_of
from .packing import packs_of
from .strata import bin_edges

FULLEST = 0.95  # the share of iterations whose fullest micro-batch is not above `fullest`


@dataclass(frozen=True)
class MicroBatch:
    """One micro-batch of every plan on average, (plans,) each.

    `tokens` are computed on one context-parallel rank, `real` of them are not padding. The attention kernel
    works on `sequences` sequences of `length` tokens, those of all context-parallel ranks.
    """

    tokens: Array
    real: Array
    sequences: Array
    length: Array

    @classmethod
    def joined(cls, parts: Sequence[MicroBatch]) -> MicroBatch:
        """The plans of all parts, one part after the other."""
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in _FIELDS))

    def take(self, rows: Any) -> MicroBatch:
        """Of the plans at `rows`."""
        return MicroBatch(self.tokens[rows], self.real[rows], self.sequences[rows], self.length[rows])

    @property
    def squares(self) -> Array:
        """Sum of the squared lengths that attention works on, (plans,)."""
        return self.sequences * self.length**2

    def scaled(self, tokens: Array | float, squares: Array | float) -> MicroBatch:
        """With so many times the tokens, and so many times the squares of attention's lengths."""
        longer = squares / tokens
        sequences = self.sequences * tokens / longer
        return MicroBatch(self.tokens * tokens, self.real * tokens, sequences, self.length * longer)


_FIELDS = tuple(field.name for field in fields(MicroBatch))


def micro_batch_of(
    model: ModelSpec, plans: PlanBatch, lengths: Lengths | None, domain_gpus: int
) -> MicroBatch:
    """The mean micro-batch of every plan, whose batching must keep the rules; `lengths` None: every sample
    has `seq_len` tokens. `domain_gpus`: GPUs of a node.
    """
    samples, s = plans.micro_batch.astype(float), model.seq_len
    tokens, full_length = plans.tokens(s), np.full(len(plans), float(s))
    if lengths is None:
        return MicroBatch(tokens, tokens, samples, full_length)
    real: Array = samples * lengths.mean
    squares: Array = samples * lengths.mean_square
    batching = plans.options.batching
    if batching == "padded":
        return MicroBatch(tokens, real / plans.cp, samples, full_length)
    if batching == "packed":
        rows = np.array([rows_of(lengths, batching, int(draw), s) for draw in samples], dtype=float)
        of_row = _packed_row(lengths, s)
        filled, squares = rows * of_row[0], rows * of_row[1]
        return MicroBatch(rows * s, filled, filled**2 / squares, squares / filled)
    if batching == "unpadded":
        return MicroBatch(real, real, real**2 / squares, squares / real)
    if plans.options.balance == "drawn":
        tokens, squares = _longest(lengths, samples)
    else:
        draws = draws_of(model, plans, lengths, domain_gpus)
        tokens, squares = np.array([(draw.tokens, draw.squares) for draw in draws]).T / plans.microbatches
    return MicroBatch(tokens, real, tokens**2 / squares, squares / tokens)


@lru_cache(maxsize=64)
def _packed_row(lengths: Lengths, seq_len: int) -> tuple[float, float]:
    """Mean tokens of a packed row that are no padding, and the mean of its samples' squared lengths."""
    packs = packs_of(lengths, seq_len)
    squares = math.fsum(square * share for square, share in zip(packs.squares, packs.shares, strict=True))
    return seq_len * packs.efficiency, squares


def _longest(lengths: Lengths, samples: Array) -> tuple[Array, Array]:
    """Expected tokens, and squares of attention, of `samples` samples padded to the longest of them.

    The longest of b has at most l tokens with probability F(l)^b (David and Nagaraja, Order Statistics, 2003,
    section 2.1).
    """
    counts, where = np.unique(samples, return_inverse=True)
    tokens = np.array(lengths.tokens, dtype=float)
    below = np.cumsum(lengths.shares) ** counts[:, None]
    chances = np.diff(below, prepend=0.0, axis=1)
    return samples * (chances @ tokens)[where], samples * (chances @ tokens**2)[where]


def node_ranks(plans: PlanBatch, domain_gpus: int) -> Whole:
    """Data-parallel ranks of one stage that share a node, at least 1."""
    spacing = plans.tp * plans.cp * np.where(plans.pp_before_dp, plans.pp, 1)
    return np.minimum(np.maximum(domain_gpus // spacing, 1), plans.dp)


_drawn = lru_cache(maxsize=4096)(drawn_work)
"""`drawn_work`, which checks its arguments in every call."""


def draws_of(model: ModelSpec, plans: PlanBatch, lengths: Lengths, domain_gpus: int) -> list[DrawnWork]:
    """The drawn work of every plan's data-parallel ranks. Plans share draws where the sizes that affect them
    agree.

    Raises UserError where samples cannot be dealt as the options say (`balance.check_balance`).
    """
    options, nothing = plans.options, np.ones_like(plans.dp)
    in_node = node_ranks(plans, domain_gpus) if "exchanged" in options.balance else nothing
    sizes = plans.micro_batch if options.batching == "longest" else nothing
    columns = (plans.dp, plans.microbatches * plans.micro_batch, in_node, sizes)
    return [
        _drawn(lengths, options, ranks, samples, in_node, size, model.seq_len)
        for ranks, samples, in_node, size in zip(*(column.tolist() for column in columns), strict=True)
    ]


def fullest(
    model: ModelSpec, plans: PlanBatch, lengths: Lengths, mean: MicroBatch, domain_gpus: int
) -> Array:
    """Tokens of the fullest micro-batch of an iteration over those of the mean one, (plans,): not exceeded in
    19 of 20 iterations. It decides whether a plan fits in memory.

    The tokens of a micro-batch are taken as normally distributed. Their variance is that of b samples; with
    strata that of samples within their bin; an exchange among n ranks, or sorting over all n, leaves 1/n of
    it. No micro-batch has more than b s tokens. One padded to its longest sample sooner or later has as many;
    packed rows are always computed whole.
    """
    batching, balance = plans.options.batching, plans.options.balance
    if batching in ("padded", "packed"):
        return np.ones(len(plans))
    limit = plans.tokens(model.seq_len) / mean.tokens
    if batching == "longest":
        return limit
    variance = plans.micro_batch * (
        _variance_in_bins(lengths, model.seq_len)
        if balance.startswith("stratified")
        else lengths.mean_square - lengths.mean**2
    )
    if "exchanged" in balance:
        variance = variance / node_ranks(plans, domain_gpus)
    if balance == "sorted":
        variance = variance / plans.dp
    drawn = plans.dp * plans.microbatches
    above = np.array([_highest(work) for work in drawn.tolist()])
    return np.minimum(1 + above * np.sqrt(variance) / mean.tokens, limit)


@lru_cache(maxsize=4096)
def _highest(draws: int) -> float:
    """The `FULLEST` quantile of the largest of `draws` standard normal numbers, at least 0."""
    return max(NormalDist().inv_cdf(FULLEST ** (1 / draws)), 0.0)


@lru_cache(maxsize=64)
def _variance_in_bins(lengths: Lengths, seq_len: int) -> float:
    """Mean variance of a sample's length within its bin."""
    tokens, shares = np.array(lengths.tokens, dtype=float), np.array(lengths.shares)
    bins = np.searchsorted(bin_edges(seq_len), tokens)
    weight, sum_1, sum_2 = (np.bincount(bins, shares * tokens**power) for power in range(3))
    occupied = weight > 0
    return float((sum_2[occupied] - sum_1[occupied] ** 2 / weight[occupied]).sum())
