"""Seconds and bytes of one iteration, part by part, for many plans at once.

| name | what |
|---|---|
| `Workload` | plans of one model on one system, with their partition: the argument of all cost functions |
| `stage_costs`, `StageCosts` | seconds by part of every kind of stage, and of what happens once, by the \
plans' rules |
| `memory`, `Memory` | bytes by part on the fullest GPU, and whether they fit |
| `OVERHEADS` | the parts of it beyond tensors, which PyTorch's own figures of allocated memory lack |
| `MEMORY_HEADROOM`, `checked_headroom` | the share of memory to leave free by default; its bounds |
| `micro_batch_passes`, `Pass` | both passes of one micro-batch: one layer by part, embedding, head |
| `micro_batch_columns` | what of a plan decides them |
| `once_s` | seconds by part of what an iteration does once |
| `Parts` | seconds by the name of a part |
| `KernelTimes` | what cost functions ask of a profile |

Why
- The layout of a model over GPUs is computed once, in the partition of a `Workload`. Every cost reads it.
- Launches are a floor, not an addition. A pass takes the longer of the GPU's time and the CPU's time to
  launch its kernels, layer by layer. Embedding and projection fill what the layers of their chunk leave idle.
- The floor is part of the passes, so schedules, task graph and pruning need not know it. Where it does not
  bind, which is every large model on A100, it changes no digit.
- An iteration takes the passes of its slowest data-parallel rank: what they take longer than the mean rank's
  is a part of the passes, so what hides behind them, and the task graph, need not know it either.
- The neutral launch time is that of eager PyTorch, measured without a GPU. What frameworks add differs by
  site, like `Site.layer_overhead_s`.
"""

from .exchange import once_s
from .kernel_times import KernelTimes
from .layer import Parts
from .memory import MEMORY_HEADROOM, OVERHEADS, Memory, checked_headroom, memory
from .partition import Workload
from .passes import Pass, micro_batch_columns, micro_batch_passes
from .rules import stage_costs
from .stage import StageCosts

__all__ = [
    "MEMORY_HEADROOM",
    "OVERHEADS",
    "KernelTimes",
    "Memory",
    "Parts",
    "Pass",
    "StageCosts",
    "Workload",
    "checked_headroom",
    "memory",
    "micro_batch_columns",
    "micro_batch_passes",
    "once_s",
    "stage_costs",
]
