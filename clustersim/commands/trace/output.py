"""Traces with their reports, and what the commands of `clustersim trace` say in the same words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from traces import Job
    from traces.native import PackedJobs, StoredJobs

__all__ = ["offered", "span", "write", "write_report"]


def write(
    jobs: list[Job] | StoredJobs | PackedJobs[Job],
    report: dict[str, Any],
    output: Path,
    kind: str,
    source: Path | None = None,
) -> Path:
    """Write the trace, then its report with the hash of the trace. Returns the path of the report."""
    from itertime.errors import UserError
    from itertime.io import sha256
    from traces import write_trace

    if source is not None and output.exists() and output.samefile(source):
        raise UserError(f"{output}: is the log itself; write the trace to another file")
    write_trace(jobs, output)
    produced = {"output": {"file": output.name, "sha256": sha256(output), "jobs": len(jobs)}}
    return write_report(report | produced, output, kind)


def write_report(report: Mapping[str, Any], output: Path, kind: str) -> Path:
    """Write a report beside a trace, as NAME.KIND.json. Returns its path."""
    from itertime.io import write_text
    from traces.sidecars import sidecar

    path = sidecar(output, kind)
    write_text(path, json.dumps(report, indent=2, allow_nan=False) + "\n")
    return path


def offered(total: Mapping[str, Any], load: float | None, gpus: int, planner: str | None) -> str:
    """The offered load in words; `planner` is None where no run time depends on one."""
    under = f" under planner {planner}" if planner else ""
    gpu_hours = total["gpu_seconds"] / 3600
    work = f"{gpu_hours:,.0f}" if gpu_hours >= 100 else f"{gpu_hours:.3g}"
    if load is None:
        return f"{work} GPU-hours requested{under}, all at one time"
    window = span(total["span_s"])
    return f"offered load {load:.3f} on {gpus:,} GPUs{under}: {work} GPU-hours requested within {window}"


def span(seconds: float) -> str:
    """A span of time in days, hours or seconds."""
    if seconds >= 172800:
        return f"{seconds / 86400:,.2f} days"
    return f"{seconds / 3600:,.3g} hours" if seconds >= 7200 else f"{seconds:,.3g} s"
