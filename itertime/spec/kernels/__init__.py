"""Models of the time of kernels that are no matrix product; `itertime.spec.operators` has those.

| name | what |
|---|---|
| `AttentionKernel`, `FLASH` | which attention kernel runs, and what it leaves out |
| `AttentionModel`, `AttentionCurve` | an attention kernel, by head dim, direction and mask |
| `AttentionSlowdown`, `SlowdownCurve` | earlier attention kernels, as multiples of FlashAttention-2's time |
| `ElementwiseModel`, `WidthRate` | memory-bound kernels, from bytes and bandwidth |
| `ElementwiseStyle` | one kind of them as fused, compiled or eager code, forward and backward |
| `Evidence` | whether a part of a profile is measured, fitted or assumed, and its errors |
| `CastModel` | quantisation of a 16-bit tensor, from the bytes that its kernels move |

Every `seconds` takes scalars or arrays, which broadcast, and evaluates all elements at once.
"""

from .attention import (
    FLASH,
    AttentionCurve,
    AttentionKernel,
    AttentionModel,
    AttentionSlowdown,
    SlowdownCurve,
)
from .evidence import Evidence
from .memory_bound import CastModel, ElementwiseModel, ElementwiseStyle, WidthRate

__all__ = [
    "FLASH",
    "AttentionCurve",
    "AttentionKernel",
    "AttentionModel",
    "AttentionSlowdown",
    "CastModel",
    "ElementwiseModel",
    "ElementwiseStyle",
    "Evidence",
    "SlowdownCurve",
    "WidthRate",
]
