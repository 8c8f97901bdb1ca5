"""Seconds and bytes of what mixes the tokens of a layer in place of attention, or picks its keys.

| name | what |
|---|---|
| `recurrence_s` | seconds of a recurrence, forward and backward |
| `mixer_gemms` | shapes of its matrix products |
| `recurrence_kernels` | kernels that a recurrence launches, forward and backward |
| `kept_bytes` | bytes that it keeps for the backward pass |
| `indexer_s` | seconds of the indexer of sparse attention, forward and backward |
"""

from .indexer import indexer_s
from .recurrence import kept_bytes, mixer_gemms, recurrence_kernels, recurrence_s

__all__ = ["indexer_s", "kept_bytes", "mixer_gemms", "recurrence_kernels", "recurrence_s"]
