"""Times by message size and ranks, interpolated. Sizes are powers of two, so a look-up needs no search."""

from __future__ import annotations

import dataclasses
import math
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike
from pydantic import model_validator
from pydantic.dataclasses import dataclass

from itertime.arrays import Array
from itertime.io import CONFIG

FEW = 3  # sizes: up to this many, plain Python is several times faster than arrays


@dataclass(frozen=True, config=CONFIG)
class SizeTable:
    """`time_s[i][j]` seconds for `ranks[i]` ranks and `first_bytes * 2**j` bytes.

    Between two sizes the time is linear in the bytes. Below the first size it is constant, above the last it
    continues at the bandwidth of the last octave. Between two rank counts it is linear in log2(ranks). Beyond
    the largest count the bus bandwidth (nccl-tests' definition) is that of the largest.
    """

    ranks: list[int]
    first_bytes: int
    time_s: list[list[float]]
    _dense: Array = dataclasses.field(init=False, repr=False, compare=False)

    @model_validator(mode="after")
    def _check(self) -> SizeTable:
        if self.first_bytes < 1 or self.first_bytes & (self.first_bytes - 1):
            raise ValueError(f"first_bytes={self.first_bytes} must be a power of two")
        if (
            not self.ranks
            or self.ranks[0] < 2
            or any(a >= b for a, b in zip(self.ranks, self.ranks[1:], strict=False))
        ):
            raise ValueError(f"ranks={self.ranks} must rise from at least 2")
        lengths = {len(row) for row in self.time_s}
        if len(self.time_s) != len(self.ranks) or len(lengths) != 1 or lengths.pop() < 2:
            raise ValueError("time_s needs one row per entry of ranks, all of the same length of at least 2")
        if any(value <= 0 for row in self.time_s for value in row):
            raise ValueError("time_s must be positive")
        counts = np.arange(2, self.ranks[-1] + 1)
        times = np.array(self.time_s)
        dense = np.stack(
            [np.interp(np.log2(counts), np.log2(self.ranks), column) for column in times.T], axis=1
        )
        object.__setattr__(self, "_dense", dense)
        return self

    def seconds(self, nbytes: ArrayLike, ranks: ArrayLike = 2) -> Array:
        """Seconds for `nbytes` bytes among `ranks` ranks; 0 where there are no bytes or a single rank."""
        nbytes = np.asarray(nbytes, dtype=float)
        ranks = np.asarray(ranks, dtype=int)
        if ranks.size == 1 and nbytes.size <= FEW:
            count = ranks.item()
            times = [self._one(size, count) for size in nbytes.ravel().tolist()]
            return np.array(times).reshape((1,) * (ranks.ndim - nbytes.ndim) + nbytes.shape)
        most_ranks, sizes = self.ranks[-1], self._dense.shape[1]
        _, exponent = np.frexp(nbytes)
        octave = exponent - 1 - int(math.log2(self.first_bytes))
        octave = np.minimum(np.maximum(octave, 0), sizes - 2)  # np.clip is slow
        larger = np.maximum(ranks, 2)
        cell = (np.minimum(larger, most_ranks) - 2) * sizes + octave
        starts, low, step = self._octaves
        start = starts.take(octave)
        seconds = low.take(cell) + step.take(cell) * np.maximum(nbytes - start, 0.0) / start
        if (ranks > most_ranks).any():
            seconds = seconds * np.where(
                ranks > most_ranks, (larger - 1) / larger * most_ranks / (most_ranks - 1), 1.0
            )
        return np.where((nbytes > 0) & (ranks > 1), seconds, 0.0)

    @cached_property
    def _octaves(self) -> tuple[Array, Array, Array]:
        """The first size of every octave; then, for every rank count and octave (row by row), the seconds at
        the first size and their increase to the next octave.
        """
        starts = self.first_bytes * np.exp2(np.arange(self._dense.shape[1]))
        steps = np.diff(self._dense, axis=1, append=0.0)
        return starts, self._dense.ravel(), steps.ravel()

    def _one(self, nbytes: float, ranks: int) -> float:
        """`seconds` of a single size."""
        if nbytes <= 0 or ranks <= 1:
            return 0.0
        most_ranks, table = self.ranks[-1], self._dense
        octave = math.frexp(nbytes)[1] - 1 - int(math.log2(self.first_bytes))
        octave = min(max(octave, 0), table.shape[1] - 2)
        start = self.first_bytes * 2.0**octave
        row = min(max(ranks, 2), most_ranks) - 2
        low, high = float(table[row, octave]), float(table[row, octave + 1])
        seconds = low + (high - low) * max(nbytes - start, 0.0) / start
        return seconds * ((ranks - 1) / ranks * most_ranks / (most_ranks - 1) if ranks > most_ranks else 1.0)
