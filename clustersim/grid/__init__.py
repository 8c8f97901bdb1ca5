"""Grids of runs: read from a file, made in parallel, kept whole, compared over seeds.

| making | |
|---|---|
| `run_grid` | run a grid, from a file or a mapping, and read its results; so does calling the package |
| `what_if`, `WhatIf` | one trace under other settings: a grid of them, against the first values |
| `Variation`, `plan_variation` | what a what-if varies, and the plan of its grid |
| `plan_grid` | the plan of a grid that is given as a mapping, and its file |
| `read_plan`, `GridPlan` | a grid file, expanded into cells and checked before anything runs |
| `Campaign` | one call of `clustersim grid` on a results folder: finds the missing cells and makes them |
| `Progress` | cells made, failed and running, and an estimate of the seconds left |
| `CellCounts` | distinct runs found in the folder, made, failed |
| `Store` | a results folder; a cell is in it whole or not at all |

| reading | |
|---|---|
| `read_results`, `Results` | the cells in the folder of a grid, complete or not: `to_pandas`, `compare` |
| `Comparison` | the paired difference of one metric from the baseline, over seeds |
| `load_notes` | sentences on loads that cells offer, and on those that are not the stated ones |
| `planner_notes` | sentences on policies that differ in their planner alone |
| `cell_notes` | sentences on cells that say little, as on those where hardly any job waits |
| `compare_runs` | such comparisons for runs that are in memory |
| `plot_runs` | bars of a metric over the policies of such runs |
| `FigureSpec`, `GRID_KINDS` | what a figure of a grid shows, and the kinds of figures |
| `text_of` | a value of an axis as a grid file states it |
| `is_grid` | whether a folder is that of a grid |
| `write_run_pages` | the pages of single runs, to which the page of the grid links |
| `write_tables` | write results and comparisons as tables |

Why
- A cell runs in a process that is forked from a clean one: of its own under limits and with code of the user,
  else of its batch. A policy may hang, crash, use up the memory or keep state in its module: limits can be
  enforced, and no cell depends on the cells before it. Forking from a process with everything imported costs
  10 ms instead of a second, and a tiny cell takes less than that.
- With `keep: rows` a batch writes one file of rows. A folder of seven files takes longer than a tiny run.
- Workers are threads of the command, or those of a dask cluster, which gets batches and no data of cells.
  Results go to the shared folder, so no finished cell depends on any process staying alive.
- The folder is the state, without a journal or a database: a cell is there, whole, under the hash of its
  inputs, or it is not. Locks are `flock`s, which end with their holder.
- Intervals are bootstrap-t, not percentiles: studies have 5 to 40 seeds and skewed differences. The
  coverage was measured before choosing (docs/grids.md).
"""

import sys
import types

from .call import plan_grid, run_grid
from .campaign import Campaign, CellCounts
from .comparisons import Comparison
from .expand import text_of
from .making import Progress
from .page import GRID_KINDS, FigureSpec, cell_notes, load_notes, planner_notes
from .preflight import GridPlan, read_plan
from .results import Results, compare_runs, is_grid, plot_runs, read_results, write_run_pages
from .store import Store
from .tables import write_tables
from .what_if import Variation, WhatIf, plan_variation, what_if

__all__ = [
    "GRID_KINDS",
    "Campaign",
    "CellCounts",
    "Comparison",
    "FigureSpec",
    "GridPlan",
    "Progress",
    "Results",
    "Store",
    "Variation",
    "WhatIf",
    "cell_notes",
    "compare_runs",
    "is_grid",
    "load_notes",
    "plan_grid",
    "plan_variation",
    "planner_notes",
    "plot_runs",
    "read_plan",
    "read_results",
    "run_grid",
    "text_of",
    "what_if",
    "write_run_pages",
    "write_tables",
]


class _CallablePackage(types.ModuleType):
    """`clustersim.grid(...)` stands beside `clustersim.run(...)`, and this package has its name."""

    __call__ = staticmethod(run_grid)


sys.modules[__name__].__class__ = _CallablePackage
