"""Workloads of Pollux and of Sia (Qiao et al., OSDI 2021; Jayaram Subramanya et al., SOSP 2023).

Source: github.com/siasosp23/artifacts, sia-simulator/workloads/NAME/workload-I.csv. The columns are `name,
time, application, num_replicas, batch_size`, and in some files `num_steps`; `time` is the submission in
seconds.

There are no run times: both schedulers change batch and GPUs as a job runs, by profiles of its application
that are not in the workload. A job becomes one of a trace by `num_steps`, or by the iterations that jobs of
the same application and batch take in another log (`--work-of`). Its run time is these over a speed
(`--speeds`). ElasticFlow published such a log, `elasticVpollux_e.csv`, and such speeds, `throughputs_T4`, for
Pollux' applications.
"""

from __future__ import annotations

from typing import Any

from traces.logs.cells import LogColumn
from traces.logs.log import Log, ReadOptions
from traces.logs.log_format import LogFormat, has_columns
from traces.logs.source import LogSource
from traces.logs.tables import TableOfJobs, read_table

__all__ = ["POLLUX"]

_CELLS = {
    "job_id": LogColumn("name"),
    "submit_s": LogColumn("time"),
    "gpus": LogColumn("num_replicas"),
    "model": LogColumn("application"),
    "global_batch": LogColumn("batch_size"),
}
_ASSUMPTIONS = (
    "a job trains its application with batch_size, the global batch, on num_replicas GPUs from start to end",
    "the log names no tenants: all jobs belong to the tenant 'default'",
)
_STEPS = "num_steps"


def _unstated(values: dict[str, Any]) -> None:
    values["duration_s"] = None


def _read(source: LogSource, options: ReadOptions) -> Log:
    cells = dict(_CELLS)
    if _STEPS in source.head.columns:
        cells["iterations"] = LogColumn(_STEPS, optional=True)
    form = TableOfJobs(
        "pollux", cells, _ASSUMPTIONS, unit=("s", "the unit of these workloads"), derive=_unstated
    )
    return read_table(source, form, options)


POLLUX = LogFormat(
    "pollux",
    "the workloads of Pollux and Sia",
    has_columns(["name", "time", "application", "num_replicas", "batch_size"]),
    _read,
)
