"""`clustersim trace`: import job logs, generate synthetic traces, check traces."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from itertime.commandline import new_app, print_json

if TYPE_CHECKING:
    from traces import Job
    from traces.native import StoredJobs

__all__ = ["app"]

app = new_app("Import job logs, generate synthetic traces, check traces.")

Output = Annotated[Path, typer.Option("-o", "--output", help="Trace to write: .csv, .csv.gz or .parquet.")]
Rules = Annotated[
    str, typer.Option(help="Rules that assign models to jobs: a bundled name, a YAML file, or none.")
]
PlannerName = Annotated[str, typer.Option("--planner", help="Planner that turns run times into iterations.")]
SystemName = Annotated[str, typer.Option("--system", help="System on which the run times hold.")]
MEMORY_HEADROOM = 0.1  # as in itertime.costs, which takes long to import
Headroom = Annotated[
    float,
    typer.Option(
        "--memory-headroom", help="Share of a GPU's memory that the planner's plans leave free, below 1."
    ),
]
Seed = Annotated[int, typer.Option(min=0, help="Seed of all random draws.")]


@app.command("import")
def import_(
    log: Annotated[Path, typer.Argument(help="Job log, plain or gzip.")],
    output: Output,
    log_format: Annotated[
        str | None,
        typer.Option(
            "--format", help="Format: itp, elasticflow or slurm; by default guessed from the header."
        ),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(help="For other formats: submit_s=COLUMN,gpus=COLUMN,duration_s=COLUMN."),
    ] = None,
    rules: Rules = "llm-mix",
    planner: PlannerName = "data-parallel",
    system: SystemName = "dgx-a100-80gb",
    memory_headroom: Headroom = MEMORY_HEADROOM,
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
    from traces.logs import Selection, import_log

    jobs, report = import_log(
        log,
        log_format=log_format,
        columns=columns,
        rules=rules,
        planner=planner,
        system=system,
        memory_headroom=memory_headroom,
        seed=seed,
        selection=Selection(from_s, until_s, limit, time_scale),
    )
    beside = _write(jobs, report, output, "import", log)
    counts = report["counts"]
    left_out = sum(counts["left_out"].values())
    _say(f"{output}: {counts['jobs']:,} jobs of {counts['rows']:,} rows; {_asked(report['demand'])}")
    if counts["dropped"] or left_out:
        first = next((f", the first on line {d['line']}: {d['reason']}" for d in report["dropped"]), "")
        _say(f"dropped {counts['dropped']:,} rows{first}; {left_out:,} outside the selection", err=True)
    if parts := report["parts_of_gpus"]:
        _say(f"{parts:,} of the jobs held parts of GPUs, which count as whole GPUs", err=True)
    if rules != "none":
        made = "models, batches, GPU counts, and deadlines where the log has none, are those of the rules"
        _say(f"{made} {rules}, not the log's; --rules none keeps jobs as they were logged", err=True)
    _say(f"assumptions and dropped rows: {beside}", err=True)


@app.command("import-table")
def import_table(
    folder: Annotated[Path, typer.Argument(help="Folder of MODEL.csv files: global_batch_size,1,2,4,...")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Throughput table to write (CSV).")],
) -> None:
    """Turn ElasticFlow's throughput tables into one table.

    Its columns are model, global_batch, gpus, iterations_per_s.
    """
    from itertime.io import sha256
    from traces.logs import read_throughputs, write_throughputs

    rows, report = read_throughputs(folder)
    write_throughputs(rows, output)
    produced = {"output": {"file": output.name, "sha256": sha256(output), "rows": len(rows)}}
    beside = _write_report(report | produced, output, "import")
    models = len({row.model for row in rows})
    _say(f"{output}: {len(rows)} speeds of {models} models")
    without = report["counts"]["cells_without_speed"]
    _say(f"{without} cells state no speed; what was assumed: {beside}", err=True)


@app.command()
def generate(
    output: Output,
    jobs: Annotated[int, typer.Option(min=1, help="Number of jobs.")] = 1000,
    load: Annotated[float, typer.Option(help="GPU-seconds asked for, over those of the cluster.")] = 1.0,
    gpus: Annotated[int, typer.Option(min=1, help="GPUs of the cluster that the load refers to.")] = 1024,
    arrivals: Annotated[
        str, typer.Option(help="Arrival process: poisson, bursty, day-night or at-zero.")
    ] = "poisson",
    cv: Annotated[
        float | None,
        typer.Option(
            help="Coefficient of variation of the gaps between submissions, for bursty and day-night."
        ),
    ] = None,
    sizes: Annotated[str, typer.Option(help="GPUs and run times: itp, exponential, or a YAML file.")] = "itp",
    rules: Rules = "llm-mix",
    deadlines: Annotated[
        str,
        typer.Option(
            help="rules, none, or LOW:HIGH[:SHARE]: a share of jobs, U(LOW, HIGH) run times after submission."
        ),
    ] = "rules",
    planner: PlannerName = "data-parallel",
    system: SystemName = "dgx-a100-80gb",
    memory_headroom: Headroom = MEMORY_HEADROOM,
    seed: Seed = 0,
) -> None:
    """Generate a synthetic trace.

    Its recipe is written next to it, to NAME.generate.json.
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
    )
    made, report = generate_stored(recipe)
    beside = _write(made, report, output, "generate")
    _say(f"{output}: {len(made):,} jobs; {_asked(report['demand'])}")
    _say(f"recipe: {beside}", err=True)


@app.command()
def check(
    trace: Annotated[Path, typer.Argument(help="Trace: .csv, .csv.gz or .parquet.")],
    cluster: Annotated[
        str, typer.Option(help="Cluster that the load refers to: a shape, or a YAML file.")
    ] = "n128g8",
    table: Annotated[
        Path | None, typer.Option(help="Throughput table, whose models the trace may name.")
    ] = None,
    model_path: Annotated[
        list[str] | None,
        typer.Option(
            "--model-path", help="Folder of model files, which the trace names without ending; repeatable."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Validate a trace and summarise it.

    Every mistake is printed with its line, and makes the exit code 3.
    """
    from clustersim.cluster import load_cluster
    from clustersim.speed import read_throughput_table
    from traces.models import Models
    from traces.native import store_trace
    from traces.summary import summarise

    gpus = load_cluster(cluster).gpus
    models = Models(trace.parent, model_path or [])
    tabled = [model for model, _ in read_throughput_table(table)] if table else []
    summary = summarise(store_trace(trace, known_models=[*models.names(), *tabled], models=models), gpus)
    if as_json:
        print_json({"file": trace.name, **summary})
    else:
        _say(_as_text(trace, summary))


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


def _asked(demand: Mapping[str, Any]) -> str:
    if demand["mean_gpus"] is None:
        return f"{demand['gpu_seconds'] / 3600:,.2f} GPU-hours, all at once"
    days = demand["span_s"] / 86400
    return f"{demand['mean_gpus']:,.1f} GPUs asked for on average over {days:,.2f} days"


def _as_text(trace: Path, summary: Mapping[str, Any]) -> str:
    from itertime.io import shown

    def listed(counts: Mapping[str, int]) -> str:
        parts = [f"{shown(name)} ({n:,})" for name, n in list(counts.items())[:20]]
        return ", ".join(parts) + (f" and {len(counts) - 20} more" if len(counts) > 20 else "")

    asked, load, deadlines = summary["demand"], summary["load"], summary["deadlines"]
    on_average = f"{_asked(asked)}, by the {asked['jobs']:,} jobs that state GPUs and run time"
    if not asked["jobs"]:
        on_average = "GPUs asked for on average: not known, no job states GPUs and run time (duration_s)"
    without_load = "all at once" if asked["jobs"] else "not known"
    lines = [
        f"{trace}: {summary['jobs']:,} jobs, tenants: {summary['tenants']:,}",
        f"work stated in: {listed(summary['kinds'])}",
        on_average,
        f"load on {summary['cluster_gpus']:,} GPUs: {without_load if load is None else format(load, '.3f')}",
        f"models: {listed(summary['models'])}",
        f"GPUs: {listed(summary['gpus'])}",
        f"deadlines: {deadlines['jobs']:,}, {deadlines['below_run_time']:,} before submission + run time",
    ]
    if summary["larger_than_cluster"]:
        lines.append(f"larger than the cluster: {summary['larger_than_cluster']:,} jobs; a run rejects them")
    return "\n".join(lines)


def _say(text: str, err: bool = False) -> None:
    typer.echo(text, err=err)
