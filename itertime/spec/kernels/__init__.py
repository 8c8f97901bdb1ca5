"""Queries of kernels, and models of the time of those that are no matrix product.

`itertime.spec.operators` has the model of matrix products.

| name | what |
|---|---|
| `Query` | any of the queries that `Profile.seconds` answers: |
| `Gemm`, `GroupedGemm` | matrix products; those of several experts in one launch |
| `Attention`, `AttentionKernel`, `FLASH` | attention; which kernel runs, and what it leaves out |
| `Elementwise`, `Cast` | memory-bound kernels; quantisation |
| `Collective` | a collective among GPUs of one node |
| `AttentionModel`, `AttentionCurve` | an attention kernel, by head dim, direction and mask |
| `AttentionSlowdown`, `SlowdownCurve` | earlier attention kernels, as multiples of FlashAttention-2's time |
| `ElementwiseModel`, `WidthRate` | memory-bound kernels, from bytes and bandwidth |
| `ElementwiseStyle` | one kind of them as fused, compiled or eager code, forward and backward |
| `CastModel` | quantisation of a 16-bit tensor, from the bytes that its kernels move |
| `TimedKernels`, `TimedProducts`, `TimedSizes` | kernels as they were timed, looked up by their sizes |

Every `seconds` takes scalars or arrays, which broadcast, and evaluates all elements at once.
"""

from .attention import (
    AttentionCurve,
    AttentionModel,
    AttentionSlowdown,
    SlowdownCurve,
)
from .memory_bound import CastModel, ElementwiseModel, ElementwiseStyle, WidthRate
from .queries import (
    FLASH,
    Attention,
    AttentionKernel,
    Cast,
    Collective,
    Elementwise,
    Gemm,
    GroupedGemm,
    Query,
)
from .timed import TimedKernels, TimedProducts, TimedSizes

__all__ = [
    "FLASH",
    "Attention",
    "AttentionCurve",
    "AttentionKernel",
    "AttentionModel",
    "AttentionSlowdown",
    "Cast",
    "CastModel",
    "Collective",
    "Elementwise",
    "ElementwiseModel",
    "ElementwiseStyle",
    "Gemm",
    "GroupedGemm",
    "Query",
    "SlowdownCurve",
    "TimedKernels",
    "TimedProducts",
    "TimedSizes",
    "WidthRate",
]
