"""`clustersim plot`.

`clustersim report`: the report of a run, or of a comparison, made again from its folder.

`clustersim timeline`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from itertime.errors import UnknownName, UserError

__all__ = ["plot", "report", "timeline"]

SWEEP = "load-sweep"


def plot(
    folder: Annotated[
        Path,
        typer.Argument(help="What `run --out` or `compare --out` wrote; for load-sweep, a grid's folder."),
    ],
    kind: Annotated[str, typer.Option(help="jct-cdf, utilisation, gantt or load-sweep.")],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="FILE.pdf, .svg or .png.", show_default=False)
    ],
    metric: Annotated[str, typer.Option(help="What a load sweep shows.")] = "jct_mean_s",
    x: Annotated[str | None, typer.Option(help="The axis of a load sweep; by default the load.")] = None,
) -> None:
    """Draw a figure for a paper from recorded runs, with matplotlib (extra `plots`)."""
    from clustersim.export import KINDS, check_ending, draw_sweep, figures, read_sweep, save
    from clustersim.rundir import read_run

    from .run_output import run_folders

    if kind not in (*KINDS, SWEEP):
        raise UnknownName("kind of plot", kind, [*KINDS, SWEEP])
    check_ending(output)
    with figures() as plt:
        if kind == SWEEP:
            sweep = read_sweep(folder, metric, x)
            save(draw_sweep(plt, sweep), output)
            absent = f" ({sweep.absent} cells without a value left out)" if sweep.absent else ""
            print(f"{output}{absent}")
            return
        save(KINDS[kind](plt, [read_run(home) for home in run_folders(folder)]), output)
    print(output)


def report(
    folder: Annotated[Path, typer.Argument(help="What `run --out` or `compare --out` wrote.")],
    baseline: Annotated[str | None, typer.Option(help="The policy that others are compared with.")] = None,
) -> None:
    """Write FOLDER/report.html from the records in FOLDER or in the folders inside it."""
    from clustersim.report import render_report
    from clustersim.rundir import read_run
    from itertime.io import write_text

    from .run_output import run_folders

    runs = [read_run(home) for home in run_folders(folder)]
    names = [run.policy for run in runs]
    if baseline is not None and baseline not in names:
        raise UserError(f"--baseline {baseline}: is not among {', '.join(names)}")
    write_text(folder / "report.html", render_report(runs, baseline=baseline))
    print(folder / "report.html")


def timeline(
    folder: Annotated[Path, typer.Argument(help="What `run --out` wrote, or one folder of a comparison.")],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="FILE.json or FILE.json.gz; by default FOLDER/timeline.json.gz."),
    ] = None,
) -> None:
    """Write a run as a trace for ui.perfetto.dev or chrome://tracing: node = process, GPU = thread."""
    from clustersim.export import write_timeline
    from clustersim.rundir import read_run

    from .run_output import run_folders

    homes = run_folders(folder)
    if homes != [folder]:
        raise UserError(f"{folder}: holds {len(homes)} runs; name one of them, such as {homes[0]}")
    path = output or folder / "timeline.json.gz"
    count = write_timeline(read_run(folder), path)
    print(f"{count:,} events written to {path}; open it in ui.perfetto.dev or chrome://tracing")
