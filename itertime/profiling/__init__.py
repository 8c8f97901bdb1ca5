"""Measurement of a GPU's operators, and the judgement of profiles.

| name | what |
|---|---|
| `collect`, `Pace` | time the operators of this machine with torch, and write the table |
| `check_profile`, `ProfileFinding` | whether a profile is plausible |
| `compare_profiles`, `mean_ratios`, `Difference` | two profiles kernel by kernel |

In a clone of the repository `python -m experiments.profiles.build` computes a profile from such a table.
"""

from .check_profile import ProfileFinding, check_profile
from .collecting import Pace, collect
from .compare_profiles import Difference, compare_profiles, mean_ratios

__all__ = [
    "Difference",
    "Pace",
    "ProfileFinding",
    "check_profile",
    "collect",
    "compare_profiles",
    "mean_ratios",
]
