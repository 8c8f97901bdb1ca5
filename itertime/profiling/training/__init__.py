"""Kernels of newer training software: attention of cuDNN and FlashAttention-3, styles of norms, casts.

Their tables are in a folder beside the older ones; `training_tables` finds it. Chips without a table take
the fractions of a chip of their own architecture, which the evidence says.

| name | what |
|---|---|
| `fit_training` | everything below, and its evidence |
| `flash_elsewhere` | FlashAttention-2 on a chip that the older tables lack |
| `training_tables` | the folder of the newer tables |
"""

from .attention import flash_elsewhere
from .build import TrainingKernels, fit_training
from .tables import training_tables

__all__ = ["TrainingKernels", "fit_training", "flash_elsewhere", "training_tables"]
