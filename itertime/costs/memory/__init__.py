"""Bytes of GPU memory.

| name | what |
|---|---|
| `memory`, `Memory` | bytes by part on the fullest GPU of each plan, and whether they fit |
| `MEMORY_HEADROOM`, `checked_headroom` | the share of memory to leave free by default; its bounds |
| `BUFFERS_BYTES` | what is assumed beyond tensors; PyTorch's own figures lack it |
| `activations_of` | bytes that a layer keeps for its backward pass |

Why
- Every term names what keeps it. A constant that was fitted would hide what a new plan changes.
- Activations are a module of their own, because offloading moves them and asks for the same bytes.
"""

from .activations import activations_of
from .needed import BUFFERS_BYTES, MEMORY_HEADROOM, Memory, checked_headroom, memory

__all__ = ["BUFFERS_BYTES", "MEMORY_HEADROOM", "Memory", "activations_of", "checked_headroom", "memory"]
