"""GAIA's traces of Alibaba PAI (Hanafy et al., ASPLOS 2024; github.com/umassos/GAIA, src/cluster_traces).

`arrival_time, length, cpus`, without ids, in seconds in some files and in hours in others. The jobs last five
minutes or more, which tells both apart. `cpus` are units of demand.
"""

from __future__ import annotations

from traces.logs.cells import LogColumn
from traces.logs.log_format import has_columns
from traces.logs.tables import TableOfJobs, table_format
from traces.logs.units import UnitEvidence

__all__ = ["GAIA"]

_SHORTEST_S = 300.0  # of GAIA's jobs; as hours, 12 days


def _unit(evidence: UnitEvidence) -> tuple[str, str]:
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
        cells={
            "submit_s": LogColumn("arrival_time"),
            "duration_s": LogColumn("length"),
            "gpus": LogColumn("cpus"),
        },
        assumptions=(
            "length is the run time, without queueing",
            "cpus, the unit of demand of the log, count as GPUs",
            "jobs are named by the line of their row",
            "the log names no tenants: all jobs belong to the tenant 'default'",
        ),
        unit=_unit,
        warnings=("cpus, the unit of demand of the log, count as GPUs",),
    ),
)
