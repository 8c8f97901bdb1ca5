"""`clustersim timeline`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from itertime.errors import UserError

__all__ = ["timeline"]


def timeline(
    folder: Annotated[Path, typer.Argument(help="What `run --out` wrote, or one folder of a comparison.")],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="FILE.json or FILE.json.gz; by default FOLDER/timeline.json.gz."),
    ] = None,
) -> None:
    """Write a run as a trace for ui.perfetto.dev or chrome://tracing: node = process, GPU = thread."""
    from clustersim.commands.output import run_folders
    from clustersim.rundir import read_run
    from clustersim.timeline import write_timeline

    homes = run_folders(folder)
    if homes != [folder]:
        raise UserError(f"{folder}: holds {len(homes)} runs; name one of them, such as {homes[0]}")
    path = output or folder / "timeline.json.gz"
    count = write_timeline(read_run(folder), path)
    print(f"{count:,} events written to {path}; open it in ui.perfetto.dev or chrome://tracing")
