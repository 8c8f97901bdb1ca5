"""Tables made of Microsoft's logs: ITP, and what the authors of Pollux derived from Philly.

ITP was published with ElasticFlow (Gu et al., ASPLOS 2023): `job_id, submission_time, duration, num_gpu`, in
seconds. It has only jobs of at least 600 s and at most 64 GPUs, in powers of two.

Philly's table (after Jeon et al., USENIX ATC 2019) has one row per job, without attempts: `timestamp,
duration, num_gpus, gpu_time, cluster`. `timestamp` is the submission, without an offset; `duration` is in
seconds; `cluster` is the virtual cluster.
"""

from __future__ import annotations

from traces.logs.cells import LogColumn
from traces.logs.log_format import has_columns
from traces.logs.tables import TableOfJobs, table_format

__all__ = ["ITP", "PHILLY_TABLE"]

ITP = table_format(
    "Microsoft ITP, from the traces of ElasticFlow",
    has_columns(["job_id", "submission_time", "duration", "num_gpu"], without=["model_name"]),
    TableOfJobs(
        format="itp",
        cells={
            "job_id": LogColumn("job_id"),
            "submit_s": LogColumn("submission_time"),
            "duration_s": LogColumn("duration"),
            "gpus": LogColumn("num_gpu"),
        },
        assumptions=(
            "the log's duration is the run time on num_gpu GPUs, without queueing and without restarts",
            "every job is taken to want all of its logged run time; the log does not say how jobs ended",
            "the log names no tenants: all jobs belong to the tenant 'default'",
        ),
        unit=("s", "the unit of ITP's logs"),
    ),
)

PHILLY_TABLE = table_format(
    "the table that Pollux' authors derived from Philly's log",
    has_columns(["timestamp", "duration", "num_gpus", "gpu_time", "cluster"]),
    TableOfJobs(
        format="philly-table",
        cells={
            "submit_s": LogColumn("timestamp"),
            "duration_s": LogColumn("duration"),
            "gpus": LogColumn("num_gpus"),
            "tenant": LogColumn("cluster", optional=True),
        },
        assumptions=(
            "duration is the run time on num_gpus GPUs, without queueing",
            "jobs are named by the line of their row; the tenant is the virtual cluster (cluster)",
        ),
        unit=("s", "the unit of this table"),
    ),
)
