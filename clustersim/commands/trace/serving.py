"""`clustersim trace services`: the instances of inference services as a trace."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clustersim.commands.output.terminal import say

from .options import Output, Seed
from .output import write

__all__ = ["services"]


def services(
    output: Output,
    series: Annotated[
        Path | None, typer.Option(help="Table of needs: service, time_s, gpus; else one service by the day.")
    ] = None,
    beside: Annotated[Path | None, typer.Option(help="Trace whose jobs the trace has as well.")] = None,
    gpus_per_instance: Annotated[int, typer.Option(min=1, help="GPUs of an instance.")] = 1,
    priority: Annotated[int, typer.Option(help="Priority of the instances; larger is served first.")] = 0,
    name: Annotated[str, typer.Option(help="Name of the service by the day.")] = "service",
    mean_gpus: Annotated[float, typer.Option(help="GPUs that it needs on average.")] = 8.0,
    swing: Annotated[float, typer.Option(help="How far the day moves its need, as a share of it.")] = 0.5,
    sigma: Annotated[float, typer.Option(help="Log-normal noise of its need.")] = 0.1,
    days: Annotated[float, typer.Option(help="How long it lasts.")] = 1.0,
    seed: Seed = 0,
) -> None:
    """Make instances of inference services, whose need for GPUs follows a time series.

    They need GPUs at set times, ahead of all other jobs. What they were made of is written beside the trace,
    to NAME.services.json.
    """
    from dataclasses import asdict

    from itertime.errors import UserError
    from traces import read_trace, submission_order
    from traces.synthetic import Diurnal, instances_of, read_needs

    diurnal = Diurnal(service=name, mean_gpus=mean_gpus, swing=swing, sigma=sigma, days=days)
    needs = diurnal.needs(seed) if series is None else read_needs(series)
    instances = instances_of(needs, gpus_per_instance, priority)
    if not instances:
        raise UserError("services: no GPU is ever needed; state a larger need")
    other_jobs = [] if beside is None else read_trace(beside)
    repeated_ids = {job.job_id for job in instances} & {job.job_id for job in other_jobs}
    if repeated_ids:
        raise UserError(f"{beside}: has a job {min(repeated_ids)}, as the services have; rename one of them")
    source = {"series": asdict(diurnal) | {"seed": seed}} if series is None else {"series": series.name}
    hours = sum((job.gpus or 0) * (job.duration_s or 0.0) for job in instances) / 3600
    report = {
        **source,
        "gpus_per_instance": gpus_per_instance,
        "instances": len(instances),
        "gpu_hours": hours,
    }
    write(submission_order([*instances, *other_jobs]), report, output, "services", series)
    say(f"{len(instances):,} instances that need {hours:,.1f} GPU-hours; {len(other_jobs):,} other jobs")
