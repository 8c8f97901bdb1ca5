"""`clustersim trace`: import job logs, generate synthetic traces, check traces."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from itertime.commandline import new_app, print_json
from itertime.commands.options import MEMORY_HEADROOM

if TYPE_CHECKING:
    from traces import Job
    from traces.native import StoredJobs

__all__ = ["app"]

_MOST_REASONS = 3  # for dropped rows, that the terminal names

app = new_app("Import job logs, generate synthetic traces, check traces.")

Output = Annotated[Path, typer.Option("-o", "--output", help="Trace to write: .csv, .csv.gz or .parquet.")]
Rules = Annotated[
    str, typer.Option(help="Rules that assign models to jobs: a bundled name, a YAML file, or none.")
]
PlannerName = Annotated[str, typer.Option("--planner", help="Planner that turns run times into iterations.")]
SystemName = Annotated[str, typer.Option("--system", help="System on which the run times hold.")]
Headroom = Annotated[
    float,
    typer.Option(
        "--memory-headroom", help="Share of a GPU's memory that the planner's plans leave free, below 1."
    ),
]
ModelPath = Annotated[
    list[str] | None,
    typer.Option(
        "--model-path",
        help="Folder of model files, which the trace or the rules name without ending; repeatable.",
    ),
]
RunPlanner = Annotated[
    str, typer.Option("--planner", help="Planner under which jobs have their run times, and the load holds.")
]
Seed = Annotated[int, typer.Option(min=0, help="Seed of all random draws.")]
Arrivals = Annotated[
    str, typer.Option(help="Arrival process: poisson, bursty, batches, day-night, regular or at-zero.")
]
Cv = Annotated[
    float | None,
    typer.Option(
        help="Coefficient of variation of the gaps between submissions: bursty, batches, day-night."
    ),
]
Load = Annotated[
    float, typer.Option(help="GPU-seconds requested, over those of the cluster while jobs are submitted.")
]
LoadOf = Annotated[
    str, typer.Option(help="trace: it offers exactly the load; process: the load is the expected one.")
]
LogFormatName = Annotated[
    str | None,
    typer.Option(
        "--format",
        help="Format: itp, elasticflow, philly, philly-table, helios, fleetsim, acme, kalos-converted, pai, "
        "openb, dlrm, chronus, tiresias, muri, muri-results, morphling, pollux, gavel, shockwave, gaia, "
        "slurm, slurm-json, squeue, scontrol, kueue, kubernetes-pods, volcano or swf; by default recognised "
        "by the log's beginning.",
    ),
]
Columns = Annotated[
    str | None,
    typer.Option(
        help="For other formats: submit_s=COLUMN,gpus=COLUMN,duration_s=COLUMN, by name or by number."
    ),
]
TimeUnit = Annotated[
    str | None,
    typer.Option(help="Unit of the log's times: s, ms, us, min or h; or of some: submit_s=us,duration_s=s."),
]
SpeedSource = Annotated[
    str | None,
    typer.Option(
        "--speeds",
        help="Speeds for logs without run times: a folder of throughput tables, or a log of jobs with "
        "model, batch, iterations and run time.",
    ),
]
WorkSource = Annotated[
    str | None,
    typer.Option(
        "--work-of",
        help="Log whose jobs state the iterations of those without, by model and batch (Sia, Pollux).",
    ),
]


@app.command("import")
def import_(
    log: Annotated[Path, typer.Argument(help="Job log, plain or gzip; a file, a pipe, or a folder.")],
    output: Output,
    log_format: LogFormatName = None,
    columns: Columns = None,
    time_unit: TimeUnit = None,
    time_zone: Annotated[
        str | None, typer.Option(help="Zone of dates without an offset, such as Asia/Shanghai; else UTC.")
    ] = None,
    tenant: Annotated[str | None, typer.Option(help="Column of the log that names the tenant.")] = None,
    speeds: SpeedSource = None,
    work_of: WorkSource = None,
    gpu_fractions: Annotated[bool, typer.Option("--gpu-fractions", help="Keep parts of a GPU.")] = False,
    rules: Rules = "none",
    planner: PlannerName = "3d",
    system: SystemName = "dgx-a100-80gb",
    memory_headroom: Headroom = MEMORY_HEADROOM,
    model_path: ModelPath = None,
    seed: Seed = 0,
    limit: Annotated[int | None, typer.Option(help="Keep at most this number of jobs.")] = None,
    from_s: Annotated[
        float, typer.Option(help="Skip jobs submitted before this time, in seconds of the log.")
    ] = 0.0,
    until_s: Annotated[float, typer.Option(help="Skip jobs submitted at this time or later.")] = float("inf"),
    time_scale: Annotated[float, typer.Option(help="Factor of the gaps between submissions.")] = 1.0,
) -> None:
    """Turn a job log into a trace.

    Assumptions and dropped rows are written next to the trace, to NAME.import.json.
    """
    from clustersim.gctuning import collect_less_often
    from traces.logs import ReadOptions, Selection, import_log

    with collect_less_often():
        jobs, report = import_log(
            log,
            ReadOptions(log_format, columns, time_unit, tenant, time_zone, speeds, work_of, gpu_fractions),
            rules=rules,
            planner=planner,
            system=system,
            memory_headroom=memory_headroom,
            seed=seed,
            selection=Selection(from_s, until_s, limit, time_scale),
            model_path=model_path or (),
        )
        beside = _write(jobs, report, output, "import", log)
    _say_imported(report, output)
    if rules != "none":
        made = "models, batches, GPU counts, and deadlines where the log has none, are those of the rules"
        _say(f"{made} {rules}, not the log's; --rules none keeps jobs as they were logged", err=True)
    _say(f"assumptions and dropped rows: {beside}", err=True)


@app.command("import-table")
def import_table(
    source: Annotated[
        Path,
        typer.Argument(
            help="Folder of MODEL.csv files (global_batch_size,1,2,4,...), or a log whose jobs state model, "
            "batch, iterations and run time."
        ),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="Throughput table to write (CSV).")],
) -> None:
    """Turn ElasticFlow's throughput tables, or the speeds of a log's jobs, into one table.

    Its columns are model, global_batch, gpus, iterations_per_s.
    """
    from itertime.io import sha256
    from traces.logs import read_speeds, write_throughputs

    rows, report = read_speeds(source)
    write_throughputs(rows, output)
    produced = {"output": {"file": output.name, "sha256": sha256(output), "rows": len(rows)}}
    beside = _write_report(report | produced, output, "import")
    models = len({row.model for row in rows})
    _say(f"{output}: {len(rows)} speeds of {models} models")
    kind = "cells" if source.is_dir() else "jobs"
    without = report["counts"][f"{kind}_without_speed"]
    _say(f"{without} {kind} state no speed; what was assumed: {beside}", err=True)


@app.command()
def generate(
    output: Output,
    jobs: Annotated[int, typer.Option(min=1, help="Number of jobs.")] = 1000,
    load: Load = 1.0,
    gpus: Annotated[int, typer.Option(min=1, help="GPUs of the cluster that the load refers to.")] = 1024,
    arrivals: Arrivals = "poisson",
    cv: Cv = None,
    sizes: Annotated[
        str, typer.Option(help="GPUs and run times: itp, itp-8h, kalos, exponential, or a YAML file.")
    ] = "itp",
    rules: Rules = "llm-mix",
    deadlines: Annotated[
        str,
        typer.Option(
            help="rules, none, or LOW:HIGH[:SHARE]: a share of jobs, U(LOW, HIGH) run times after submission."
        ),
    ] = "rules",
    planner: RunPlanner = "3d",
    system: SystemName = "dgx-a100-80gb",
    memory_headroom: Headroom = MEMORY_HEADROOM,
    seed: Seed = 0,
    load_of: LoadOf = "trace",
    precisions: Annotated[
        str,
        typer.Option(help="NAME or NAME:WEIGHT,...: precisions of the jobs with a model, drawn by weight."),
    ] = "bf16",
    stated_sigma: Annotated[
        float, typer.Option(help="Users misstate iterations by a log-normal factor of this sigma, median 1.")
    ] = 0.0,
) -> None:
    """Generate a synthetic trace.

    Its recipe, and the load that it offers, are written next to it, to NAME.generate.json.
    """
    from traces.synthetic import Recipe, generate_stored

    recipe = Recipe(
        jobs=jobs,
        load=load,
        gpus=gpus,
        arrivals=arrivals,
        cv=cv,
        sizes=sizes,
        rules=rules,
        deadlines=deadlines,
        planner=planner,
        system=system,
        memory_headroom=memory_headroom,
        seed=seed,
        load_of=load_of,
        precisions=precisions,
        stated_sigma=stated_sigma,
    )
    made, report = generate_stored(recipe)
    beside = _write(made, report, output, "generate")
    by = None if rules == "none" else planner
    _say(f"{output}: {len(made):,} jobs; {_offered(report['demand'], report['load'], gpus, by)}")
    for caution in report["cautions"]:
        _say(f"note: {caution}", err=True)
    _say(f"recipe: {beside}", err=True)


@app.command()
def check(
    trace: Annotated[Path, typer.Argument(help="Trace: .csv, .csv.gz or .parquet.")],
    cluster: Annotated[
        str, typer.Option(help="Cluster that the load refers to: a shape, or a YAML file.")
    ] = "n128g8",
    system: Annotated[
        str, typer.Option(help="System of its nodes: a name of itertime, or a YAML file.")
    ] = "dgx-a100-80gb",
    planner: RunPlanner = "3d",
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
    from itertime.spec import Models
    from traces.native import store_trace
    from traces.summary import summarise

    nodes = load_cluster(cluster, system)
    models = Models(trace.parent, model_path or [])
    requests = Requests(speed_for(nodes, planner, table, models=models))
    tabled = [model for model, _ in read_throughput_table(table)] if table else []
    jobs = store_trace(trace, known_models=[*models.names(), *tabled], models=models)
    summary = {"planner": planner, **summarise(jobs, nodes.gpus, requests)}
    summary["refused"] = {"jobs": requests.refused, "first": requests.reason or None}
    if as_json:
        print_json({"file": trace.name, **summary})
        return
    _say(_as_text(trace, summary))
    for caution in summary["cautions"]:
        _say(f"note: {caution}", err=True)


def _write(
    jobs: list[Job] | StoredJobs, report: dict[str, Any], output: Path, kind: str, source: Path | None = None
) -> Path:
    """Write the trace, then its report with the hash of the trace. Returns the path of the report."""
    from itertime.errors import UserError
    from itertime.io import sha256
    from traces import write_trace

    if source is not None and output.exists() and output.samefile(source):
        raise UserError(f"{output}: is the log itself; write the trace to another file")
    write_trace(jobs, output)
    produced = {"output": {"file": output.name, "sha256": sha256(output), "jobs": len(jobs)}}
    return _write_report(report | produced, output, kind)


def _write_report(report: Mapping[str, Any], output: Path, kind: str) -> Path:
    from itertime.io import write_text

    name = output.name
    for ending in (".gz", ".csv", ".parquet"):
        name = name.removesuffix(ending)
    path = output.with_name(f"{name}.{kind}.json")
    write_text(path, json.dumps(report, indent=2, allow_nan=False) + "\n")
    return path


def _offered(asked: Mapping[str, Any], load: float | None, gpus: int, planner: str | None) -> str:
    """The offered load in words; `planner` is None where no run time depends on one."""
    under = f" under planner {planner}" if planner else ""
    gpu_hours = asked["gpu_seconds"] / 3600
    work = f"{gpu_hours:,.0f}" if gpu_hours >= 100 else f"{gpu_hours:.3g}"
    if load is None:
        return f"{work} GPU-hours requested{under}, all at one time"
    span = _span(asked["span_s"])
    return f"offered load {load:.3f} on {gpus:,} GPUs{under}: {work} GPU-hours requested within {span}"


def _span(seconds: float) -> str:
    if seconds >= 172800:
        return f"{seconds / 86400:,.2f} days"
    return f"{seconds / 3600:,.3g} hours" if seconds >= 7200 else f"{seconds:,.3g} s"


def _say_imported(report: Mapping[str, Any], output: Path) -> None:
    """State what a log gave: jobs, span, GPU-hours and load; then units, warnings and what is missing."""
    from itertime.io import shown
    from traces.summary import cautions

    counts, demand = report["counts"], report["demand"]
    left_out = sum(counts["left_out"].values())
    _say(f"{output}: {counts['jobs']:,} jobs of {counts['rows']:,} rows ({report['format']})")
    asked = f"{demand['gpu_seconds'] / 3600:,.2f} GPU-hours"
    if not demand["jobs"]:
        _say(f"no job states a run time, so there are no GPU-hours; submitted over {_span(demand['span_s'])}")
    elif demand["mean_gpus"] is None:
        _say(f"{asked}, all submitted at once")
    else:
        gpus = max(1, round(demand["mean_gpus"]))
        span = f"submitted over {_span(demand['span_s'])}"
        _say(f"{asked} {span}: {demand['mean_gpus']:,.1f} GPUs on average, so {gpus:,} GPUs have load 1")
        for caution in cautions(demand):
            _say(f"note: {caution}", err=True)
    _say(f"times: {'; '.join(report['times'])}", err=True)
    for warning in report["warnings"]:
        _say(f"warning: {warning}", err=True)
    if counts["dropped"] or left_out:
        reasons = list(report["dropped_by_reason"].items())
        named = [f"{n:,} x {shown(reason)}" for reason, n in reasons[:_MOST_REASONS]]
        named += [f"{len(reasons) - _MOST_REASONS} more reasons"] if len(reasons) > _MOST_REASONS else []
        first = next((f"; first on line {d['line']}: {d['reason']}" for d in report["dropped"]), "")
        listed = f" ({'; '.join(named)}{first})" if named else ""
        _say(f"dropped {counts['dropped']:,} rows{listed}; {left_out:,} outside the selection", err=True)
    if parts := report["parts_of_gpus"]:
        _say(f"{parts:,} of the jobs held parts of GPUs, which count as whole GPUs", err=True)


def _as_text(trace: Path, summary: Mapping[str, Any]) -> str:
    from itertime.io import shown

    def listed(counts: Mapping[str, int]) -> str:
        parts = [f"{shown(name)} ({n:,})" for name, n in list(counts.items())[:20]]
        return ", ".join(parts) + (f" and {len(counts) - 20} more" if len(counts) > 20 else "")

    asked, deadlines, refused = summary["demand"], summary["deadlines"], summary["refused"]
    planner = summary["planner"] if "iterations" in summary["kinds"] else None
    gpus = summary["cluster_gpus"]
    lines = [
        f"{trace}: {summary['jobs']:,} jobs, tenants: {summary['tenants']:,}",
        f"work stated in: {listed(summary['kinds'])}",
        _offered(asked, summary["load"], gpus, planner)
        if asked["jobs"]
        else "offered load: none, as no job can run",
        f"models: {listed(summary['models'])}",
        f"GPUs: {listed(summary['gpus'])}",
        f"deadlines: {deadlines['jobs']:,}, {deadlines['below_run_time']:,} before submission + run time",
    ]
    if stated := summary["stated_work"]:
        factor = f"{stated['median_factor']:.3g} times the truth at the median, sigma {stated['sigma']:.3g}"
        lines.append(f"work misstated: {stated['jobs']:,} jobs, {factor}")
    if refused["jobs"]:
        lines.append(
            f"jobs that cannot run on {gpus:,} GPUs, and do not count above: {refused['jobs']:,};"
            f" the first: {shown(refused['first'])}"
        )
    return "\n".join(lines)


def _say(text: str, err: bool = False) -> None:
    typer.echo(text, err=err)
