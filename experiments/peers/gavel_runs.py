"""Gavel's simulator end to end: job completion times of 80 jobs on three GPU types, in rounds of 360 s.

Narayanan et al., OSDI 2020; github.com/stanford-futuredata/gavel at c4fa400, its own generator of jobs. As it
is shipped, that simulator keeps an allocation for at least 1,920 s. Set to 0, it computes one every round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from clustersim.records import Run
from clustersim.runs import Trace, run
from clustersim.scheduler import Scheduler
from experiments.peers.rows import Row, columns, mean_change
from policies.gavel_ftf import GavelFtf
from policies.gavel_makespan import GavelMakespan
from policies.gavel_max_min import GavelMaxMin
from policies.gavel_throughput import GavelThroughput

__all__ = ["EVERY_ROUND", "KEPT", "NEAR", "beside", "rows", "rows_of", "simulated"]

EVERY_ROUND, KEPT = "recomputed_every_round", "at_least_1920s_apart"
"""How Gavel computed its allocations."""
NEAR = 0.1
"""Of a job completion time."""
_TRACE = "g80"
_RUNS: Sequence[tuple[str, type[Scheduler], Mapping[str, Any], Sequence[str]]] = (
    (
        "gavel-max-min", GavelMaxMin, {},
        ("max_min_fairness_perf", "max_min_fairness_water_filling_perf"),
    ),
    ("gavel-ftf", GavelFtf, {}, ("finish_time_fairness_perf",)),
    ("gavel-makespan", GavelMakespan, {}, ("min_total_duration_perf",)),
    ("gavel-throughput", GavelThroughput, {}, ("max_sum_throughput_perf",)),
    ("gavel-throughput, rates=raw", GavelThroughput, {"rates": "raw"}, ("max_sum_throughput_perf",)),
)  # fmt: skip
"""Our name, our policy with its parameters, the names there."""


def rows(folder: Path) -> list[Row]:
    """Our policies, which compute shares of time every round, beside Gavel's that do so too."""
    return [row for here, *_ in _RUNS for row in rows_of(folder, here)]


@cache  # the page and its tests ask for the same
def rows_of(folder: Path, here: str) -> list[Row]:
    """Those of one of our policies."""
    policy, params, names = next(rest for name, *rest in _RUNS if name == here)
    result = simulated(folder, policy, {**params, "recompute_every_round": True})
    return [beside(folder, here, there, EVERY_ROUND, result) for there in names]


def simulated(folder: Path, policy: type[Scheduler], params: Mapping[str, Any]) -> Run:
    """Gavel's jobs under a policy, on GPUs that are counted only; starts cost nothing."""
    inputs = folder / "gavel_runs"
    table = str(inputs / f"{_TRACE}.table.csv")
    return run(
        Trace.read(inputs / f"{_TRACE}.csv", table), policy, params=dict(params),
        cluster=str(inputs / f"{_TRACE}.cluster.yaml"), table=table, placement="any", overheads=None,
    )  # fmt: skip


def beside(folder: Path, here: str, there: str, how: str, result: Run) -> Row:
    """A run beside a policy of Gavel's, `how` is `EVERY_ROUND` or `KEPT`: jobs with a completion time within
    10 %, and the mean.
    """
    column = f"{there}__{how}"
    stated = columns(folder / "gavel_runs" / f"{_TRACE}.gavel_jct_s.csv")
    theirs = {row["job_id"]: float(row[column]) for row in stated}
    ours = {job.job_id: job.jct_s for job in result.jobs if job.jct_s is not None}
    near = sum(abs(ours[job] / jct_s - 1) < NEAR for job, jct_s in theirs.items())
    return Row(here, there, _TRACE, "completion times", near, len(theirs), mean_change(ours, theirs))
