"""Traces that papers on schedulers simulate, made from Philly and from Alibaba PAI.

Chronus (Gao et al., SoCC 2021): `job_id, user, num_gpu, submit_time, iterations, model_name, duration,
interval, expect_time_list, expect_value_list, best_effort, job_type`, all times in minutes.
`expect_time_list` holds times after the submission, separated by `-`; up to the first of them a job has its
full value. `user` is the virtual cluster.

Muri (Zhao et al., SIGCOMM 2022): `job_id, num_gpu, submit_time, iterations, model_name, batch_size,
duration, interval, iteration_time, resource_time_0 to _2, priority`, all times in milliseconds; duration =
iterations x iteration_time + start-up.

GAIA (Hanafy et al., ASPLOS 2024): `arrival_time, length, cpus`, without ids, in seconds in some files and in
hours in others. The jobs last five minutes or more, which tells both apart. `cpus` are units of demand.
"""

from __future__ import annotations

from traces.logs.cells import Cell, flag
from traces.logs.log_format import has_columns
from traces.logs.tables import TableOfJobs, table_format
from traces.logs.units import Evidence

__all__ = ["CHRONUS", "GAIA", "MURI"]

_SHORTEST_S = 300.0  # of GAIA's jobs; as hours, 12 days


def _first(cell: str) -> str:
    return cell.partition("-")[0]


CHRONUS = table_format(
    "Chronus' traces, after Philly",
    has_columns(["job_id", "num_gpu", "submit_time", "duration", "expect_time_list", "best_effort"]),
    TableOfJobs(
        format="chronus",
        cells={
            "job_id": Cell("job_id"),
            "submit_s": Cell("submit_time"),
            "duration_s": Cell("duration"),
            "gpus": Cell("num_gpu"),
            "deadline_after_s": Cell("expect_time_list", pick=_first, optional=True),
            "best_effort": Cell("best_effort", flag, optional=True),
            "tenant": Cell("user", optional=True),
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

MURI = table_format(
    "Muri's traces, after Philly and of its testbed",
    has_columns(["job_id", "num_gpu", "submit_time", "duration", "iteration_time", "resource_time_0"]),
    TableOfJobs(
        format="muri",
        cells={
            "job_id": Cell("job_id"),
            "submit_s": Cell("submit_time"),
            "duration_s": Cell("duration"),
            "gpus": Cell("num_gpu"),
            "priority": Cell("priority", optional=True),
        },
        assumptions=(
            "duration is the run time on num_gpu GPUs, alone on them and with its start-up",
            "model_name, batch_size and iterations are left out: jobs are as long as duration says",
            "the log names no tenants: all jobs belong to the tenant 'default'",
        ),
        unit=("ms", "the unit of Muri's traces"),
    ),
)


def _unit_of_gaia(evidence: Evidence) -> tuple[str, str]:
    lengths = evidence.numbers.get("duration_s")
    if not lengths:
        raise ValueError("length holds no numbers")
    if min(lengths) >= _SHORTEST_S:
        return "s", "GAIA's jobs last 5 minutes or more, as these do in seconds"
    if max(lengths) < _SHORTEST_S:
        return "h", "GAIA's jobs last 5 minutes or more, so these are not seconds"
    span = f"from {min(lengths):g} to {max(lengths):g}"
    raise ValueError(f"length is {span}: seconds, as in some files of GAIA, or hours, as in others")


GAIA = table_format(
    "GAIA's traces of Alibaba PAI",
    has_columns(["arrival_time", "length", "cpus"]),
    TableOfJobs(
        format="gaia",
        cells={"submit_s": Cell("arrival_time"), "duration_s": Cell("length"), "gpus": Cell("cpus")},
        assumptions=(
            "length is the run time, without queueing",
            "cpus, the unit of demand of the log, count as GPUs",
            "jobs are named by the line of their row",
            "the log names no tenants: all jobs belong to the tenant 'default'",
        ),
        unit=_unit_of_gaia,
        warnings=("cpus, the unit of demand of the log, count as GPUs",),
    ),
)
