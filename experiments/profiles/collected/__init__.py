"""Fits to a table of `itertime profile collect`, part by part; a base profile fills what was not measured.

| name | what |
|---|---|
| `fit_table` | every part of a profile that the table measures, the base's for the others, and the evidence |
| `core_profile`, `is_of_core` | the profile of a CPU core, which needs no base; whether a table is of one |
| `fit_collected`, `COLLECTED` | the memory-bound kernels alone; which operator stands for which kind |
"""

from .core import core_profile, is_of_core
from .elementwise import COLLECTED, fit_collected
from .table import fit_table

__all__ = ["COLLECTED", "core_profile", "fit_collected", "fit_table", "is_of_core"]
