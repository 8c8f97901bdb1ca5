"""`clustersim trace slice` and `scale`: traces made of a trace."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clustersim.commands.output.terminal import say

from .options import Output, Seed
from .output import offered, write

if TYPE_CHECKING:
    from traces.native import StoredJobs

__all__ = ["scale", "slice_"]

Trace = Annotated[Path, typer.Argument(help="Trace: .csv, .csv.gz or .parquet.")]


def slice_(
    trace: Trace,
    output: Output,
    from_s: Annotated[float, typer.Option("--from", help="Jobs from this time of the trace on, in s.")] = 0.0,
    until_s: Annotated[float, typer.Option("--to", help="Jobs before this time, in s.")] = float("inf"),
    first: Annotated[int | None, typer.Option(help="Of what is left the first so many jobs.")] = None,
    users: Annotated[str | None, typer.Option(help="Jobs of these users or tenants: NAME,...")] = None,
    gpus: Annotated[
        str | None, typer.Option(help="Jobs of so many GPUs: MIN..MAX, MIN.., ..MAX or N.")
    ] = None,
    sample: Annotated[float, typer.Option(help="A random share of all jobs of the trace.")] = 1.0,
    seed: Seed = 0,
) -> None:
    """Take a part of a trace. Its clock starts with the first job that is left.

    What was taken, and where the trace came from, is written beside it, to NAME.slice.json.
    """
    from traces.editing import TraceSelection, sliced

    min_gpus, max_gpus = _range(gpus)
    names = [name.strip() for name in users.split(",")] if users else []
    part = TraceSelection(from_s, until_s, names, min_gpus, max_gpus, sample, seed, first)
    jobs, source_report = _read(trace)
    selected_jobs, zero_s = sliced(jobs, part)
    selection = asdict(part) | {"until_s": None if until_s == float("inf") else until_s}
    _finish(selected_jobs, trace, output, "slice", jobs, {"part": selection}, source_report, zero_s)


def scale(
    trace: Trace,
    output: Output,
    load: Annotated[
        float | None, typer.Option(help="Stretch the gaps until the trace has this load; needs --on.")
    ] = None,
    on: Annotated[
        int | None, typer.Option(min=1, help="GPUs of the cluster that the load refers to.")
    ] = None,
    time: Annotated[float, typer.Option(help="Factor of the gaps between submissions.")] = 1.0,
    gpus: Annotated[float, typer.Option(help="Factor of the GPUs that jobs ask for.")] = 1.0,
    jobs: Annotated[int | None, typer.Option(help="Number of jobs, at the rate of the trace.")] = None,
    seed: Seed = 0,
) -> None:
    """Change the load of a trace, its gaps, its GPUs or its number of jobs. Run times stay.

    What was changed, and where the trace came from, is written beside it, to NAME.scale.json.
    """
    from traces.editing import Scaling, scaled

    scaling = Scaling(jobs, gpus, time, load, on, seed)
    stored, source_report = _read(trace)
    scaled_jobs, factor = scaled(stored, scaling)
    changed = {"scaling": asdict(scaling), "gap_factor": factor}
    _finish(scaled_jobs, trace, output, "scale", stored, changed, source_report, 0.0, factor)


def _range(text: str | None) -> tuple[int, int]:
    from itertime.errors import UserError
    from itertime.io import shown
    from traces.job import MAX_GPUS

    low, dots, high = (text or "..").partition("..")
    try:
        return int(low or 1), int((high if dots else low) or MAX_GPUS)
    except ValueError:
        raise UserError(f"--gpus {shown(text or '')}: must be MIN..MAX, MIN.., ..MAX or a number") from None


def _read(trace: Path) -> tuple[StoredJobs, dict[str, Any] | None]:
    """The jobs of a trace, and its report without the list of dropped rows."""
    from itertime.spec import Models
    from traces.native import store_trace
    from traces.sidecars import report_of

    report = report_of(trace)
    source_report = (
        None
        if report is None
        else {"kind": report[0], **{k: v for k, v in report[1].items() if k != "dropped"}}
    )
    return store_trace(trace, models=Models(trace.parent)), source_report


def _finish(
    trace_jobs: list[Any],
    trace: Path,
    output: Path,
    kind: str,
    jobs: StoredJobs,
    changed: dict[str, Any],
    source_report: dict[str, Any] | None,
    shift_s: float,
    factor: float = 1.0,
) -> None:
    from traces.sidecars import since_1970
    from traces.summary import cautions, demand

    total = demand(trace_jobs)
    zero_s = since_1970(source_report) if source_report else None
    report = {
        "input": {"file": trace.name, "sha256": jobs.sha256, "jobs": len(jobs), "report": source_report},
        **changed,
        "clock": {"shift_s": shift_s + (zero_s or 0.0), "time_scale": factor},
        "demand": total,
    }
    report_path = write(trace_jobs, report, output, kind, trace)
    say(f"{output}: {len(trace_jobs):,} jobs of {len(jobs):,}")
    if total["mean_gpus"] is not None:
        gpus = max(1, round(total["mean_gpus"]))
        say(offered(total, total["mean_gpus"] / gpus, gpus, None))
    for caution in cautions(total):
        say(f"note: {caution}", err=True)
    say(f"where the trace came from: {report_path}", err=True)
