"""`clustersim trace check`: mistakes of a trace, and what it offers a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from clustersim.commands.output.terminal import say
from itertime.commandline import print_json

from .options import ModelPath, RunPlanner
from .output import offered

__all__ = ["check"]


def check(
    trace: Annotated[Path, typer.Argument(help="Trace: .csv, .csv.gz or .parquet.")],
    cluster: Annotated[
        str, typer.Option(help="Cluster that the load refers to: a shape, or a YAML file.")
    ] = "n128g8",
    system: Annotated[
        str, typer.Option(help="System of its nodes: a name of itertime, or a YAML file.")
    ] = "dgx-a100-80gb",
    planner: RunPlanner = "best",
    table: Annotated[
        Path | None, typer.Option(help="Throughput table, whose models the trace may name.")
    ] = None,
    model_path: ModelPath = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Validate a trace and summarise it, with the load that it offers the cluster.

    Every mistake is printed with its line, and makes the exit code 3.
    """
    from clustersim.cluster import load_cluster
    from clustersim.speed import Requests, read_throughput_table, speed_for
    from itertime.planning import planner_name
    from itertime.spec import Models
    from traces.native import store_trace
    from traces.summary import summarise

    nodes = load_cluster(cluster, system)
    models = Models(trace.parent, model_path or [])
    requests = Requests(speed_for(nodes, planner, table, models=models))
    tabled = [model for model, _ in read_throughput_table(table)] if table else []
    jobs = store_trace(trace, known_models=[*models.names(), *tabled], models=models)
    summary = {"planner": planner_name(planner), **summarise(jobs, nodes.gpus, requests)}
    summary["refused"] = {"jobs": requests.refused, "first": requests.reason or None}
    if as_json:
        print_json({"file": trace.name, **summary})
        return
    for line in _in_words(trace, summary):
        say(line)
    for caution in summary["cautions"]:
        say(f"note: {caution}", err=True)


def _in_words(trace: Path, summary: Mapping[str, Any]) -> list[str]:
    from itertime.io import shown

    def listed(counts: Mapping[str, int]) -> str:
        parts = [f"{shown(name)} ({n:,})" for name, n in list(counts.items())[:20]]
        return ", ".join(parts) + (f" and {len(counts) - 20} more" if len(counts) > 20 else "")

    total, deadlines, refused = summary["demand"], summary["deadlines"], summary["refused"]
    planner = summary["planner"] if "iterations" in summary["kinds"] else None
    gpus = summary["cluster_gpus"]
    lines = [
        f"{trace}: {summary['jobs']:,} jobs, tenants: {summary['tenants']:,}",
        f"work stated in: {listed(summary['kinds'])}",
        offered(total, summary["load"], gpus, planner)
        if total["jobs"]
        else "offered load: none, as no job can run",
        f"models: {listed(summary['models'])}",
        f"GPUs: {listed(summary['gpus'])}",
        f"deadlines: {deadlines['jobs']:,}, {deadlines['below_run_time']:,} before submission + run time",
    ]
    if stated_work := summary["stated_work"]:
        median, sigma = stated_work["median_factor"], stated_work["sigma"]
        factor = f"{median:.3g} times the truth at the median, sigma {sigma:.3g}"
        lines.append(f"work misstated: {stated_work['jobs']:,} jobs, {factor}")
    if refused["jobs"]:
        lines.append(
            f"jobs that cannot run on {gpus:,} GPUs, and do not count above: {refused['jobs']:,};"
            f" the first: {shown(refused['first'])}"
        )
    return lines
