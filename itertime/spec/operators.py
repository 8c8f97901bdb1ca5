"""Models of the time of one kernel: formulas whose coefficients a profile file holds.

Every `seconds` takes scalars or arrays, which broadcast, and evaluates all elements at once.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import model_validator
from pydantic.dataclasses import dataclass

from itertime.io import CONFIG, Count, Fraction, NonNegative, Positive

__all__ = [
    "BACKWARD_FLOPS",
    "Array",
    "AttentionCurve",
    "AttentionModel",
    "AttentionSlowdown",
    "CastModel",
    "ElementwiseModel",
    "ElementwiseStyle",
    "GemmModel",
    "GemmTile",
    "PowerTerm",
    "SlowdownCurve",
    "WidthRate",
]

Array = NDArray[np.float64]

# Of the forward pass: 5 matrix products against 2 (Dao, FlashAttention-2, 2023, section 4.1).
BACKWARD_FLOPS = 2.5
FEW = 4  # numbers: up to this many, plain Python is faster than arrays


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
        return np.min(waves * wave_s, axis=0)

    def _shaped(self, axes: int) -> tuple[Array, Array, Array]:
        """`_tile_columns`, shaped to broadcast against arrays of `axes` dimensions."""
        known = self._known_shapes
        if axes not in known:
            rows, columns, wave_s = (each.reshape(-1, *[1] * axes) for each in self._tile_columns)
            known[axes] = rows, columns, wave_s
        return known[axes]

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


@dataclass(frozen=True, config=CONFIG)
class AttentionCurve:
    """Rate of one flash attention kernel for long sequences, and the key length at half of that rate."""

    direction: Literal["forward", "backward"]
    causal: bool
    head_dim: Count
    flops_per_s: Positive
    seq_half: NonNegative


@dataclass(frozen=True, config=CONFIG)
class AttentionModel:
    """Time of a flash attention kernel (Dao, FlashAttention-2, 2023): no score is written to memory.

    With F = 4 batch heads seq_q seq_kv head_dim FLOPs (half of them when causal, 2.5 times them backward):

        C = F (1 + seq_half / seq_kv) / flops_per_s  +  tail_blocks S f / flops_per_s

    where f are the FLOPs of the longest thread block (`block_rows` queries against all keys) and S the
    multiprocessors: the last wave is only partly full. The bytes of queries, keys, values and outputs give a
    lower bound. Head dims are padded to a multiple of 32, as the kernels do. The curves are interpolated in
    the head dim, and constant outside the given head dims.
    """

    curves: list[AttentionCurve]
    block_rows: Count
    tail_blocks: NonNegative
    multiprocessors: Count
    bytes_per_s: Positive
    launch_s: NonNegative

    @model_validator(mode="after")
    def _check(self) -> AttentionModel:
        tables = {}
        for direction in ("forward", "backward"):
            for causal in (False, True):
                chosen = [c for c in self.curves if c.direction == direction and c.causal is causal]
                chosen.sort(key=lambda curve: curve.head_dim)
                if not chosen:
                    raise ValueError(f"curves: none for direction={direction}, causal={causal}")
                table = [(c.head_dim, 1 / c.flops_per_s, c.seq_half / c.flops_per_s) for c in chosen]
                tables[direction, causal] = np.array(table).T
        object.__setattr__(self, "_tables", tables)
        return self

    def seconds(
        self,
        batch: ArrayLike,
        heads: ArrayLike,
        kv_heads: ArrayLike,
        head_dim: ArrayLike,
        seq_q: ArrayLike,
        seq_kv: ArrayLike,
        causal: ArrayLike = True,
        backward: bool = False,
        value_dim: ArrayLike | None = None,
        window: int = 0,
    ) -> Array:
        """Seconds of one layer's kernel; `heads`, `kv_heads` are those on this GPU, sequences in tokens.

        `value_dim` is the head dim of values and outputs where it is not that of queries and keys; their mean
        then counts. `window` > 0 is the number of keys, ending at its own position, that a query reaches: the
        scores kept count, at the rate of a sequence as long as the keys of an average query would make it.
        """
        batch, heads, kv_heads, head_dim, seq_q, seq_kv = (
            np.asarray(value, dtype=float) for value in (batch, heads, kv_heads, head_dim, seq_q, seq_kv)
        )
        causal = np.asarray(causal, dtype=bool)
        if value_dim is not None:
            head_dim = (head_dim + np.asarray(value_dim, dtype=float)) / 2
        if window:
            seq_kv = np.where(causal, _reached(seq_kv, window), seq_kv)
        padded = np.ceil(head_dim / 32) * 32
        full, full_half = self._rate(padded, backward, causal=False)
        masked, masked_half = self._rate(padded, backward, causal=True)
        s_per_flop, s_half = np.where(causal, masked, full), np.where(causal, masked_half, full_half)
        row = 4 * padded * seq_kv * (BACKWARD_FLOPS if backward else 1.0)
        flops = row * batch * heads * seq_q * np.where(causal, 0.5, 1.0)
        longest = row * np.minimum(self.block_rows, seq_q)
        compute = flops * (s_per_flop + s_half / seq_kv)
        compute = compute + self.tail_blocks * self.multiprocessors * longest * s_per_flop
        passes = 2 if backward else 1  # each of q, k, v, o is read and its gradient read or written
        memory = passes * 4 * batch * head_dim * (heads * seq_q + kv_heads * seq_kv) / self.bytes_per_s
        return np.maximum(compute, memory) + self.launch_s

    def scaled(
        self, rate: float = 1.0, memory: float = 1.0, multiprocessors: int | None = None
    ) -> AttentionModel:
        """The same kernel with each multiprocessor `rate` times as fast and the memory `memory` times."""
        count = multiprocessors or self.multiprocessors
        ratio = rate * (count / self.multiprocessors)
        return dataclasses.replace(
            self,
            curves=[
                dataclasses.replace(curve, flops_per_s=curve.flops_per_s * ratio) for curve in self.curves
            ],
            multiprocessors=count,
            bytes_per_s=self.bytes_per_s * memory,
        )

    def _rate(self, head_dim: Array, backward: bool, causal: bool) -> tuple[Array, Array]:
        """Seconds per FLOP, and its product with `seq_half`, at these head dims."""
        tables: dict[tuple[str, bool], Array] = self._tables  # type: ignore[attr-defined]
        dims, s_per_flop, s_half = tables["backward" if backward else "forward", causal]
        return np.interp(head_dim, dims, s_per_flop), np.interp(head_dim, dims, s_half)


def _reached(seq_kv: Array, window: int) -> Array:
    """The sequence whose causal mask keeps as many keys per query, (n + 1) / 2, as the window does here."""
    kept = np.minimum(window, seq_kv)
    per_query = kept * (seq_kv - (kept - 1) / 2) / seq_kv
    return np.asarray(2 * per_query - 1)


@dataclass(frozen=True, config=CONFIG)
class SlowdownCurve:
    """Times of a kernel over those of FlashAttention-2, for each of the table's sequence lengths."""

    head_dim: Count
    causal: bool
    times: list[Positive]


@dataclass(frozen=True, config=CONFIG)
class AttentionSlowdown:
    """The time of another attention kernel over that of FlashAttention-2, forward and backward together.

    `seq` and the head dims ascend. Between sequence lengths the factor is linear in log2(seq), between head
    dims in the head dim; outside both it is constant.
    """

    seq: list[Count]
    curves: list[SlowdownCurve]

    @model_validator(mode="after")
    def _check(self) -> AttentionSlowdown:
        if not self.seq or any(a >= b for a, b in itertools.pairwise(self.seq)):
            raise ValueError(f"seq={self.seq} must rise")
        for causal in (False, True):
            dims = [curve.head_dim for curve in self.curves if curve.causal is causal]
            if not dims or any(a >= b for a, b in itertools.pairwise(dims)):
                raise ValueError(f"curves: head dims {dims} for causal={causal} must be given and rise")
        if any(len(curve.times) != len(self.seq) for curve in self.curves):
            raise ValueError("curves: each needs one entry of times per entry of seq")
        return self

    def factor(self, head_dim: float, seq: float, causal: bool) -> float:
        """The kernel's time over that of FlashAttention-2."""
        curves = [curve for curve in self.curves if curve.causal is causal]
        at_seq = [np.interp(math.log2(seq), np.log2(self.seq), curve.times) for curve in curves]
        return float(np.interp(head_dim, [curve.head_dim for curve in curves], at_seq))


@dataclass(frozen=True, config=CONFIG)
class WidthRate:
    """Bandwidth of a kernel that reduces over rows of `width` elements."""

    width: Count
    bytes_per_s: Positive


@dataclass(frozen=True, config=CONFIG)
class ElementwiseModel:
    """Time of a memory-bound kernel: bytes read and written over the achieved bandwidth, plus a launch.

    `by_width`, in ascending order, gives the bandwidth by the length of a row: linear in log2(width) between
    widths, constant outside. `bytes_per_s` is the bandwidth without a stated length.
    """

    bytes_per_s: Positive
    launch_s: NonNegative
    by_width: list[WidthRate] = dataclasses.field(default_factory=list)

    @model_validator(mode="after")
    def _check(self) -> ElementwiseModel:
        widths = [rate.width for rate in self.by_width]
        if any(a >= b for a, b in itertools.pairwise(widths)):
            raise ValueError(f"by_width: widths {widths} must rise")
        return self

    def seconds(self, nbytes: ArrayLike, width: float | None = None) -> Array:
        """Seconds to read and write `nbytes` bytes in one kernel; 0 for 0 bytes."""
        nbytes, rate = np.asarray(nbytes, dtype=float), self.rate(width)
        if nbytes.size <= FEW:
            times = [size / rate + self.launch_s if size > 0 else 0.0 for size in nbytes.ravel().tolist()]
            return np.array(times).reshape(nbytes.shape)
        return np.where(nbytes > 0, nbytes / rate + self.launch_s, 0.0)

    def scaled(self, ratio: float) -> ElementwiseModel:
        """The kernel on a GPU with `ratio` times the memory bandwidth."""
        by_width = [WidthRate(one.width, one.bytes_per_s * ratio) for one in self.by_width]
        return ElementwiseModel(self.bytes_per_s * ratio, self.launch_s, by_width)

    def rate(self, width: float | None = None) -> float:
        """Bytes/s for rows of `width` elements."""
        if width is None or not self.by_width:
            return self.bytes_per_s
        known = self._known_rates
        if width not in known:
            known[width] = float(np.interp(math.log2(width), *self._rates))
        return known[width]

    @cached_property
    def _known_rates(self) -> dict[float, float]:
        """Rates by width. A language model has only one or two widths."""
        return {}

    @cached_property
    def _rates(self) -> tuple[Array, Array]:
        """Binary logarithms of the widths, and bytes/s."""
        widths, rates = np.array([(one.width, one.bytes_per_s) for one in self.by_width]).T
        return np.log2(widths), rates


@dataclass(frozen=True, config=CONFIG)
class ElementwiseStyle:
    """One kind of memory-bound kernel in one way of writing it, forward and backward."""

    forward: ElementwiseModel
    backward: ElementwiseModel

    def seconds(self, nbytes: ArrayLike, width: float | None, backward: ArrayLike) -> Array:
        """Seconds as `ElementwiseModel.seconds`; `backward` says, by element, which of the two it is."""
        if isinstance(backward, bool):
            return (self.backward if backward else self.forward).seconds(nbytes, width)
        return np.where(backward, self.backward.seconds(nbytes, width), self.forward.seconds(nbytes, width))


@dataclass(frozen=True, config=CONFIG)
class CastModel:
    """Time to quantise a 16-bit tensor: the bytes that all its kernels move over their rate, plus launches.

    `bytes_per_element` counts every read and write of the recipe: finding the largest magnitude, scaling, and
    a transposed copy where the GPU's matrix units need one.
    """

    bytes_per_element: Positive
    bytes_per_s: Positive
    launch_s: NonNegative

    def seconds(self, elements: ArrayLike) -> Array:
        """Seconds of a tensor of so many elements; 0 for none."""
        elements = np.asarray(elements, dtype=float)
        moved = elements * (self.bytes_per_element / self.bytes_per_s)
        return np.where(elements > 0, moved + self.launch_s, 0.0)
