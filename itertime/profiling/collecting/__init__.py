"""Measurement of this machine's operators with torch.

| name | what |
|---|---|
| `collect` | time every case of a grid under sustained load, and write the table |
| `Pace` | how long each kernel runs |
| `keep_freed_memory` | of a process on a CPU, as it is kept while kernels are timed |
| `ModelGrid` | the kernels that trainings of some models launch, in place of a grid |

Why
- Kernels of training run for hours at the power limit. A kernel that runs once, on a GPU that had time to
  cool, is up to a third faster on H100; on constant numbers, faster still. So every kernel is repeated on
  random numbers for a stated time, and its row has the power and the clocks.
- Torch is asked for one kernel by name. Where the device lacks it, its row says why, and no other is timed in
  its place.
"""

from .bench import keep_freed_memory
from .collect import collect
from .model_cases import ModelGrid
from .timing import Pace

__all__ = ["ModelGrid", "Pace", "collect", "keep_freed_memory"]
