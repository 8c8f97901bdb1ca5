"""Measurement of a GPU's operators, and the judgement of profiles.

| name | what |
|---|---|
| `collect`, `Pace`, `ModelGrid` | time the operators of this machine with torch, and write the table |
| `keep_freed_memory` | of a process on a CPU, as it is kept while kernels are timed |
| `check_profile`, `ProfileFinding` | whether a profile is plausible |
| `compare_profiles`, `mean_ratios`, `Difference` | two profiles kernel by kernel |
| `new_system`, `write_system`, `NewSystem` | a system of chips that only a data sheet describes |
| `ChipSheet`, `NODE_KEYS`, `read_sheet` | the keys of such a sheet; a sheet that is read and checked |
| `profile_by_sheet` | the profile of its chip, from the kernels of a measured one |
| `ClassFigures`, `class_figures`, `chip_figures` | what chips of a class, and some chips, reach of the peak |
| `reached_share` | the share of the peak that large products of a profile reach in training |
| `render`, `plain_values` | the text of a profile's file |

In a clone of the repository `python -m experiments.profiles.build` computes a profile from such a table.
"""

from .check_profile import ProfileFinding, check_profile
from .chip_sheet import (
    NODE_KEYS,
    ChipSheet,
    ClassFigures,
    chip_figures,
    class_figures,
    reached_share,
    read_sheet,
)
from .collecting import ModelGrid, Pace, collect, keep_freed_memory
from .compare_profiles import Difference, compare_profiles, mean_ratios
from .new_system import NewSystem, new_system, write_system
from .profile_text import plain_values, render
from .sheet_profile import profile_by_sheet

__all__ = [
    "NODE_KEYS",
    "ChipSheet",
    "ClassFigures",
    "Difference",
    "ModelGrid",
    "NewSystem",
    "Pace",
    "ProfileFinding",
    "check_profile",
    "chip_figures",
    "class_figures",
    "collect",
    "compare_profiles",
    "keep_freed_memory",
    "mean_ratios",
    "new_system",
    "plain_values",
    "profile_by_sheet",
    "reached_share",
    "read_sheet",
    "render",
    "write_system",
]
