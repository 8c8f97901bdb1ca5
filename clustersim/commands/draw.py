"""`clustersim report`, `timeline` and `plot`: pages and pictures of recorded runs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from itertime.errors import UnknownName, UserError

if TYPE_CHECKING:
    from clustersim.grid import FigureSpec
    from clustersim.records import Run

__all__ = ["plot", "report", "timeline"]


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
    folder: Annotated[Path, typer.Argument(help="Folder of `run`, `compare`, `what-if` or `grid --out`.")],
    kind: Annotated[
        str | None,
        typer.Option(
            help="bars, lines or heat-map of a metric; jct-cdf, utilisation or gantt of runs. By default, "
            "what suits the folder."
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", help="File to write: .pdf, .svg or .png; by default FOLDER/METRIC.pdf.",
            show_default=False,
        ),
    ] = None,
    metric: Annotated[str, typer.Option(help="The metric of bars, lines and heat maps.")] = "jct_mean_s",
    x: Annotated[
        str | None, typer.Option(help="The horizontal axis, for example policy; by default the load.")
    ] = None,
    y: Annotated[str | None, typer.Option(help="The vertical axis of a heat map.")] = None,
    where: Annotated[
        list[str] | None, typer.Option(help="AXIS=VALUE: only the cells with this value; may be repeated.")
    ] = None,
    interval: Annotated[bool, typer.Option(help="Draw 95 % intervals over seeds.")] = True,
    width: Annotated[
        str | None, typer.Option(help="column (3.4 inches), text (7), or a number of inches.")
    ] = None,
) -> None:  # fmt: skip
    """Draw recorded runs, or the means of a grid, as a figure for a paper."""
    from clustersim.export import KINDS, check_ending
    from clustersim.grid import GRID_KINDS, FigureSpec, is_grid

    kind = {"load-sweep": "lines", "heatmap": "heat-map"}.get(kind or "", kind)
    if kind is not None and kind not in (*GRID_KINDS, *KINDS):
        raise UnknownName("kind of plot", kind, [*GRID_KINDS, *KINDS])
    if kind in KINDS:
        metric, kind = kind, None
    path = output or folder / f"{metric}.pdf"
    check_ending(path)
    spec = FigureSpec(metric, x, y, kind, _values_of_axes(where or ()), interval, width)
    absent = (_plot_grid if is_grid(folder) else _plot_runs)(folder, spec, path)
    print(f"{path}{f' ({absent} cells without a value left out)' if absent else ''}")


def _plot_grid(folder: Path, spec: FigureSpec, path: Path) -> int:
    """Write a figure of a grid; returns how many cells of it have no value."""
    from clustersim.grid import read_results

    results = read_results(folder)
    results.figure(spec).save(path)
    return results.absent_cells(spec)


def _plot_runs(folder: Path, spec: FigureSpec, path: Path) -> int:
    """Write a figure of recorded runs; returns 0. UserError for what only a grid has."""
    from clustersim.export import KINDS, picture
    from clustersim.grid import plot_runs
    from clustersim.rundir import read_run

    from .output.runs import of_sound_records, run_folders

    homes = run_folders(folder)
    runs, _ = _as_compared([read_run(home) for home in homes])
    if spec.x not in (None, "policy") or spec.y or spec.where or spec.kind not in (None, "bars"):
        raise UserError(f"{folder}: holds runs, which have no axis but the policy; a grid has axes")
    with of_sound_records(homes):
        drawn_figure = (
            picture(runs, spec.metric, spec.width)
            if spec.metric in KINDS
            else plot_runs(runs, spec.metric, interval=spec.interval, width=spec.width)
        )
    drawn_figure.save(path)
    return 0


def _values_of_axes(where: Sequence[str]) -> dict[str, str]:
    """Values of axes as --where states them. UserError for one without a value."""
    values: dict[str, str] = {}
    for text in where:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise UserError(f"--where {text}: must be AXIS=VALUE, as in --where trace.load=1.0")
        if name in values:
            raise UserError(f"--where {text}: {name} has the value {values[name]} already; state one value")
        values[name] = value
    return values
