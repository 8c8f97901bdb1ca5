"""Seconds and bytes of one iteration, part by part.

| name | what |
|---|---|
| `KernelTimes` | Seconds of one GPU type's kernels and in-node collectives, its peak and its memory |
| `Parts` |  |
| `Memory` | Bytes on the fullest GPU of each plan |
| `memory` | Memory of the fullest stage |
| `Workload` | Plans of one model on one system |
| `StageCosts` | Seconds by part |
| `chunk_times` | Times of every stage of the plans at `rows`, each of `chunks` chunks per stage |
| `interleaved_passes` | The passes of the plans at `rows`, which are interleaved |
| `stage_costs` | All parts of an iteration's time |
| `stage_layers_s` | Seconds of one micro-batch in the layers of the stage with the fewest |

Why
- `Partition` works out once what lies where; `Workload` carries model, plans, system, profile and partition
  as one argument.
- Launches are a floor, not an addition. A pass takes the longer of the GPU's time and the CPU's time to
  launch its kernels, layer by layer. Embedding and projection fill what the layers leave idle. Where the
  floor does not bind, which is every large model on A100, no digit moves.
"""

from .kernel_times import KernelTimes
from .layer import Parts
from .memory import Memory, memory
from .partition import Workload
from .stage import StageCosts, chunk_times, interleaved_passes, stage_costs, stage_layers_s

__all__ = [
    "KernelTimes",
    "Memory",
    "Parts",
    "StageCosts",
    "Workload",
    "chunk_times",
    "interleaved_passes",
    "memory",
    "stage_costs",
    "stage_layers_s",
]
