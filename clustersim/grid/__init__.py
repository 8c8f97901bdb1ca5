"""Grids of runs: read from a file, made in parallel, kept whole, compared over seeds.

| name | what |
|---|---|
| `Campaign` | One call of the grid command on a results folder |
| `CellCounts` | Numbers of distinct runs |
| `Progress` | How many cells of a grid are made, failed, or running |
| `GridPlan` | A grid file, read and expanded into cells |
| `read_plan` | Read a grid file and check every cell |
| `Comparison` | A metric of the cells with these values of axes |
| `Results` | The cells of a grid in the order of its file |
| `compare_runs` | The paired differences of policies that ran with the same seeds |
| `read_results` | The results in the folder of a grid, complete or not |
| `Store` | A results folder |
| `write_tables` | Write the tables of a grid into its folder |

Why
- Every cell runs in a process of its own, forked from a clean one: a policy may hang, crash, eat memory or
  keep state in its module. Forking from a process with everything imported costs 10 ms instead of a second.
- dask.distributed carries batches, not cells' data. Locally its scheduler and worker are threads of the
  client, and the same code serves a remote scheduler. Results go to the shared folder.
- The folder is the state: a cell is there, whole, under the hash of its inputs, or it is not. Locks are
  `flock`s, which end with their holder.
- Intervals are bootstrap-t, not percentiles: studies have 5 to 40 seeds and skewed differences. The
  coverage was measured before choosing (docs/grids.md).
"""

from .campaign import Campaign, CellCounts
from .dispatch import Progress
from .preflight import GridPlan, read_plan
from .results import Comparison, Results, compare_runs, read_results
from .store import Store
from .tables import write_tables

__all__ = [
    "Campaign",
    "CellCounts",
    "Comparison",
    "GridPlan",
    "Progress",
    "Results",
    "Store",
    "compare_runs",
    "read_plan",
    "read_results",
    "write_tables",
]
