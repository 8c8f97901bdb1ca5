"""clustersim simulates a multi-tenant GPU cluster that trains large language models.

| name | what |
|---|---|
| `run(trace, policy, **settings)` | simulate a trace (file, jobs, data frame) under a policy: a `Run` |
| `compare(trace, policies)` | several runs of one trace, in parallel |
| `run_grid(grid)`, also `grid(grid)` | a grid of runs, from a file or a mapping: its `Results` |
| `what_if(trace, policy, vary)` | a trace under other settings, against the first of them: a `WhatIf` |
| `RunConfig` | the settings of a run |
| `Run` | records, metrics and manifest of a run; `write_run`, `read_run` for its folder |
| `read_results(folder)` | the results of a grid: `to_pandas()`, `compare()`, each cell's `run()` |
| `Cluster`, `Overheads` | what is simulated |
| `Scheduler`, `State`, `JobView`, `Proposal` | what a policy is written with (`clustersim.scheduler`) |
| `Simulation`, `RunSetup` | the engine itself, and what it runs on |
| `UserError`, `PolicyError` | a mistake that a user can correct; a policy that failed or broke a rule |
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clustersim.cluster import Cluster as Cluster
    from clustersim.engine import RunSetup as RunSetup
    from clustersim.engine import Simulation as Simulation
    from clustersim.errors import PolicyError as PolicyError
    from clustersim.grid import read_results as read_results
    from clustersim.grid import run_grid as run_grid
    from clustersim.grid import what_if as what_if
    from clustersim.notebook import compare as compare
    from clustersim.notebook import run as run
    from clustersim.overheads import Overheads as Overheads
    from clustersim.records import Run as Run
    from clustersim.rundir import read_run as read_run
    from clustersim.rundir import write_run as write_run
    from clustersim.runs import RunConfig as RunConfig
    from clustersim.scheduler import JobView as JobView
    from clustersim.scheduler import Proposal as Proposal
    from clustersim.scheduler import Scheduler as Scheduler
    from clustersim.scheduler import State as State
    from itertime.errors import UserError as UserError

_HOMES = {
    "Cluster": "clustersim.cluster",
    "JobView": "clustersim.scheduler",
    "Overheads": "clustersim.overheads",
    "PolicyError": "clustersim.errors",
    "Proposal": "clustersim.scheduler",
    "Run": "clustersim.records",
    "RunConfig": "clustersim.runs",
    "RunSetup": "clustersim.engine",
    "Scheduler": "clustersim.scheduler",
    "Simulation": "clustersim.engine",
    "State": "clustersim.scheduler",
    "UserError": "itertime.errors",
    "compare": "clustersim.notebook",
    "read_results": "clustersim.grid",
    "read_run": "clustersim.rundir",
    "run": "clustersim.notebook",
    "run_grid": "clustersim.grid",
    "what_if": "clustersim.grid",
    "write_run": "clustersim.rundir",
}
"""The module of each public name; the imports above say the same to type checkers."""

_CALLABLE = "grid"
"""The sub-package that can be called, like `run` and `compare`."""

__all__ = list(_HOMES)


def __dir__() -> list[str]:
    """The public names."""
    return sorted([*__all__, _CALLABLE, "__version__"])


def __getattr__(name: str) -> object:
    """Import on first use, so that `clustersim --help` does not wait for pandas."""
    if name == "__version__":
        return import_module("importlib.metadata").version("clustersim")
    if name == _CALLABLE:
        return import_module(f"clustersim.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'clustersim' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
