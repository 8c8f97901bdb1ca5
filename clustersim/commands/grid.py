"""`clustersim grid`: run a grid of traces, policies, settings and seeds, and compare the results.

`make_grid` is the part that `what-if` and `compare --vary` share.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated

import typer

from itertime.errors import UserError

from .help.options import NoReport

if TYPE_CHECKING:
    from clustersim.grid import Campaign, CellCounts, GridPlan, Progress, Results

    from .output.grids import WaitsByGroup

__all__ = ["grid", "make_grid", "show_grid"]

_SOME_FAILED = 5
_LINE_EVERY_S = 10.0


def grid(
    file: Annotated[Path, typer.Argument(help="Grid file (YAML); see docs/grids.md.")],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="Folder of results; by default the name of FILE without its ending."
        ),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Cells simulated at a time; by default one per processor.")
    ] = None,
    scheduler: Annotated[
        str | None, typer.Option(help="Address of a running dask scheduler: tcp://HOST:PORT.")
    ] = None,
    no_bound: Annotated[
        bool, typer.Option("--no-bound", help="As `set: {bound: none}` in the grid file.")
    ] = False,
    no_report: NoReport = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the cells without simulating them.")
    ] = False,
    wide: Annotated[bool, typer.Option("--wide", help="Show every column, however wide the table.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Simulate a grid of runs and compare them over seeds.

    Cells that are in the folder of results are not simulated again, so an interrupted grid continues where it
    stopped.
    """
    from clustersim.grid import read_plan

    from .output.grids import print_cells

    if workers is not None and scheduler is not None:
        raise UserError("--workers and --scheduler: give one of them; the scheduler has workers of its own")
    plan = read_plan(file, {"bound": "none"} if no_bound else {})
    folder = out if out is not None else Path(plan.name)
    if dry_run:
        print_cells(plan, folder, json)
        return
    results, failed = make_grid(plan, folder, workers=workers, scheduler=scheduler)
    show_grid(results, failed, no_report=no_report, wide=wide, json=json)


def make_grid(
    plan: GridPlan, folder: Path, *, workers: int | None = None, scheduler: str | None = None
) -> tuple[Results, int]:
    """Make the missing cells of a grid, with progress on stderr; the results, and how many cells failed."""
    from clustersim.grid import Campaign, read_results

    campaign = Campaign(plan, folder)
    campaign.open()
    _announce(campaign)
    with _progress(plan, campaign) as advance:
        try:
            counts = campaign.run(
                workers=workers, scheduler=scheduler, on_failure=_say_failure, on_progress=advance
            )
        except KeyboardInterrupt:
            _say(f"{campaign.counts.made} cells were made and are kept; run again to make the rest")
            raise
    return read_results(folder), counts.failed


def show_grid(
    results: Results,
    failed: int,
    *,
    no_report: bool = False,
    kept: bool = True,
    wide: bool = False,
    json: bool = False,
    waits: WaitsByGroup | None = None,
) -> None:
    """Write the tables and the page of a grid, print the differences, and exit with 5 if cells failed.

    `kept`: whether the folder stays. `waits`: those of groups of jobs, which are printed as well.
    """
    from clustersim.grid import Store, write_tables
    from itertime.io import write_text

    from .output.grids import print_results

    comparisons = write_tables(results)
    page = results.folder / "report.html"
    if no_report:
        page.unlink(missing_ok=True)  # that of earlier results
    else:
        write_text(page, results.report().text)
    print_results(results, comparisons, json, wide, kept, waits)
    if not no_report and not json:
        print(f"Report: {page}")
    if failed:
        cells = len({result.cell for result in results})
        where = f"; see {Store(results.folder).failures}" if kept else ""
        _say(f"{failed} of {cells} cells failed{where}")
        raise typer.Exit(_SOME_FAILED)


def _announce(campaign: Campaign) -> None:
    for damage in campaign.counts.damaged:
        _say(f"{damage}; it is made again")
    foreign = campaign.foreign_cells()
    if foreign:
        _say(f"{foreign} cells in {campaign.store.cells} belong to another grid file or version; kept")


def _say_failure(label: str, reason: str) -> None:
    from .output.terminal import plain

    _say(f"failed: {plain(label)}: {plain(reason)[:500]}")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@contextmanager
def _progress(plan: GridPlan, campaign: Campaign) -> Iterator[Callable[[CellCounts, Progress], None]]:
    """Progress on stderr: one line that changes on a terminal, else a line every ten seconds."""
    from .output.terminal import plain

    total = len({planned.key for planned in plan.cells})
    terminal = sys.stderr.isatty()
    began = shown_at = monotonic()
    progress_text = dashboard = ""

    def advance(counts: CellCounts, progress: Progress) -> None:
        nonlocal shown_at, progress_text, dashboard
        if progress.dashboard and not dashboard:
            dashboard = progress.dashboard
            _say(f"dask shows its workers at {plain(dashboard)}")
        remaining = total - counts.cached - counts.made - counts.failed
        running = f"{progress.running} running" if progress.slots else "waiting for workers"
        text = (
            f"{counts.cached + counts.made} of {total} cells done ({counts.cached} cached), "
            f"{counts.failed} failed, {running}"
        )
        if remaining and progress.remaining_s is not None:
            text += f", {_duration(progress.remaining_s)} left"
        if terminal:
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
        elif monotonic() - shown_at >= _LINE_EVERY_S:
            shown_at = monotonic()
            _say(text)
        progress_text = text

    _say(f"{campaign.counts.cached} of {total} cells exist; simulating {len(campaign.missing)}")
    yield advance
    if terminal and progress_text:
        print("\r\x1b[K", end="", file=sys.stderr)
    if campaign.missing:
        counts = campaign.counts
        done = f"{counts.cached + counts.made} of {total} cells done ({counts.cached} cached)"
        _say(f"{done}, {counts.failed} failed, in {_duration(monotonic() - began)}")


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"
