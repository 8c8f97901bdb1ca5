"""What the cost functions ask of a GPU's profile."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from itertime.spec import FLASH, AttentionKernel

__all__ = ["KernelTimes"]

Array = NDArray[np.float64]


class KernelTimes(Protocol):
    """Seconds of one GPU type's kernels and in-node collectives, its peak and its memory.

    A `Profile` answers all of it, and documents the arguments. Every method takes scalars or arrays and
    broadcasts.
    """

    @property
    def memory_bytes(self) -> float: ...

    @property
    def peak_flops(self) -> float: ...

    @property
    def gemm_in_training(self) -> float: ...

    def peak_flops_of(self, precision: str = "bf16") -> float: ...

    def gemm_s(
        self, m: ArrayLike, n: ArrayLike, k: ArrayLike, batch: ArrayLike = 1, precision: str = "bf16"
    ) -> Array: ...

    def grouped_gemm_s(
        self, m: ArrayLike, n: ArrayLike, k: ArrayLike, groups: ArrayLike, precision: str = "bf16"
    ) -> Array: ...

    def attention_s(
        self,
        batch: ArrayLike,
        heads: ArrayLike,
        kv_heads: ArrayLike,
        head_dim: ArrayLike,
        seq_q: ArrayLike,
        seq_kv: ArrayLike,
        causal: ArrayLike = True,
        backward: bool = False,
        kernel: AttentionKernel = FLASH,
    ) -> Array: ...

    def attention_factor(self, kernel: str, head_dim: float, seq: float, causal: bool = True) -> float: ...

    def elementwise_s(
        self,
        nbytes: ArrayLike,
        kind: str = "elementwise",
        width: float | None = None,
        style: str | None = None,
        backward: ArrayLike = False,
    ) -> Array: ...

    def cast_s(self, elements: ArrayLike, precision: str) -> Array: ...

    def collective_s(self, operation: str, nbytes: ArrayLike, ranks: ArrayLike = 2) -> Array: ...
