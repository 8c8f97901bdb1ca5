"""The jobs of a file that is a native trace or a job log of any known format."""

from __future__ import annotations

from pathlib import Path

from traces.logs import ReadOptions, import_log
from traces.logs.source import open_log
from traces.native import store_trace
from traces.sidecars import report_of, since_1970

from .columns import JobColumns

__all__ = ["is_trace", "read_columns"]


def is_trace(path: str | Path) -> bool:
    """Whether a file is a native trace, by its header. UserError for a pipe, which can be read only once."""
    with open_log(path, pipes=False) as opened:
        return {"job_id", "submit_s"} <= set(opened.head.columns)


def read_columns(path: str | Path, options: ReadOptions | None = None) -> JobColumns:
    """The jobs of a trace, or those of a log as `import_log` reads it with `options`.

    The hour and the day of the clock's start are known for logs whose times count from 1970 or are dates, and
    for traces of which a report beside them says so. Raises what the readers raise.
    """
    if options is None and is_trace(path):
        log_report = report_of(Path(path))
        return JobColumns.of(store_trace(path), since_1970(log_report[1]) if log_report else None)
    logged, report = import_log(path, options)
    return JobColumns.of(logged, since_1970(report))
