"""`clustersim what-if`: a trace under other settings, against the first values of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from itertime.commandline import option_groups
from itertime.errors import UserError

from .help import completion
from .help.options import (
    Output,
    PolicyName,
    RunOptions,
    TraceFile,
    Workers,
    grid_settings,
    policy_or_that_of_site,
)

if TYPE_CHECKING:
    from clustersim.grid import Results

    from .output.grids import WaitsByGroup

__all__ = ["vary", "what_if"]

Vary = Annotated[
    list[str],
    typer.Option(
        "--vary",
        help="NAME=VALUE,VALUE,...: values of a setting or of `nodes`, the base first; repeatable.",
        autocompletion=completion.varied,
        show_default=False,
    ),
]
Metrics = Annotated[
    str | None, typer.Option(help="Metrics to compare, separated by commas; by default five.")
]
By = Annotated[
    str | None,
    typer.Option(help="Print mean waits by tenant, user, account, partition, qos, gpu_type or size as well."),
]


@option_groups
def what_if(
    trace: TraceFile,
    vary_: Vary,
    options: RunOptions,
    output: Output,
    policy: PolicyName = None,
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds of each run, counting from --seed.")] = 1,
    metrics: Metrics = None,
    by: By = None,
    workers: Workers = None,
) -> None:
    """Simulate a trace under other settings, and compare each with the first.

    All runs have the same jobs and the same seeds. With several --vary, all combinations run, and each is
    compared with that of the first values. With --out, a folder keeps the runs and a report, and the same
    command continues it. Where something is drawn, --seeds 5 or more gives intervals.
    """
    name = policy_or_that_of_site(policy, options)
    vary(trace, [name], vary_, options, output, seeds=seeds, metrics=metrics, by=by, workers=workers)


def vary(
    trace: Path,
    policies: Sequence[str],
    assignments: Sequence[str],
    options: RunOptions,
    output: Output,
    *,
    seeds: int,
    baseline: str | None = None,
    metrics: str | None = None,
    by: str | None = None,
    workers: int | None = None,
) -> None:
    """Run the grid of policies and varied settings, and print and write its results."""
    from clustersim.grid import Variation, plan_variation

    from .grid import make_grid, show_grid

    _check_grouping(by)
    variation = Variation(policies, _values(assignments), seeds, baseline)
    if options.no_bound and "bound" in variation.vary:
        raise UserError("--vary bound: contradicts --no-bound; leave one of them out")
    if options.planner is not None and "planner" in variation.vary:
        raise UserError("--vary planner: contradicts --planner; leave one of them out")
    metric_names = [name.strip() for name in metrics.split(",") if name.strip()] if metrics else None
    with _folder(output.out) as folder:
        settings = grid_settings(options)
        run_settings = {name: value for name, value in settings.items() if name not in variation.vary}
        plan = plan_variation(trace, variation, run_settings, folder, metric_names, option="--vary")
        results, failed = make_grid(plan, folder, workers=workers)
        keeps_folder = output.out is not None
        no_report = output.no_report or not keeps_folder
        waits = _waits(results, trace, options, by)
        show_grid(
            results,
            failed,
            no_report=no_report,
            kept=keeps_folder,
            wide=output.wide,
            json=output.json,
            waits=waits,
        )


def _check_grouping(by: str | None) -> None:
    from clustersim.analysis import GROUPINGS
    from itertime.errors import UnknownName

    if by is not None and by not in GROUPINGS:
        raise UnknownName("group of --by", by, GROUPINGS)


def _waits(results: Results, trace: Path, options: RunOptions, by: str | None) -> WaitsByGroup | None:
    """The mean waits of groups of jobs in every run. Unless groups are asked for, those of all jobs together
    where the trace states what the waits were in the log that it comes from, else none.
    """
    from clustersim.analysis import WHOLE
    from clustersim.runs import Trace

    from .output.grids import waits_by

    config = options.config("fifo", settings=[])
    jobs = Trace.read(trace, config.table, config.model_path).jobs
    if by is None and all(job.logged_start_s is None for job in jobs):
        return None
    return waits_by(results, jobs, by or WHOLE)


@contextmanager
def _folder(out: Path | None) -> Iterator[Path]:
    """The folder of the results, which is deleted in the end unless it was asked for."""
    if out is not None:
        if (out / "manifest.json").exists():
            raise UserError(f"{out}: holds a run; choose an empty folder, or one of an earlier what-if")
        out.parent.mkdir(parents=True, exist_ok=True)
        yield out
        return
    from tempfile import TemporaryDirectory

    with TemporaryDirectory(prefix="clustersim-what-if-") as home:
        yield Path(home) / "results"


def _values(assignments: Sequence[str]) -> dict[str, list[Any]]:
    """`NAME=V,V,...` by name, with values in YAML."""
    from itertime.errors import quoted
    from itertime.io import parse_yaml

    values: dict[str, list[Any]] = {}
    for text in assignments:
        name, equals, raw = text.partition("=")
        name = name.strip()
        if not equals or not name or not raw.strip():
            raise UserError(f"--vary {quoted(text)}: write NAME=VALUE,VALUE,..., as in nodes=64,96,128")
        if name in values:
            raise UserError(f"--vary {quoted(text)}: {name} is varied twice; name all its values in one")
        try:
            values[name] = [parse_yaml(item) for item in raw.split(",")]
        except ValueError:
            raise UserError(f"--vary {quoted(text)}: a value is not valid YAML") from None
        if any(isinstance(value, list | dict) for value in values[name]):
            raise UserError(f"--vary {quoted(text)}: values are numbers or words; use a grid file for others")
    return values
