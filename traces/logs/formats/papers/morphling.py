"""Workloads of Rubick, Alibaba's Morphling (Zhang et al., MLSys 2025).

Source: github.com/AlibabaPAI/reconfigurable-dl-scheduler, simulator/workloads/workload-*.csv. The columns are
`name, submission_time, duration, application, num_gpus, num_cpus, bandwidth, exec_plan, steps, is_sla`, all
times in seconds. duration = steps x time of an iteration under `exec_plan`; some are below a second.
`is_sla` 1: the job has guaranteed resources.
"""

from __future__ import annotations

from traces.logs.cells import LogColumn, flag
from traces.logs.log_format import has_columns
from traces.logs.tables import TableOfJobs, table_format

__all__ = ["MORPHLING"]


def _quality(cell: str) -> str:
    return "guaranteed" if flag(cell) else "best-effort"


MORPHLING = table_format(
    "the workloads of Rubick, of Alibaba's Morphling",
    has_columns(["name", "submission_time", "duration", "application", "num_gpus", "exec_plan", "steps"]),
    TableOfJobs(
        format="morphling",
        cells={
            "job_id": LogColumn("name"),
            "submit_s": LogColumn("submission_time"),
            "duration_s": LogColumn("duration"),
            "gpus": LogColumn("num_gpus"),
            "qos": LogColumn("is_sla", _quality, optional=True),
        },
        assumptions=(
            "duration is the run time on num_gpus GPUs under exec_plan, without queueing",
            "application, exec_plan and steps are left out: the log names no batch",
            "the QOS is guaranteed or best-effort, as is_sla says",
            "the log names no tenants: all jobs belong to the tenant 'default'",
        ),
        unit=("s", "the unit of Rubick's workloads"),
    ),
)
