"""ElasticFlow's traces (Gu et al., ASPLOS 2023): DNN jobs with models, iterations and deadlines.

The simulator's columns are `job_id, submission_time, num_iteration, model_name, deadline, batch_size,
num_gpu, duration`; the testbed names three of them `submit_time, iteration, ddl` and may add `best_effort`.
Times are in seconds, deadlines absolute.
"""

from __future__ import annotations

from collections.abc import Collection

from itertime.errors import TableError
from traces.logs.cells import LogColumn, flag
from traces.logs.log import Log, ReadOptions
from traces.logs.log_format import LogFormat
from traces.logs.source import Head, LogSource
from traces.logs.tables import TableOfJobs, read_table

__all__ = ["ELASTICFLOW"]

_SIMULATOR = {"submit_s": "submission_time", "iterations": "num_iteration", "deadline_s": "deadline"}
_TESTBED = {"submit_s": "submit_time", "iterations": "iteration", "deadline_s": "ddl"}
_COMMON = {
    "job_id": "job_id",
    "model": "model_name",
    "global_batch": "batch_size",
    "gpus": "num_gpu",
    "duration_s": "duration",
}
_ASSUMPTIONS = (
    "the log's duration is the run time on num_gpu GPUs, without queueing and without restarts",
    "batch_size is the global batch",
    "jobs marked best_effort have no deadline",
    "the log names no tenants: all jobs belong to the tenant 'default'",
)


def _matches(head: Head) -> bool:
    return _names(head.columns) is not None


def _read(source: LogSource, options: ReadOptions) -> Log:
    names = _names(source.head.columns)
    if names is None:
        columns_text = ", ".join((*_COMMON.values(), *_SIMULATOR.values()))
        raise TableError(f"{source.path}:1: not an ElasticFlow trace; one has the columns {columns_text}")
    cells = {field: LogColumn(name, optional=field == "deadline_s") for field, name in names.items()}
    if "best_effort" in source.head.columns:
        cells["best_effort"] = LogColumn("best_effort", flag, optional=True)
    form = TableOfJobs("elasticflow", cells, _ASSUMPTIONS, unit=("s", "the unit of ElasticFlow's traces"))
    return read_table(source, form, options)


def _names(columns: Collection[str]) -> dict[str, str] | None:
    for variant in (_SIMULATOR, _TESTBED):
        names = {**_COMMON, **variant}
        if set(names.values()) <= set(columns):
            return names
    return None


ELASTICFLOW = LogFormat(
    "elasticflow", "ElasticFlow's traces of the simulator and the testbed", _matches, _read
)
