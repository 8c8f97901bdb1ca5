"""Making cells: in child processes of this machine, or of the workers of a dask cluster.

| name | |
|---|---|
| `run_orders` | make all cells of a list of orders; calls back for each that is decided |
| `CellOutcome`, `Progress` | the last verdict on one order; how many are made, failed, running |
| `Unfinished` | the error of a call that could not decide all orders |
| `commands` | the commands that repeat a cell by hand |
| `load_trace`, `model_hashes` | the trace of a cell, and the hashes of the models that it names |

A batch of orders goes from `dispatch` to a pool of workers (`local_pool`, `dask_pool`), from a worker to its
fork server, and from there to the process that makes one cell.
"""

from .dispatch import CellOutcome, Progress, Unfinished, run_orders
from .make_cell import commands, load_trace, model_hashes

__all__ = ["CellOutcome", "Progress", "Unfinished", "commands", "load_trace", "model_hashes", "run_orders"]
