"""`clustersim trace import` and `import-table`: job logs and tables of speeds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from clustersim.commands.output.terminal import say
from itertime.commands.options import MEMORY_HEADROOM

from .options import (
    Columns,
    GpuResources,
    Headroom,
    LogCluster,
    LogFormatName,
    ModelPath,
    Output,
    PlannerName,
    Rules,
    Seed,
    SpeedSource,
    SystemName,
    TimeUnit,
    TimeZone,
    WorkSource,
)
from .output import span, write, write_report

__all__ = ["import_", "import_table"]

_MOST_ENDS = 8  # kinds of ends of which the terminal states the hours
_MOST_REASONS = 3  # for dropped rows, that the terminal names

_GpuFractions = Annotated[
    bool, typer.Option("--gpu-fractions", help="Let jobs that hold part of a GPU keep it.")
]
_Services = Annotated[bool, typer.Option("--services", help="Let instances of services be such (DLRM).")]
_Host = Annotated[
    bool, typer.Option("--host", help="Let jobs keep the cores and host memory that the log states.")
]


def import_(
    log: Annotated[Path, typer.Argument(help="Job log, plain or gzip; a file, a pipe, or a folder.")],
    output: Output,
    log_format: LogFormatName = None,
    columns: Columns = None,
    time_unit: TimeUnit = None,
    time_zone: TimeZone = None,
    tenant: Annotated[str | None, typer.Option(help="Column of the log that names the tenant.")] = None,
    speeds: SpeedSource = None,
    work_of: WorkSource = None,
    gpu_fractions: _GpuFractions = False,
    services: _Services = False,
    host: _Host = False,
    gpu_resource: GpuResources = None,
    log_cluster: LogCluster = None,
    rules: Rules = "none",
    planner: PlannerName = "best",
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

    options = ReadOptions(
        log_format, columns, time_unit, tenant, time_zone, speeds, work_of, gpu_fractions, services, host,
        tuple(gpu_resource or ()), log_cluster,
    )  # fmt: skip
    with collect_less_often():
        jobs, report = import_log(
            log,
            options,
            rules=rules,
            planner=planner,
            system=system,
            memory_headroom=memory_headroom,
            seed=seed,
            selection=Selection(from_s, until_s, limit, time_scale),
            model_path=model_path or (),
        )
        report_path = write(jobs, report, output, "import", log)
    _say_imported(report, output)
    if rules != "none":
        rules_note = (
            "models, batches, GPU counts, and deadlines where the log has none, are those of the rules"
        )
        say(f"{rules_note} {rules}, not the log's; --rules none keeps jobs as they were logged", err=True)
    say(f"assumptions and dropped rows: {report_path}", err=True)


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
    report_path = write_report(report | produced, output, "import")
    models = len({row.model for row in rows})
    say(f"{output}: {len(rows)} speeds of {models} models")
    kind = "cells" if source.is_dir() else "jobs"
    without = report["counts"][f"{kind}_without_speed"]
    say(f"{without} {kind} state no speed; what was assumed: {report_path}", err=True)


def _say_imported(report: Mapping[str, Any], output: Path) -> None:
    """State what a log gave: jobs, span, GPU-hours and load; then units, warnings and what is missing."""
    from itertime.io import shown
    from traces.summary import cautions

    counts, demand = report["counts"], report["demand"]
    left_out = sum(counts["left_out"].values())
    say(f"{output}: {counts['jobs']:,} jobs of {counts['rows']:,} rows ({report['format']})")
    demand_text = f"{demand['gpu_seconds'] / 3600:,.2f} GPU-hours"
    if not demand["jobs"]:
        say(f"no job states a run time, so there are no GPU-hours; submitted over {span(demand['span_s'])}")
    elif demand["mean_gpus"] is None:
        say(f"{demand_text}, all submitted at once")
    else:
        gpus = max(1, round(demand["mean_gpus"]))
        over = f"submitted over {span(demand['span_s'])}"
        say(f"{demand_text} {over}: {demand['mean_gpus']:,.1f} GPUs on average, so {gpus:,} GPUs have load 1")
        for caution in cautions(demand):
            say(f"note: {caution}", err=True)
    for text in _hours_by_end(report["gpu_hours"]):
        say(text, err=True)
    say(f"times: {'; '.join(report['times'])}", err=True)
    for warning in report["warnings"]:
        say(f"warning: {warning}", err=True)
    if counts["dropped"] or left_out:
        reasons = list(report["dropped_by_reason"].items())
        reason_texts = [f"{n:,} x {shown(reason)}" for reason, n in reasons[:_MOST_REASONS]]
        reason_texts += (
            [f"{len(reasons) - _MOST_REASONS} more reasons"] if len(reasons) > _MOST_REASONS else []
        )
        first_text = next((f"; first on line {d['line']}: {d['reason']}" for d in report["dropped"]), "")
        listed = f" ({'; '.join(reason_texts)}{first_text})" if reason_texts else ""
        say(f"dropped {counts['dropped']:,} rows{listed}; {left_out:,} outside the selection", err=True)
    if parts := report["parts_of_gpus"]:
        say(f"{parts:,} of the jobs held parts of GPUs, which count as whole GPUs", err=True)


def _hours_by_end(hours: Mapping[str, Any]) -> Iterator[str]:
    """The GPU-hours of a log by how its runs ended, if it says so, and those that bought nothing."""
    by_end = {name: value for name, value in hours["by_end"].items() if name != "not stated"}
    if len(by_end) > 1:
        yield f"GPU-hours by end: {_listed(by_end, hours['all'])}"
    if hours["started_again"]:
        text = _listed(hours["started_again"], hours["all"])
        yield f"GPU-hours of runs after which the job was started again: {text}"
    if hours["dropped"]:
        yield f"GPU-hours of dropped rows: {_listed(hours['dropped'], hours['all'])}"
    if hours["held_back_h"] > 0:
        yield (
            f"jobs were held back {hours['held_back_h']:,.2f} h in all before they were eligible "
            "(dependencies, limits of arrays, begin times, requeues); waits count from then"
        )


def _listed(hours: Mapping[str, float], total: float) -> str:
    from itertime.io import shown

    texts = [f"{shown(name)} {value:,.2f} ({value / total:.1%})" for name, value in hours.items() if total]
    more = f" and {len(texts) - _MOST_ENDS} more" if len(texts) > _MOST_ENDS else ""
    return ", ".join(texts[:_MOST_ENDS]) + more
