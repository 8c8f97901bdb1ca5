"""`clustersim plot`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from itertime.errors import UnknownName

__all__ = ["plot"]

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
    from clustersim.commands.output import run_folders
    from clustersim.plots import KINDS, check_ending, figures, save
    from clustersim.plots_sweep import draw_sweep, read_sweep
    from clustersim.rundir import read_run

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
