"""`clustersim.grid(...)`: a grid run from Python, given as a file or as a mapping."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from clustersim.runs import Trace
from itertime.errors import UserError
from itertime.io import write_text
from traces import Job, write_trace
from traces.native import is_data_frame

from .campaign import Campaign, CellCounts
from .making import Progress
from .preflight import read_plan
from .results import Results, read_results
from .tables import write_tables

__all__ = ["run_grid", "write_grid"]

_HEAD = "# Written by clustersim.grid; `clustersim grid` continues it.\n"


def run_grid(
    grid: str | Path | Mapping[str, Any],
    *,
    out: str | Path | None = None,
    workers: int | None = None,
    on_progress: Callable[[CellCounts, Progress], None] = lambda counts, progress: None,
) -> Results:
    """Run a grid and read its results; cells that are in the folder are not simulated again.

    `grid`: the path of a grid file, or what would be in one (docs/grids.md). A mapping is written to
    `OUT.yaml`, beside the folder `out`, so that `clustersim grid` continues it; relative paths in it start
    there. A trace in it may be jobs or a data frame, which are written to the folder `OUT.traces`. Cells that
    fail are results with a reason. UserError, with file and line, for a grid that cannot be run.
    """
    path = write_grid(grid, out) if isinstance(grid, Mapping) else Path(grid)
    plan = read_plan(path)
    folder = Path(out) if out is not None else Path(plan.name)
    campaign = Campaign(plan, folder)
    campaign.open()
    campaign.run(workers=workers, on_progress=on_progress)
    results = read_results(folder)
    write_tables(results)
    return results


def write_grid(grid: Mapping[str, Any], out: str | Path | None) -> Path:
    """Write the file of a grid that is given as a mapping: `OUT.yaml`, beside the folder `out`. UserError
    without a folder, or if the file is there and not ours.
    """
    if out is None:
        raise UserError("grid: a grid that is no file needs a folder; name it with out=")
    folder = Path(out)
    path = folder.with_name(f"{folder.name}.yaml")
    if path.exists() and not path.read_text(encoding="utf-8", errors="replace").startswith(_HEAD):
        raise UserError(f"{path}: exists, and was not written by clustersim.grid; choose another out=")
    document = _plain(grid, folder)
    write_text(path, _HEAD + yaml.safe_dump(document, sort_keys=False, allow_unicode=True))
    return path


def _plain(value: Any, folder: Path, name: str = "") -> Any:
    """The value as YAML has it; jobs and data frames become files in the folder."""
    if isinstance(value, Mapping):
        return {
            str(key): _plain(one, folder, f"{name}-{key}" if name else str(key)) for key, one in value.items()
        }
    if isinstance(value, Path):
        return str(value)
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if is_data_frame(value) or isinstance(value, Trace) or _are_jobs(value):
        jobs = Trace.given(value).jobs
        safe = "".join(c if c.isalnum() or c in "-_." else "_" for c in name).strip(".")
        path = folder.with_name(f"{folder.name}.traces") / f"{safe or 'trace'}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_trace(list(jobs), path)
        return str(path.relative_to(folder.parent))
    if isinstance(value, Sequence):
        return [_plain(one, folder, f"{name}-{i}") for i, one in enumerate(value)]
    raise UserError(f"grid: {name}: {type(value).__name__} cannot be part of a grid")


def _are_jobs(value: Any) -> bool:
    return isinstance(value, Sequence) and bool(value) and all(isinstance(one, Job) for one in value)
