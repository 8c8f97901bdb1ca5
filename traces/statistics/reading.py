"""The jobs of a file that is a native trace or a job log of any known format."""

from __future__ import annotations

import json
from pathlib import Path

from traces.logs import ReadOptions, import_log
from traces.logs.source import open_log
from traces.native import store_trace

from .columns import Columns

__all__ = ["is_trace", "read_columns", "sidecar"]

_EPOCH_S = 5e8  # a clock that was shifted by more counts from 1970
_MOST_BYTES = 100_000_000


def is_trace(path: str | Path) -> bool:
    """Whether a file is a native trace, by its header."""
    with open_log(path) as opened:
        return {"job_id", "submit_s"} <= set(opened.head.columns)


def read_columns(path: str | Path, options: ReadOptions | None = None) -> Columns:
    """The jobs of a trace, or those of a log as `import_log` reads it with `options`.

    The hour and the day of the clock's start are known for logs whose times count from 1970 or are dates, and
    for traces imported from one whose `NAME.import.json` lies beside them. Raises what the readers raise.
    """
    if options is None and is_trace(path):
        jobs = store_trace(path)
        return Columns.of(jobs, _zero_s(Path(path)))
    logged, report = import_log(path, options)
    return Columns.of(logged, _since_1970(report))


def sidecar(trace: Path, kind: str) -> Path:
    """The path of the report beside a trace: NAME.KIND.json."""
    name = trace.name
    for ending in (".gz", ".csv", ".parquet"):
        name = name.removesuffix(ending)
    return trace.with_name(f"{name}.{kind}.json")


def _zero_s(trace: Path) -> float | None:
    beside = sidecar(trace, "import")
    try:
        if beside.stat().st_size > _MOST_BYTES:
            return None
        report = json.loads(beside.read_text(encoding="utf-8"))
        return _since_1970(report) if report["output"]["file"] == trace.name else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _since_1970(report: dict[str, dict[str, float]]) -> float | None:
    shift_s, scale = float(report["clock"]["shift_s"]), report["clock"]["time_scale"]
    return shift_s if shift_s > _EPOCH_S and scale == 1.0 else None
