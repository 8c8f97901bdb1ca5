"""Options that several commands of `clustersim trace` have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = [
    "Arrivals",
    "ClusterOfLoad",
    "Columns",
    "Cv",
    "DeadlinesToDraw",
    "GpuResources",
    "GpusOfLoad",
    "Headroom",
    "Load",
    "LoadOf",
    "LogCluster",
    "LogFormatName",
    "ModelPath",
    "Output",
    "PlannerName",
    "Precisions",
    "PresetName",
    "Rules",
    "RulesToDraw",
    "RunPlanner",
    "Seed",
    "SizesName",
    "SpeedSource",
    "StatedSigma",
    "SystemName",
    "TimeUnit",
    "TimeZone",
    "WorkSource",
]

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
    str | None,
    typer.Option(help="Arrival process: poisson (default), bursty, batches, day-night, regular or at-zero."),
]
Cv = Annotated[
    float | None,
    typer.Option(
        help="Coefficient of variation of the gaps between submissions: bursty, batches, day-night."
    ),
]
Load = Annotated[
    float | None,
    typer.Option(help="GPU-seconds requested, over those of the cluster while jobs are submitted; else 1."),
]
GpusOfLoad = Annotated[
    int | None, typer.Option(min=1, help="GPUs of the cluster that the load refers to; else 1,024.")
]
ClusterOfLoad = Annotated[
    str | None,
    typer.Option(
        help="Cluster of the runs, as for `run`: the load refers to its GPUs, run times to the fastest."
    ),
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
TimeZone = Annotated[
    str | None,
    typer.Option("--time-zone", help="Zone of dates without an offset, such as Asia/Shanghai; else UTC."),
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
PresetName = Annotated[
    str | None,
    typer.Option(
        "--preset",
        help="Sizes, run times, arrivals and tenants as in a log: itp, acme-kalos, acme-seren, philly, "
        "helios, or a YAML file that `fit` wrote. Then, unless stated, without rules, at the log's rate.",
    ),
]
SizesName = Annotated[
    str | None,
    typer.Option(
        "--sizes", help="GPUs and run times: itp (default), itp-8h, kalos, exponential, or a YAML file."
    ),
]
RulesToDraw = Annotated[
    str | None,
    typer.Option(
        "--rules", help="Rules that assign models to jobs: llm-mix (default), a YAML file, or none."
    ),
]
DeadlinesToDraw = Annotated[
    str,
    typer.Option(
        "--deadlines",
        help="rules, none, or LOW:HIGH[:SHARE]: a share of jobs, U(LOW, HIGH) run times after submission.",
    ),
]
StatedSigma = Annotated[
    float, typer.Option(help="Users misstate iterations by a log-normal factor of this sigma, median 1.")
]
Noise = Annotated[
    str,
    typer.Option(
        help="none, or LOW:HIGH[:LARGEST], in multiples of a job's batch: the noise grows, and policies may "
        "choose a batch of up to LARGEST (16) times its own."
    ),
]
Precisions = Annotated[
    str, typer.Option(help="NAME or NAME:WEIGHT,...: precisions of the jobs with a model, drawn by weight.")
]
GpuResources = Annotated[
    list[str] | None,
    typer.Option(
        "--gpu-resource",
        help="Another name of GPUs: NAME of gres/NAME of Slurm, or a resource of Kubernetes; repeatable.",
    ),
]
LogCluster = Annotated[
    str | None, typer.Option("--log-cluster", help="Cluster to keep, of a log that names several.")
]
