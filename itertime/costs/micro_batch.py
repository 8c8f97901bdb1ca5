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

Packing fills rows almost completely: 99.7 % and more of such a row are tokens of samples (Krell et al.,
"Efficient Sequence Packing without Cross-contamination", 2021, table 1). Its micro-batches are whole rows.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from itertime.spec import Lengths, ModelSpec, PlanBatch

__all__ = ["MicroBatch", "micro_batch_of"]

Array = NDArray[np.float64]
Whole = NDArray[np.int64]


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

    def take(self, rows: Whole) -> MicroBatch:
        """Of the plans at `rows`."""
        return MicroBatch(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})

    @property
    def squares(self) -> Array:
        """Sum of the squared lengths that attention works on, (plans,)."""
        return self.sequences * self.length**2

    def scaled(self, tokens: float, squares: float) -> MicroBatch:
        """With so many times the tokens, and so many times the squares of attention's lengths."""
        longer = squares / tokens
        return replace(
            self,
            tokens=self.tokens * tokens,
            real=self.real * tokens,
            sequences=self.sequences * tokens / longer,
            length=self.length * longer,
        )


def micro_batch_of(model: ModelSpec, plans: PlanBatch, lengths: Lengths | None) -> MicroBatch:
    """The mean micro-batch of every plan, whose batching must keep the rules; `lengths` None: every sample
    has `seq_len` tokens.
    """
    samples = plans.micro_batch
    tokens, s = plans.tokens(model.seq_len), float(model.seq_len)
    whole = np.full(len(plans), s)
    if lengths is None:
        return MicroBatch(tokens, tokens, 1.0 * samples, whole)
    real, squares = samples * lengths.mean, samples * lengths.mean_square
    batching = plans.options.batching
    if batching == "longest":
        tokens, squares = _longest(lengths, samples)
        return MicroBatch(tokens, real, tokens**2 / squares, squares / tokens)
    if batching == "unpadded":
        return MicroBatch(real, real, real**2 / squares, squares / real)
    if batching == "packed":
        rows = np.ceil(np.round(real / s, 9))
        return MicroBatch(rows * s, real, real**2 / squares, squares / real)
    return MicroBatch(tokens, real / plans.cp, 1.0 * samples, whole)


def _longest(lengths: Lengths, samples: Whole) -> tuple[Array, Array]:
    """Expected tokens, and squares of attention, of `samples` samples padded to the longest of them.

    The longest of b has at most l tokens with probability F(l)^b (David and Nagaraja, Order Statistics, 2003,
    section 2.1).
    """
    counts, where = np.unique(samples, return_inverse=True)
    tokens = np.array(lengths.tokens, dtype=float)
    below = np.cumsum(lengths.shares) ** counts[:, None]
    chances = np.diff(below, prepend=0.0, axis=1)
    each = samples * (chances @ tokens)[where], samples * (chances @ tokens**2)[where]
    return each
