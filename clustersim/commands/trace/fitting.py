"""`clustersim trace fit`: a preset of generated traces from a log."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clustersim.commands.output.terminal import say

from .describing import TraceOrLog, distance_table
from .options import Columns, LogFormatName, Seed, TimeUnit, TimeZone
from .output import span, write_report

__all__ = ["fit"]


def fit(
    log: TraceOrLog,
    out: Annotated[Path, typer.Option("-o", "--out", help="Preset to write, a YAML file.")],
    first: Annotated[
        float, typer.Option(help="Share of the jobs on which a fit is judged by the rest, 0.1 to 0.9.")
    ] = 0.6,
    seed: Seed = 0,
    log_format: LogFormatName = None,
    columns: Columns = None,
    time_unit: TimeUnit = None,
    time_zone: TimeZone = None,
) -> None:
    """Fit a preset, which `trace generate --preset` takes, to a trace or a log.

    A fit to the first part is judged by the rest; the preset is fitted to the whole. The distances are
    written next to it, to NAME.fit.json.
    """
    from tempfile import TemporaryDirectory

    from clustersim.gctuning import collect_less_often
    from itertime.errors import UserError
    from itertime.io import sha256
    from traces.fitting import fit_preset, held_out, write_preset
    from traces.logs import ReadOptions
    from traces.statistics import read_columns

    if out.suffix not in (".yaml", ".yml"):
        raise UserError(f"{out}: a preset is a YAML file; let its name end in .yaml")
    if not 0.1 <= first <= 0.9:
        raise UserError(f"--first {first:g}: must be from 0.1 to 0.9")
    options = ReadOptions(log_format, columns, time_unit, time_zone=time_zone)
    with collect_less_often(), TemporaryDirectory() as folder:
        log_columns = read_columns(log, None if options == ReadOptions() else options)
        over = f"{len(log_columns):,} jobs submitted over {span(log_columns.span_s)}"
        preset = fit_preset(log_columns, f"Fitted by clustersim trace fit to {log.name}: {over}.")
        judged = held_out(log_columns, Path(folder), first, seed)
    write_preset(preset, out)
    report_path = write_report({"input": {"file": log.name, "sha256": sha256(log)}, **judged}, out, "fit")
    say(f"{out}: fitted to {over}, {len(preset.sizes)} GPU counts")
    print()
    parts = judged["jobs"]
    say(f"fitted to the first {parts['first']:,} jobs; A: the other {parts['rest']:,}, B: as many generated")
    print(distance_table(judged["distances"]))
    print()
    say("first: from the first jobs themselves to A; the rest as in `trace compare`")
    say(f"distances: {report_path}", err=True)
