"""Formulas for the time of one kernel, with the coefficients that a profile file holds. Everything broadcasts."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic.dataclasses import dataclass

from itertime.datafile import CONFIG, NonNegative, Positive

__all__ = ["AttentionModel", "ElementwiseModel", "GemmModel"]

Array = NDArray[np.float64]


@dataclass(frozen=True, config=CONFIG)
class GemmModel:
    """Time of `batch` products y[m, n] = x[m, k] w[k, n] in 16-bit floating point, one launch."""

    tile_m: Positive
    tile_n: Positive
    multiprocessors: Positive
    peak_flops_per_s: Positive
    peak_fraction: Positive
    k_half: NonNegative
    wave_fraction: NonNegative
    tiles_half: NonNegative
    bytes_per_s: Positive
    launch_s: NonNegative

    def seconds(self, m: ArrayLike, n: ArrayLike, k: ArrayLike, batch: ArrayLike = 1) -> Array:
        """Seconds of the whole launch; the arguments are counts and broadcast."""
        m, n, k, batch = (np.asarray(value, dtype=float) for value in (m, n, k, batch))
        padded_m = np.ceil(m / self.tile_m) * self.tile_m
        padded_n = np.ceil(n / self.tile_n) * self.tile_n
        tiles = padded_m * padded_n * batch / (self.tile_m * self.tile_n)
        waves = tiles / self.multiprocessors
        full = 1 - self.wave_fraction * (1 - waves / np.ceil(waves))
        efficiency = self.peak_fraction * k / (k + self.k_half) * full * tiles / (tiles + self.tiles_half)
        compute = 2 * padded_m * padded_n * k * batch / (self.peak_flops_per_s * efficiency)
        memory = 2 * (m * k + k * n + m * n) * batch / self.bytes_per_s
        return np.maximum(compute, memory) + self.launch_s


@dataclass(frozen=True, config=CONFIG)
class AttentionModel:
    """Time of a flash attention forward kernel for one head dim."""

    peak_flops_per_s: Positive
    seq_half: NonNegative
    launch_s: NonNegative
    backward_factor: Positive

    def seconds(
        self, batch: ArrayLike, heads: ArrayLike, head_dim: ArrayLike, seq_q: ArrayLike, seq_kv: ArrayLike, causal: ArrayLike
    ) -> Array:
        """Seconds of the forward pass; FLOPs are 4 batch heads seq_q seq_kv head_dim, half of them when causal."""
        batch, heads, head_dim, seq_q, seq_kv = (np.asarray(v, dtype=float) for v in (batch, heads, head_dim, seq_q, seq_kv))
        flops = 4 * batch * heads * seq_q * seq_kv * head_dim * np.where(causal, 0.5, 1.0)
        rate = self.peak_flops_per_s * seq_kv / (seq_kv + self.seq_half)
        return flops / rate + self.launch_s


@dataclass(frozen=True, config=CONFIG)
class ElementwiseModel:
    """Time of a memory-bound kernel: bytes read and written over the bandwidth it reaches, plus a floor."""

    bytes_per_s: Positive
    launch_s: NonNegative

    def seconds(self, nbytes: ArrayLike) -> Array:
        """Seconds to read and write `nbytes` bytes in one kernel; 0 bytes is no kernel."""
        nbytes = np.asarray(nbytes, dtype=float)
        return np.where(nbytes > 0, nbytes / self.bytes_per_s + self.launch_s, 0.0)
