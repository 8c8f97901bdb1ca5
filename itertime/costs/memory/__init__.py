"""Bytes of GPU memory.

| name | what |
|---|---|
| `memory`, `Memory` | bytes by part on the fullest GPU of each plan, and whether they fit |
| `MEMORY_HEADROOM`, `checked_headroom` | the share of memory to leave free by default; its bounds |
| `OVERHEADS` | the parts beyond tensors, which PyTorch's own figures of allocated memory lack |
| `activations_of` | bytes that a layer keeps for its backward pass |

Why
- Every term names what keeps it. A constant that was fitted would hide what a new plan changes.
- Activations are a module of their own, because offloading moves them and asks for the same bytes.
"""

from .activations import activations_of
from .needed import MEMORY_HEADROOM, Memory, checked_headroom, memory
from .overheads import OVERHEADS

__all__ = ["MEMORY_HEADROOM", "OVERHEADS", "Memory", "activations_of", "checked_headroom", "memory"]
