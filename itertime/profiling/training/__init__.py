"""Kernels of newer training software: attention of cuDNN and FlashAttention-3, styles of norms, casts.

Their tables are in a folder beside the older ones; `training_tables` finds it. Chips without a table take
the fractions of a chip of their own architecture, which the evidence says.

| name | what |
|---|---|
| `with_training` | a profile with everything below, and its evidence |
| `training_tables` | the folder of the newer tables |
"""

from .build import with_training
from .tables import training_tables

__all__ = ["training_tables", "with_training"]
