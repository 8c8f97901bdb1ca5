"""Placers: which free GPUs a job gets.

| name | what |
|---|---|
| `Placer` | a name, a summary, and two functions: `fits` (is there room?) and `place` (on which nodes?) |
| `placer` | the placer of a name: `pack`, `spread`, `topology`, `buddy` or `any` |

All choices are deterministic: ties go to the lowest node number.
"""

from .placers import Placer, placer

__all__ = ["Placer", "placer"]
