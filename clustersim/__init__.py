"""clustersim simulates a multi-tenant GPU cluster that trains large language models.

| name | what |
|---|---|
| `run(trace, policy, **settings)` | simulate a trace (file or jobs) under a policy: a `Run` |
| `compare(trace, configs)` | several runs of one trace, in parallel |
| `RunConfig` | the settings of a run |
| `Run` | records, metrics and manifest of a run; `write_run`, `read_run` for its folder |
| `read_results(folder)` | the results of a grid: `to_pandas()`, `compare()`, each cell's `run()` |
| `Cluster`, `Overheads` | what is simulated |
| `Scheduler`, `State`, `JobView`, `Proposal` | what a policy is written with (`clustersim.scheduler`) |
| `Simulation` | the engine itself |
| `UserError`, `PolicyError` | what can go wrong |
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from itertime.errors import UserError

    from .cluster import Cluster
    from .comparing import compare
    from .config import RunConfig
    from .errors import PolicyError
    from .grid.results import read_results
    from .overheads import Overheads
    from .rundir import Run, read_run, write_run
    from .runner import run
    from .scheduler import JobView, Proposal, Scheduler, State
    from .simulation import Simulation

__all__ = [
    "Cluster", "JobView", "Overheads", "PolicyError", "Proposal", "Run", "RunConfig", "Scheduler",
    "Simulation", "State", "UserError", "compare", "read_results", "read_run", "run", "write_run",
]  # fmt: skip

_HOMES = {
    "Cluster": "clustersim.cluster",
    "JobView": "clustersim.scheduler",
    "Overheads": "clustersim.overheads",
    "PolicyError": "clustersim.errors",
    "Proposal": "clustersim.scheduler",
    "Run": "clustersim.rundir",
    "RunConfig": "clustersim.config",
    "Scheduler": "clustersim.scheduler",
    "Simulation": "clustersim.simulation",
    "State": "clustersim.scheduler",
    "UserError": "itertime.errors",
    "compare": "clustersim.comparing",
    "read_results": "clustersim.grid.results",
    "read_run": "clustersim.rundir",
    "run": "clustersim.runner",
    "write_run": "clustersim.rundir",
}


def __getattr__(name: str) -> object:
    """Import on first use, so that `clustersim --help` does not wait for pandas."""
    if name not in _HOMES:
        raise AttributeError(f"module 'clustersim' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
