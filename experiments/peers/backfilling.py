"""Backfilling by batsched and Alea: starts, with estimates of 1, 2 and 5 times the run time.

github.com/oar-team/batsched at bab23fa, github.com/aleasimulator/alea at a3315f0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from clustersim.scheduler import Scheduler
from experiments.peers.rows import INSTANT_S, Row, columns, jobs_of, mean_change, scheduled
from policies.conservative import Conservative
from policies.easy import Easy
from policies.fifo import Fifo
from policies.fifo_skip import FifoSkip

__all__ = ["FACTORS", "GPUS", "WITHOUT_ESTIMATES", "WITH_ESTIMATES", "beside", "rows"]

GPUS: Mapping[str, int] = {"60_job": 8, "t300": 16}
"""By trace."""
FACTORS = (1, 2, 5)
WITHOUT_ESTIMATES: Mapping[str, tuple[str, Callable[[float], Scheduler]]] = {
    "fcfs_fast": ("fifo", lambda factor: Fifo()),
    "alea_fcfs": ("fifo", lambda factor: Fifo()),
    "filler": ("fifo-skip", lambda factor: FifoSkip()),
}
"""By the name there: our name, and our policy for a factor of estimates."""
WITH_ESTIMATES: Mapping[str, tuple[str, Callable[[float], Scheduler]]] = {
    "easy_bf": ("easy", Easy),
    "easy_bf_fast": ("easy", Easy),
    "alea_easy": ("easy", Easy),
    "conservative_bf": ("conservative", Conservative),
    "alea_cons": ("conservative", Conservative),
}


def rows(
    folder: Path,
    policies: Mapping[str, tuple[str, Callable[[float], Scheduler]]],
    factors: Sequence[float] = FACTORS,
) -> list[Row]:
    """The columns of these policies and factors. `folder` has the folders backfilling and tiresias."""
    found = []
    for trace in GPUS:
        there = columns(folder / "backfilling" / f"{trace}.start_s.csv")[0].keys()
        for name, (here, policy) in policies.items():
            for factor in factors:
                if f"{name}:f{factor:g}" in there:
                    found.append(beside(folder, trace, f"{name}:f{factor:g}", here, policy(factor)))
    return found


def beside(folder: Path, trace: str, column: str, here: str, policy: Scheduler) -> Row:
    """A column of starts beside those of a policy on the same jobs."""
    jobs = jobs_of(folder / "tiresias" / f"{trace}.csv")
    stated = columns(folder / "backfilling" / f"{trace}.start_s.csv")
    theirs = {row["job_id"]: float(row[column]) for row in stated}
    ours = {record.job_id: record.start_s for record in scheduled(jobs, policy, GPUS[trace]).records}
    waits_s, their_waits_s, equal = {}, {}, 0
    for job in jobs:
        start_s = ours[job.job_id]
        if start_s is None:
            raise ValueError(f"job {job.job_id} did not start under {here}")
        waits_s[job.job_id] = start_s - job.submit_s
        their_waits_s[job.job_id] = theirs[job.job_id] - job.submit_s
        equal += abs(start_s - theirs[job.job_id]) < INSTANT_S
    difference = mean_change(waits_s, their_waits_s)
    there, _, factor = column.partition(":f")
    given = f"{trace}, {GPUS[trace]} GPUs" + (f", estimates x {factor}" if there in WITH_ESTIMATES else "")
    return Row(here, there, given, "starts", equal, len(jobs), difference)
