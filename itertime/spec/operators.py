"""Models of the time of a matrix product: formulas whose coefficients a profile file holds.

Every `seconds` takes scalars or arrays, which broadcast, and evaluates all elements at once.
"""

from __future__ import annotations

import dataclasses
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike
from pydantic import model_validator
from pydantic.dataclasses import dataclass

from itertime.arrays import Array
from itertime.io import CONFIG, Count, Fraction, NonNegative, Positive


@dataclass(frozen=True, config=CONFIG)
class GemmTile:
    """A thread block's part of the output, rows x columns, and its fraction of peak in full waves."""

    rows: Count
    columns: Count
    peak_fraction: Fraction


@dataclass(frozen=True, config=CONFIG)
class GemmModel:
    """Time of `batch` products y[m, n] = x[m, k] w[k, n], in one launch.

    x and w take `operand_bytes` bytes an element, scales included; y has 16 bits.

    For each tile shape, with T = ceil(m / rows) ceil(n / columns) batch tiles on S multiprocessors:

        waves   W = T / S + wave_quantisation (ceil(T / S) - T / S)
        depth   K = (k**e + k_offset**e) ** (1/e), e = k_exponent
        compute C = 2 W S rows columns K / (peak_fraction peak_flops_per_s)

    The fastest tile counts, as the library picks its kernel by shape. Its compute time and the time B of the
    operands' bytes overlap in part: (C**p + B**p) ** (1/p), p = overlap_exponent; plus one launch. Tile and
    wave quantisation follow NVIDIA's "Matrix Multiplication Background" guide; the blends are fitted.
    """

    tiles: list[GemmTile]
    multiprocessors: Count
    peak_flops_per_s: Positive
    wave_quantisation: NonNegative
    k_offset: NonNegative
    k_exponent: Positive
    bytes_per_s: Positive
    overlap_exponent: Positive
    launch_s: NonNegative
    operand_bytes: Positive = 2.0

    @model_validator(mode="after")
    def _check(self) -> GemmModel:
        if not self.tiles:
            raise ValueError("tiles must hold at least one tile")
        return self

    def scaled(self, rate: float = 1.0, memory: float = 1.0, multiprocessors: int | None = None) -> GemmModel:
        """The same kernels with each multiprocessor `rate` times as fast and the memory `memory` times."""
        count = multiprocessors or self.multiprocessors
        return dataclasses.replace(
            self,
            tiles=[
                GemmTile(tile.rows, tile.columns, min(1.0, tile.peak_fraction * rate)) for tile in self.tiles
            ],
            multiprocessors=count,
            peak_flops_per_s=self.peak_flops_per_s * (count / self.multiprocessors),
            bytes_per_s=self.bytes_per_s * memory,
        )

    def seconds(self, m: ArrayLike, n: ArrayLike, k: ArrayLike, batch: ArrayLike = 1) -> Array:
        """Seconds of the whole launch; the arguments are counts of at least 1."""
        m, n, k, batch = (np.asarray(value, dtype=float) for value in (m, n, k, batch))
        depth = (k**self.k_exponent + self.k_offset**self.k_exponent) ** (1 / self.k_exponent)
        compute = self._fastest_tile(m, n, batch) * depth
        memory = 2 * (self.operand_bytes / 2 * (m * k + k * n) + m * n) * batch / self.bytes_per_s
        p = self.overlap_exponent
        return (compute**p + memory**p) ** (1 / p) + self.launch_s

    def _fastest_tile(self, m: Array, n: Array, batch: Array) -> Array:
        """Compute seconds per unit of depth."""
        rows, columns, wave_s = self._shaped(max(m.ndim, n.ndim, batch.ndim))
        waves = np.ceil(m / rows) * np.ceil(n / columns) * batch / self.multiprocessors
        waves = waves + self.wave_quantisation * (np.ceil(waves) - waves)
        fastest: Array = (waves * wave_s).min(axis=0)
        return fastest

    def _shaped(self, axes: int) -> tuple[Array, Array, Array]:
        """`_tile_columns`, shaped to broadcast against arrays of `axes` dimensions."""
        shapes = self._known_shapes
        if axes not in shapes:
            rows, columns, wave_s = (column.reshape(-1, *[1] * axes) for column in self._tile_columns)
            shapes[axes] = rows, columns, wave_s
        return shapes[axes]

    @cached_property
    def _known_shapes(self) -> dict[int, tuple[Array, Array, Array]]:
        return {}

    @cached_property
    def _tile_columns(self) -> tuple[Array, Array, Array]:
        """Rows, columns, and seconds of a full wave per unit of depth, of every tile."""
        rows, columns, fractions = np.array([dataclasses.astuple(tile) for tile in self.tiles]).T
        flops = 2.0 * self.multiprocessors * rows * columns
        return rows, columns, flops / (fractions * self.peak_flops_per_s)


@dataclass(frozen=True, config=CONFIG)
class PowerTerm:
    """How the rate of tensor-core kernels follows the GPU's power limit.

    Under load a GPU lowers its clock until it stays within `limit_w`. At another limit P, and a share s of
    the multiprocessors, each multiprocessor runs at

        (P / (s limit_w)) ** exponent

    times its rate, up to `headroom`: the rate of short kernels, which no limit slows, over the sustained one.
    """

    limit_w: Positive
    exponent: NonNegative
    headroom: Positive = 1.0

    def at(self, limit_w: float, share: float = 1.0) -> tuple[PowerTerm, float]:
        """The term at another limit and share of multiprocessors, and the rate of one multiprocessor."""
        rate = min((limit_w / (share * self.limit_w)) ** self.exponent, self.headroom)
        return PowerTerm(limit_w, self.exponent, self.headroom / rate), rate
