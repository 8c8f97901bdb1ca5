"""The split "remainder" of a model's layers, which plans and their batches share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from itertime.arrays import Whole
from itertime.spec.model import ModelSpec

__all__ = ["RemainderChunks"]

Count = int | Whole


@dataclass(frozen=True)
class RemainderChunks:
    """The split "remainder" of a model's layers over chunks; numbers, or arrays of one element a plan.

    The first chunk holds `first` layers, all others `most`. The last chunk that holds layers lacks `lacking`
    of them; the `empty` chunks after it hold none.
    """

    first: Count
    most: Count
    lacking: Count
    empty: Count

    @classmethod
    def of(cls, model: ModelSpec, chunks: Count) -> RemainderChunks:
        most = -(-model.layers // chunks)
        first: Count = np.maximum(most, model.dense_layers)
        full_chunks = -(-(model.layers - first) // most)
        return cls(first, most, first + full_chunks * most - model.layers, chunks - 1 - full_chunks)
