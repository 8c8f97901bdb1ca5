"""`clustersim report`, `timeline` and `plot`: pages and pictures of recorded runs."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from itertime.errors import UnknownName, UserError

if TYPE_CHECKING:
    from clustersim.records import Run

__all__ = ["plot", "report", "timeline"]

_SWEEP = "load-sweep"


def report(
    folder: Annotated[
        Path, typer.Argument(help="Folder of `run`, `compare`, `what-if`, `grid` or `backtest --out`.")
    ],
    baseline: Annotated[
        str | None, typer.Option(help="Policy to compare the others with; by default the first.")
    ] = None,
    warmup: Annotated[
        float | None,
        typer.Option(min=0, help="Seconds from the first submission to a window of measurement."),
    ] = None,
    measure: Annotated[
        float | None,
        typer.Option(
            min=0, help="Seconds that the window of measurement lasts; by default to the last submission."
        ),
    ] = None,
    pages: Annotated[
        int, typer.Option(min=0, help="Of a grid: write the pages of at most so many runs, too.")
    ] = 50,
) -> None:
    """Write the HTML report of recorded runs to FOLDER/report.html.

    With --warmup or --measure, it shows the metrics of that window; the runs remain as they are. The report
    of a grid links to pages of its runs in FOLDER/runs, those of the first seed first.
    """
    from clustersim.analysis import with_window
    from clustersim.backtest import has_backtest, write_backtest_report
    from clustersim.grid import is_grid
    from clustersim.report import render_report
    from clustersim.rundir import read_run
    from itertime.io import write_text

    from .output.runs import of_sound_records, run_folders

    if is_grid(folder):
        if (baseline, warmup, measure) != (None, None, None):
            raise UserError(f"{folder}: holds a grid; its file states baseline and window")
        _report_of_grid(folder, pages)
        return
    if has_backtest(folder):
        if (baseline, warmup, measure) != (None, None, None):
            raise UserError(f"{folder}: holds a backtest; --baseline, --warmup and --measure are for runs")
        print(write_backtest_report(folder))
        return
    homes = run_folders(folder)
    runs = [read_run(home) for home in homes]
    if warmup is not None or measure is not None:
        runs = [with_window(run, warmup or 0.0, measure) for run in runs]
    names = [run.policy for run in runs]
    runs, stated_baseline = _as_compared(runs)
    baseline = baseline or stated_baseline
    if baseline is not None and baseline not in names:
        raise UserError(f"--baseline {baseline}: is not among {', '.join(names)}")
    with of_sound_records(homes):
        page = render_report(runs, baseline=baseline)
    write_text(folder / "report.html", page)
    print(folder / "report.html")


def _as_compared(runs: list[Run]) -> tuple[list[Run], str | None]:
    """The runs in the order in which their command named the policies, and the baseline that it named."""
    from .simulate import DEMO_POLICIES

    command = [str(word) for word in runs[0].manifest.get("command") or ()]
    next_word = dict(pairwise(word for part in command for word in part.split("=", 1)))
    order = next_word.get("--policies", DEMO_POLICIES).split(",")
    place_of_policy = {name: place for place, name in enumerate(order)}
    stated_baseline = next_word.get("--baseline")
    ordered = sorted(runs, key=lambda run: place_of_policy.get(run.policy, len(place_of_policy)))
    return ordered, stated_baseline if any(run.policy == stated_baseline for run in runs) else None


def _report_of_grid(folder: Path, pages: int) -> None:
    from clustersim.grid import read_results, write_run_pages
    from itertime.io import write_text

    from .output.terminal import progress_of

    results = read_results(folder)
    with progress_of("pages of runs", pages) as advance:
        write_run_pages(results, pages, advance)
    write_text(folder / "report.html", results.report().text)
    print(folder / "report.html")


def timeline(
    folder: Annotated[Path, typer.Argument(help="Folder of `run --out`, or of one run of a comparison.")],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", help="File to write: .json or .json.gz; by default FOLDER/timeline.json.gz."
        ),
    ] = None,
) -> None:
    """Write a recorded run as a trace for Perfetto.

    Open it in ui.perfetto.dev or chrome://tracing: a process per node, a thread per GPU.
    """
    from clustersim.export import write_timeline
    from clustersim.rundir import read_run

    from .output.runs import of_sound_records, run_folders
    from .output.terminal import say

    homes = run_folders(folder)
    if homes != [folder]:
        raise UserError(f"{folder}: holds {len(homes)} runs; name one of them, for example {homes[0]}")
    path = output or folder / "timeline.json.gz"
    run = read_run(folder)
    with of_sound_records(homes):
        count = write_timeline(run, path)
    say(f"{count:,} events written to {path}; open it in ui.perfetto.dev or chrome://tracing")


def plot(
    folder: Annotated[
        Path,
        typer.Argument(help="Folder of `run --out` or `compare --out`; for load-sweep, of a grid."),
    ],
    kind: Annotated[str, typer.Option(help="The figure: jct-cdf, utilisation, gantt or load-sweep.")],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="File to write: .pdf, .svg or .png.", show_default=False)
    ],
    metric: Annotated[str, typer.Option(help="The metric of a load sweep.")] = "jct_mean_s",
    x: Annotated[
        str | None, typer.Option(help="The horizontal axis of a load sweep; by default the load.")
    ] = None,
) -> None:
    """Draw recorded runs as a figure for a paper."""
    from clustersim.export import KINDS, check_ending, draw_sweep, figures, read_sweep, save
    from clustersim.rundir import read_run

    from .output.runs import of_sound_records, run_folders

    if kind not in (*KINDS, _SWEEP):
        raise UnknownName("kind of plot", kind, [*KINDS, _SWEEP])
    check_ending(output)
    with figures() as plt:
        if kind == _SWEEP:
            sweep = read_sweep(folder, metric, x)
            save(draw_sweep(plt, sweep), output)
            absent = f" ({sweep.absent} cells without a value left out)" if sweep.absent else ""
            print(f"{output}{absent}")
            return
        homes = run_folders(folder)
        runs = [read_run(home) for home in homes]
        with of_sound_records(homes):
            figure = KINDS[kind](plt, runs)
        save(figure, output)
    print(output)
