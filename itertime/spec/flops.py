"""Floating-point operations of a token: the one count behind MFU, HFU, days and dollars of a training.

A pass is counted layer by layer. Products with weights take two FLOPs a weight and token: of a mixture's
experts those that the router picks, of compressed keys and values the matrices that compress and expand them.
Attention takes two FLOPs a key, head and width, for QK^T and for scores x V: over all keys of the sequence in
a full layer, over at most `window` keys in a layer with a window.

Two conventions are in use for a causal mask. PaLM (Chowdhery et al. 2022, appendix B) and Megatron-LM
(Narayanan et al., SC'21, equation 3) count all s^2 scores of a full layer, and so do most published MFU.
Later counts drop the masked half, which no flash kernel computes (Dao 2023; MaxText and Megatron-LM since
2025). The first is made for sequences whose scores are a few per cent of the arithmetic: at a million tokens
it says that a kernel at 0.55 of the peak runs at 1.1. So all s^2 scores count here, except that masked scores
count for at most as much as the products with weights. Up to some 50,000 tokens of an 8B model the count is
that of PaLM. Beyond, it comes to that of the causal half.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from .lengths import Lengths


class Reach(NamedTuple):
    """Keys of a query, on average over the queries of all samples: those of its sample, those of them that a
    causal mask keeps, and both in a layer with a window.
    """

    sample: float
    causal: float
    window: float
    causal_window: float

    @classmethod
    @lru_cache(maxsize=256)
    def of(cls, window: int, seq_len: int, lengths: Lengths | None = None) -> Reach:
        """Of samples of these lengths, or of `seq_len` tokens each. A window of 0 is none."""
        if lengths is None:
            return cls(*_reaches(seq_len, min(window or seq_len, seq_len)))
        tokens = np.array(lengths.tokens, dtype=float)
        shares = tokens * lengths.shares / lengths.mean  # of all queries
        reaches = _reaches(tokens, np.minimum(window or tokens, tokens))
        return cls(*(float((shares * reach).sum()) for reach in reaches))


def _reaches(tokens: Any, keys: Any) -> tuple[Any, Any, Any, Any]:
    """The fields of `Reach` for samples of so many tokens, of which a window leaves so many keys."""
    return tokens, (tokens + 1) / 2, keys, keys - keys * (keys - 1) / (2 * tokens)


class ForwardFlops(NamedTuple):
    """FLOPs of a token's forward pass: products with the weights of all layers and of the head, and attention
    with the keys that a mask keeps and with those that it drops.
    """

    layers: float
    head: float
    scores: float
    masked: float

    @property
    def counted_scores(self) -> float:
        """Those of attention that count in MFU and HFU."""
        return self.scores + min(self.masked, self.layers + self.head)
