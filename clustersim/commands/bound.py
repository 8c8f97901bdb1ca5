"""`clustersim bound`: what no policy can do better with the jobs of a trace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from .help.options import (
    ClusterShape,
    Json,
    ModelPath,
    NoOverheads,
    OverheadsPreset,
    PlannerName,
    Settings,
    SystemName,
    Table,
    TraceFile,
    config_of,
)

if TYPE_CHECKING:
    from clustersim.bounds import Bound

__all__ = ["bound"]


def bound(
    context: typer.Context,
    trace: TraceFile,
    cluster: ClusterShape = "n128g8",
    system: SystemName = "dgx-a100-80gb",
    planner: PlannerName = "best",
    no_overheads: NoOverheads = False,
    overheads: OverheadsPreset = None,
    settings: Settings = None,
    table: Table = None,
    model_path: ModelPath = None,
    method: Annotated[
        str,
        typer.Option(
            help="alone, area, quick or prices, ever slower and nearer; auto takes seconds, best minutes."
        ),
    ] = "best",
    json: Json = False,
) -> None:
    """Compute what no policy can do better with the jobs of a trace.

    Take any policy that finishes all jobs that can run, clairvoyant or not. Its mean and 99th percentile of
    job completion time and its makespan are no shorter than these, and it meets no more deadlines.
    """
    from clustersim.bounds import METHODS, bound_of, instance_of
    from clustersim.runs import Trace, bound_stated, setup_of
    from itertime.commandline import print_json
    from itertime.errors import UnknownName, UserError

    from .output.terminal import progress_of

    if method not in METHODS:  # before the trace is read, which can take long
        raise UnknownName("method", method, METHODS)
    for text in settings or []:
        if text.partition("=")[0].strip() == "bound":
            raise UserError(f"--set {text}: is a setting of runs; give --method here")
    config = config_of("fifo", context.params)
    jobs = Trace.read(trace, config.table, config.model_path)
    setup = setup_of(config, models=jobs.models)
    instance = instance_of(jobs.jobs, setup.cluster, setup.speed, setup.overheads)
    with progress_of("computing a bound", 1) as advance:
        best = bound_of(instance, method)
        advance(1)
    if json:
        print_json(bound_stated(best))
        return
    _print(best, len(instance.jobs), len(jobs.jobs), instance.deadline_jobs)


def _print(best: Bound, able: int, jobs: int, deadlines: int) -> None:
    from clustersim.report.numbers import duration

    from .output.terminal import print_table

    times = {"mean JCT": best.jct_mean_s, "p99 of JCT": best.jct_p99_s, "makespan": best.makespan_s}
    rows = [[name, "at least", duration(value)] for name, value in times.items() if value is not None]
    if best.deadline_met_ratio is not None:
        share = f"{100 * best.deadline_met_ratio:.1f} % of {deadlines:,}"
        rows.append(["deadlines met", "at most", share])
    if rows:
        print_table(["result", "no policy", "gets beyond"], rows)
    else:
        print("Nothing is known: no job can run here.")
    are = "is" if jobs - able == 1 else "are"
    left_out = f"; {jobs - able:,} cannot run here and {are} left out" if able < jobs else ""
    print(f"Method {best.method}, {best.seconds:.3g} s, over {able:,} of {jobs:,} jobs{left_out}.")
