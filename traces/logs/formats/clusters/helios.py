"""Logs of SenseTime's clusters (Hu et al., SC 2021): as published, and as slices of them.

Helios' `cluster_log.csv`: `job_id, user, vc, gpu_num, cpu_num, node_num, state, submit_time, start_time,
end_time, duration, queue`, of the clusters Venus, Earth, Saturn and Uranus. Dates have no offset; `duration`
and `queue` are seconds. Jobs with `gpu_num` 0 use CPUs only.

FleetSim's canonical jobs, such as its slices of Helios: `#` comments, then `job_id, user, tenant, class,
submit_time, num_chips, chip_type, num_nodes, duration_s, walltime_limit_s, final_status`. `submit_time` is
in microseconds from the start of the window, the other times in seconds. In slices of logs without time
limits, `walltime_limit_s` repeats the run time.
"""

from __future__ import annotations

from traces.logs.cells import LogColumn
from traces.logs.log_format import has_columns
from traces.logs.tables import TableOfJobs, table_format

__all__ = ["FLEETSIM", "HELIOS"]

HELIOS = table_format(
    "Helios' cluster_log.csv, from SenseTime",
    has_columns(["job_id", "user", "vc", "gpu_num", "state", "submit_time", "duration", "queue"]),
    TableOfJobs(
        format="helios",
        cells={
            "job_id": LogColumn("job_id"),
            "submit_s": LogColumn("submit_time"),
            "logged_start_s": LogColumn("start_time", optional=True),
            "logged_end_s": LogColumn("end_time", optional=True),
            "duration_s": LogColumn("duration"),
            "gpus": LogColumn("gpu_num"),
            "tenant": LogColumn("vc", optional=True),
            "user": LogColumn("user", optional=True),
            "state": LogColumn("state", optional=True),
        },
        assumptions=(
            "duration is the run time on gpu_num GPUs, without queueing",
            "every job is taken to want all of its logged run time, however it ended",
            "the tenant is the virtual cluster (vc)",
        ),
        unit=("s", "the unit of Helios' logs"),
        host=(
            {"cpus": LogColumn("cpu_num", optional=True, empty=("0",))},
            "the cores are cpu_num, of the whole job",
        ),
    ),
)

FLEETSIM = table_format(
    "FleetSim's canonical jobs, such as its slices of Helios",
    has_columns(["submit_time", "num_chips", "duration_s", "walltime_limit_s", "final_status"]),
    TableOfJobs(
        format="fleetsim",
        cells={
            "job_id": LogColumn("job_id"),
            "submit_s": LogColumn("submit_time"),
            "duration_s": LogColumn("duration_s", unit="s"),
            "gpus": LogColumn("num_chips"),
            "gpu_type": LogColumn("chip_type", optional=True),
            "estimate_s": LogColumn("walltime_limit_s", unit="s", optional=True),
            "tenant": LogColumn("tenant", optional=True),
            "user": LogColumn("user", optional=True),
            "state": LogColumn("final_status", optional=True),
        },
        assumptions=(
            "duration_s is the run time on num_chips GPUs, without queueing",
            "every job is taken to want all of its logged run time, however it ended",
            "the estimate is the time limit",
        ),
        unit=("us", "the unit of FleetSim's submit_time"),
    ),
)
