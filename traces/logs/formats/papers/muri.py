"""Muri's traces and the results of its testbed (Zhao et al., SIGCOMM 2022; github.com/Rivendile/Muri).

The traces, of the testbed (`cluster_trace.csv`) and after Philly (`trace1.csv` to `trace4.csv`): `job_id,
num_gpu, submit_time, iterations, model_name, batch_size, duration, interval, iteration_time, resource_time_0
to _2, priority`, all times in milliseconds. duration = iterations x iteration_time + start-up.

The results (`POLICY.job.csv`): `time, job_id, num_gpu, submit_time, start_time, end_time, executed_time,
real_executed_time, JCT, duration, pending_time, job_counter, promote` for each job in order of its end, all
times in seconds. `executed_time` is the time from the first start to the end, JCT that from the submission,
`duration` the one of the trace. `real_executed_time` is the time that the job held its GPUs: JCT without
`pending_time`, which includes the waits of a job that was stopped. `job_counter` counts its starts.
"""

from __future__ import annotations

from traces.logs.cells import LogColumn
from traces.logs.log_format import has_columns
from traces.logs.tables import TableOfJobs, table_format

__all__ = ["MURI", "MURI_RESULTS"]

MURI = table_format(
    "Muri's traces, after Philly and of its testbed",
    has_columns(["job_id", "num_gpu", "submit_time", "duration", "iteration_time", "resource_time_0"]),
    TableOfJobs(
        format="muri",
        cells={
            "job_id": LogColumn("job_id"),
            "submit_s": LogColumn("submit_time"),
            "duration_s": LogColumn("duration"),
            "gpus": LogColumn("num_gpu"),
            "priority": LogColumn("priority", optional=True),
        },
        assumptions=(
            "duration is the run time on num_gpu GPUs, alone on them and with its start-up",
            "model_name, batch_size and iterations are left out: jobs are as long as duration says",
            "the log names no tenants: all jobs belong to the tenant 'default'",
        ),
        unit=("ms", "the unit of Muri's traces"),
    ),
)

MURI_RESULTS = table_format(
    "what Muri's testbed measured under a policy",
    has_columns(["job_id", "num_gpu", "submit_time", "start_time", "end_time", "real_executed_time", "JCT"]),
    TableOfJobs(
        format="muri-results",
        cells={
            "job_id": LogColumn("job_id"),
            "submit_s": LogColumn("submit_time"),
            "start_s": LogColumn("start_time"),
            "end_s": LogColumn("end_time"),
            "duration_s": LogColumn("real_executed_time"),
            "gpus": LogColumn("num_gpu"),
        },
        assumptions=(
            "real_executed_time, the time that a job held its GPUs under the log's policy, is its run time",
            "a policy that packs jobs makes them share GPUs, each of which counts for each of its jobs",
            "the log names no tenants: all jobs belong to the tenant 'default'",
        ),
        unit=("s", "the unit of Muri's results"),
    ),
)
