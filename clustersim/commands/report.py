"""`clustersim report`: the report of a run, or of a comparison, made again from its folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from itertime.errors import UserError

__all__ = ["report"]


def report(
    folder: Annotated[Path, typer.Argument(help="What `run --out` or `compare --out` wrote.")],
    baseline: Annotated[str | None, typer.Option(help="The policy that others are compared with.")] = None,
) -> None:
    """Write FOLDER/report.html from the records in FOLDER or in the folders inside it."""
    from clustersim.commands.output import run_folders
    from clustersim.report import render_report
    from clustersim.rundir import read_run
    from itertime.atomic import write_text

    runs = [read_run(home) for home in run_folders(folder)]
    names = [run.policy for run in runs]
    if baseline is not None and baseline not in names:
        raise UserError(f"--baseline {baseline}: is not among {', '.join(names)}")
    write_text(folder / "report.html", render_report(runs, baseline=baseline))
    print(folder / "report.html")
