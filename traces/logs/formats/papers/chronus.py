"""Chronus' traces, made from Philly (Gao et al., SoCC 2021; github.com/S-Lab-System-Group/ChronusArtifact).

`job_id, user, num_gpu, submit_time, iterations, model_name, duration, interval, expect_time_list,
expect_value_list, best_effort, job_type`, all times in minutes. The lists are separated by `-`.
`expect_time_list` holds times after the submission; up to the first of them a job has its full value, that of
`expect_value_list`. `user` is the virtual cluster. 0.6 % of the rows have `num_gpu` 0 and are dropped.
"""

from __future__ import annotations

from traces.logs.cells import LogColumn, flag
from traces.logs.log_format import has_columns
from traces.logs.tables import TableOfJobs, table_format

__all__ = ["CHRONUS"]


def _first(cell: str) -> str:
    return cell.partition("-")[0]


CHRONUS = table_format(
    "Chronus' traces, after Philly",
    has_columns(["job_id", "num_gpu", "submit_time", "duration", "expect_time_list", "best_effort"]),
    TableOfJobs(
        format="chronus",
        cells={
            "job_id": LogColumn("job_id"),
            "submit_s": LogColumn("submit_time"),
            "duration_s": LogColumn("duration"),
            "gpus": LogColumn("num_gpu"),
            "deadline_after_s": LogColumn("expect_time_list", pick=_first, optional=True),
            "best_effort": LogColumn("best_effort", flag, optional=True),
            "tenant": LogColumn("user", optional=True),
        },
        assumptions=(
            "duration is the run time on num_gpu GPUs, without queueing",
            "the deadline is the submission plus the first of expect_time_list; best_effort jobs have none",
            "the tenant is the virtual cluster (user)",
            "model_name and iterations are left out: the log names no batch",
        ),
        unit=("min", "the unit of Chronus' traces"),
    ),
)
