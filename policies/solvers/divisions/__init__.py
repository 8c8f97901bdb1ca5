"""Searches for a division of GPUs among jobs, from what each job gains by each count.

| module         | names                         | of      |
|----------------|-------------------------------|---------|
| `afs_scan`     | `Scan`, `Gain`, `gains`       | AFS     |
| `cell_search`  | `GpuCell`, `CellChange`, `Changes`   | Arena   |
| `priced_division` | `priced_division`          | Pollux  |
| `reallocation` | `best_division`, `Options`    | Unicron |
| `sensitivity`  | `Division`, `Ladder`, `ladder`| Rubick  |

The other problems of `policies.solvers` are programs for a library, or formulas. These are searches of
our own: by steps between two sizes of a job, or by dynamic programming over jobs.
"""

from __future__ import annotations

from .afs_scan import Gain, Scan, gains
from .cell_search import CellChange, Changes, GpuCell
from .priced_division import priced_division
from .reallocation import Options, best_division
from .sensitivity import Division, Ladder, ladder

__all__ = [
    "CellChange",
    "Changes",
    "Division",
    "Gain",
    "GpuCell",
    "Ladder",
    "Options",
    "Scan",
    "best_division",
    "gains",
    "ladder",
    "priced_division",
]
