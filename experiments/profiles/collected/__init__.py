"""Fits to a table of `itertime profile collect`, part by part; a base profile fills what was not measured.

| name | what |
|---|---|
| `fit_table` | every part of a profile that the table measures, the base's for the others, and the evidence |
| `fit_collected`, `COLLECTED` | the memory-bound kernels alone; which operator stands for which kind |
"""

from .elementwise import COLLECTED, fit_collected
from .table import fit_table

__all__ = ["COLLECTED", "fit_collected", "fit_table"]
