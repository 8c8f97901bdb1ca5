"""`clustersim.grid(...)`: a grid run from Python, given as a file or as a mapping."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from clustersim.runs import Trace
from itertime.errors import UserError
from itertime.io import open_regular, write_text
from traces import Job, write_trace
from traces.native import is_data_frame

from .campaign import Campaign, CellCounts
from .gridfile import Naming, Place, dotted, parse_document
from .making import Progress
from .preflight import GridPlan, plan_of, read_plan
from .results import Results, read_results
from .tables import write_tables

__all__ = ["make_results", "plan_grid", "run_grid"]

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
    plan = plan_grid(grid, out) if isinstance(grid, Mapping) else read_plan(grid)
    return make_results(plan, Path(out) if out is not None else Path(plan.name), workers, on_progress)


def make_results(
    plan: GridPlan,
    folder: Path,
    workers: int | None = None,
    on_progress: Callable[[CellCounts, Progress], None] = lambda counts, progress: None,
) -> Results:
    """Make the cells of a plan that the folder lacks, and read and write the results."""
    campaign = Campaign(plan, folder)
    campaign.open()
    campaign.run(workers=workers, on_progress=on_progress)
    results = read_results(folder)
    write_tables(results)
    return results


def _as_key(place: Place, text: str) -> str:
    return f"grid: {dotted(place)}: {text}" if place else f"grid: {text}"


def plan_grid(grid: Mapping[str, Any], out: str | Path | None, naming: Naming = _as_key) -> GridPlan:
    """The plan of a grid that is given as a mapping. Its file is written to `OUT.yaml`, beside the folder
    `out`.

    `naming`: how errors name a value. UserError without a folder, if the file is there and not ours, and for
    a grid that cannot be run, which leaves no new file.
    """
    if out is None:
        raise UserError("grid: a grid that is no file needs a folder; name it with out=")
    folder = Path(out)
    path = folder.with_name(f"{folder.name}.yaml")
    if path.exists() and not _is_ours(path):
        raise UserError(f"{path}: exists, and was not written by clustersim.grid; choose another out=")
    traces = _Traces(folder)
    try:
        document = _plain(grid, traces)
        text = _HEAD + yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
        plan = plan_of(parse_document(text, path, naming))
    except UserError:
        traces.remove()
        raise
    write_text(path, text)
    return plan


def _is_ours(path: Path) -> bool:
    """Whether `plan_grid` wrote the file of a grid."""
    try:
        with open_regular(path) as file:
            return file.read(len(_HEAD.encode())) == _HEAD.encode()
    except OSError:
        return False


class _Traces:
    """The folder `OUT.traces` of jobs and data frames that are part of a grid."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.home = folder.with_name(f"{folder.name}.traces")
        self.new: list[Path] = []

    def write(self, name: str, trace: Any) -> str:
        """Write the jobs of a trace; the path as the file of the grid has it."""
        jobs = Trace.given(trace).jobs
        safe = "".join(c if c.isalnum() or c in "-_." else "_" for c in name).strip(".")
        path = self.home / f"{safe or 'trace'}.csv"
        if not path.exists():
            self.new.append(path)
        self.home.mkdir(parents=True, exist_ok=True)
        write_trace(list(jobs), path)
        return str(path.relative_to(self.folder.parent))

    def remove(self) -> None:
        """Remove the files that were not there before, and the folder if it is then empty."""
        for path in self.new:
            path.unlink(missing_ok=True)
        if self.new and not any(self.home.iterdir()):
            self.home.rmdir()


def _plain(value: Any, traces: _Traces, name: str = "") -> Any:
    """The value as YAML has it; jobs and data frames become files."""
    if isinstance(value, Mapping):
        return {
            str(key): _plain(item, traces, f"{name}-{key}" if name else str(key))
            for key, item in value.items()
        }
    if isinstance(value, Path):
        return str(value)
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if is_data_frame(value) or isinstance(value, Trace) or _are_jobs(value):
        return traces.write(name, value)
    if isinstance(value, Sequence):
        return [_plain(item, traces, f"{name}-{i}") for i, item in enumerate(value)]
    if isinstance(value, type):
        remedy = f"write it to a file, and name it as in mine.py:{value.__name__}"
        raise UserError(f"grid: {name}: a class cannot be part of a grid; {remedy}")
    raise UserError(f"grid: {name}: {type(value).__name__} cannot be part of a grid")


def _are_jobs(value: Any) -> bool:
    return isinstance(value, Sequence) and bool(value) and all(isinstance(item, Job) for item in value)
