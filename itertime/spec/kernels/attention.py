"""Time of attention kernels that write no score to memory."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Literal

import numpy as np
from pydantic import model_validator
from pydantic.dataclasses import dataclass

from itertime.arrays import Array
from itertime.io import CONFIG, Count, NonNegative, Positive

from .queries import Attention

# Of the forward pass: 5 matrix products against 2 (Dao, FlashAttention-2, 2023, section 4.1).
BACKWARD_FLOPS = 2.5


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
    lower bound. So does the `longest` block of a kernel that gives whole sequences to blocks, of g FLOPs on
    one multiprocessor: g (1 + seq_half / seq_kv) S / flops_per_s. Head dims are padded to multiples of 32, as
    the kernels do. The curves are interpolated in the head dim, and constant outside the given head dims.
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
                curves = [c for c in self.curves if c.direction == direction and c.causal is causal]
                curves.sort(key=lambda curve: curve.head_dim)
                if not curves:
                    raise ValueError(f"curves: none for direction={direction}, causal={causal}")
                table = [(c.head_dim, 1 / c.flops_per_s, c.seq_half / c.flops_per_s) for c in curves]
                tables[direction, causal] = np.array(table).T
        object.__setattr__(self, "_tables", tables)
        return self

    def seconds(self, query: Attention) -> Array:
        """Seconds of the query's kernel, whatever its name.

        Of its kernel the head dim of values and the window count. Where the head dim of values is not that of
        queries and keys, their mean counts. Of a window the scores kept count, at the rate of the sequence
        whose causal mask keeps as many keys per query.
        """
        batch, heads, kv_heads, head_dim, seq_q, seq_kv = (
            np.asarray(size, dtype=float) for size in query[:6]
        )
        causal, backward, kernel = np.asarray(query.causal, dtype=bool), query.backward, query.kernel
        if kernel.value_dim is not None:
            head_dim = (head_dim + kernel.value_dim) / 2
        if kernel.window:
            seq_kv = np.where(causal, _reached(seq_kv, kernel.window, self.block_rows), seq_kv)
        padded = np.ceil(head_dim / 32) * 32
        full, full_half = self._rate(padded, backward, causal=False)
        masked, masked_half = self._rate(padded, backward, causal=True)
        s_per_flop, s_half = np.where(causal, masked, full), np.where(causal, masked_half, full_half)
        row = 4 * padded * seq_kv * (BACKWARD_FLOPS if backward else 1.0)
        flops = row * batch * heads * seq_q * np.where(causal, 0.5, 1.0)
        longest = row * np.minimum(self.block_rows, seq_q)
        compute = flops * (s_per_flop + s_half / seq_kv)
        compute = compute + self.tail_blocks * self.multiprocessors * longest * s_per_flop
        if kernel.longest is not None:
            alone = row * kernel.longest * (s_per_flop + s_half / seq_kv)
            compute = np.maximum(compute, self.multiprocessors * alone)
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


def _reached(seq_kv: Array, window: int, tile: int) -> Array:
    """The sequence whose causal mask keeps as many keys per query, (n + 1) / 2, as the window does here.

    The window's lower edge cuts tiles of keys as the diagonal does: half a tile a query is computed in vain.
    """
    keys = np.minimum(window, seq_kv)
    per_query = keys * (seq_kv - (keys - 1) / 2) / seq_kv
    return np.asarray(np.minimum(2 * per_query - 1 + np.where(seq_kv > window, tile, 0), seq_kv))


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
