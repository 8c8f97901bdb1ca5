"""Measurement of operators, and the programs that fit profiles to them.

| name | what |
|---|---|
| `collect`, `Pace` | time the operators of this machine with torch, and write the table |

`python -m itertime.profiling.build` computes a profile from such a table, or from published tables.
"""

from .collecting import Pace, collect

__all__ = ["Pace", "collect"]
