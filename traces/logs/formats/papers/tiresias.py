"""Tiresias' traces (Gu et al., NSDI 2019; github.com/SymbioticLab/Tiresias, simulator/60_job.csv).

`job_id, num_gpu, submit_time, iterations, model_name, duration, interval`, all times in seconds; `interval`
is the gap to the submission before. The logs of Chronus and Muri have these columns and more.
"""

from __future__ import annotations

from traces.logs.cells import LogColumn
from traces.logs.log_format import has_columns
from traces.logs.tables import TableOfJobs, table_format

__all__ = ["TIRESIAS"]

TIRESIAS = table_format(
    "Tiresias' traces, such as 60_job.csv",
    has_columns(
        ["job_id", "num_gpu", "submit_time", "iterations", "model_name", "duration", "interval"],
        without=["expect_time_list", "iteration_time"],
    ),
    TableOfJobs(
        format="tiresias",
        cells={
            "job_id": LogColumn("job_id"),
            "submit_s": LogColumn("submit_time"),
            "duration_s": LogColumn("duration"),
            "gpus": LogColumn("num_gpu"),
        },
        assumptions=(
            "duration is the run time on num_gpu GPUs, without queueing",
            "model_name and iterations are left out: the log names no batch",
            "the log names no tenants: all jobs belong to the tenant 'default'",
        ),
        unit=("s", "the unit of Tiresias' traces"),
    ),
)
