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
| `Simulation`, `RunSetup` | the engine itself, and what it runs on |
| `UserError`, `PolicyError` | what can go wrong |
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from itertime.errors import UserError as UserError

    from .cluster import Cluster as Cluster
    from .comparing import compare as compare
    from .config import RunConfig as RunConfig
    from .errors import PolicyError as PolicyError
    from .grid.results import read_results as read_results
    from .overheads import Overheads as Overheads
    from .run_result import Run as Run
    from .run_setup import RunSetup as RunSetup
    from .rundir import read_run as read_run
    from .rundir_writer import write_run as write_run
    from .runner import run as run
    from .scheduler import JobView as JobView
    from .scheduler import Proposal as Proposal
    from .scheduler import Scheduler as Scheduler
    from .scheduler import State as State
    from .simulation import Simulation as Simulation

_HOMES = {
    "Cluster": "clustersim.cluster",
    "JobView": "clustersim.scheduler",
    "Overheads": "clustersim.overheads",
    "PolicyError": "clustersim.errors",
    "Proposal": "clustersim.scheduler",
    "Run": "clustersim.run_result",
    "RunConfig": "clustersim.config",
    "RunSetup": "clustersim.run_setup",
    "Scheduler": "clustersim.scheduler",
    "Simulation": "clustersim.simulation",
    "State": "clustersim.scheduler",
    "UserError": "itertime.errors",
    "compare": "clustersim.comparing",
    "read_results": "clustersim.grid.results",
    "read_run": "clustersim.rundir",
    "run": "clustersim.runner",
    "write_run": "clustersim.rundir_writer",
}
"""The module of each public name; the imports above say the same to type checkers."""

__all__ = list(_HOMES)


def __getattr__(name: str) -> object:
    """Import on first use, so that `clustersim --help` does not wait for pandas."""
    if name not in _HOMES:
        raise AttributeError(f"module 'clustersim' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
