"""Placers: which free GPUs a job gets.

| name | what |
|---|---|
| `Placer` | a name, a summary, and two functions: `fits` (is there room?) and `place` (on which nodes?) |
| `unit_of` | the GPUs of a job that must share a node |
| `placer` | the placer of a name: `pack`, `spread`, `topology`, `buddy` or `any` |
| `PLACERS` | all of them by name |
| `Room` | which nodes a job may use, and how: here any node, in whole GPUs |
| `LimitedRoom` | the same where nodes are closed to the job, or where it needs cores or memory |
| `ShapedRoom` | the same for a job that asks for GPUs on a number of nodes |
| `SharedGpuRoom` | the same for a job that has a share of one GPU |

All choices are deterministic: ties go to the lowest node number.
"""

from .placers import PLACERS, Placer, placer, unit_of
from .room import LimitedRoom, Room, ShapedRoom, SharedGpuRoom

__all__ = ["PLACERS", "LimitedRoom", "Placer", "Room", "ShapedRoom", "SharedGpuRoom", "placer", "unit_of"]
