"""Kernels of newer training software: attention of cuDNN and FlashAttention-3, styles of norms, casts.

Chips without a table take
the fractions of a chip of their own architecture, which the evidence says.

| name | what |
|---|---|
| `with_training` | a profile with everything below, and its evidence |
"""

from .build import with_training

__all__ = ["with_training"]
