"""Placers: which free GPUs a job gets.

| name | what |
|---|---|
| `Placer` | a name, a summary, and two functions: `fits` (is there room?) and `place` (on which nodes?) |
| `unit_of` | the GPUs of a job that must share a node |
| `placer` | the placer of a name: `pack`, `spread`, `topology`, `buddy` or `any` |

All choices are deterministic: ties go to the lowest node number.
"""

from .placers import Placer, placer, unit_of

__all__ = ["Placer", "placer", "unit_of"]
