"""Measurement of operators, the programs that fit profiles to them, and the judgement of profiles.

| name | what |
|---|---|
| `collect`, `Pace` | time the operators of this machine with torch, and write the table |
| `check_profile`, `Finding` | whether a profile is plausible |
| `compare_profiles`, `mean_ratios`, `Difference` | two profiles kernel by kernel |

`python -m itertime.profiling.build` computes a profile from such a table, or from published tables.
"""

from .check_profile import Finding, check_profile
from .collecting import Pace, collect
from .compare_profiles import Difference, compare_profiles, mean_ratios

__all__ = ["Difference", "Finding", "Pace", "check_profile", "collect", "compare_profiles", "mean_ratios"]
