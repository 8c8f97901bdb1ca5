"""The policy `slurm` on recorded runs from the first submission to the last end.

python -m experiments.slurm.end_to_end FOLDER...    # 16 phases of the timers for each recorded run
"""

from __future__ import annotations

import sys
from collections import defaultdict
from math import floor
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from clustersim.backtest import score_of_waits
from clustersim.sites import cluster_of_site
from clustersim.testing import simulate
from policies.slurm import Slurm
from traces.job import Job

from .recorded import RecordedRun, read_run

__all__ = ["Score", "play", "trace_of"]


class Score(NamedTuple):
    """A simulation against the log.

    | field | |
    |---|---|
    | `score` | that of waits, as in a backtest (`clustersim.backtest.errors`) |
    | `error_s`, `wait_s`, `logged_wait_s` | mean absolute error; mean waits |
    | `victims`, `preempted` | jobs that the log preempts and the simulation, too; all that it preempts |
    """

    score: float
    error_s: float
    wait_s: float
    logged_wait_s: float
    victims: int
    preempted: int


def trace_of(run: RecordedRun) -> list[Job]:
    """The jobs as they were submitted, at whole seconds as sacct states them."""
    ids = defaultdict(list)
    for job in run.jobs:
        ids[job.name].append(job.job_id)
    return [
        Job(
            job.job_id,
            float(floor(job.submit_s)),
            tenant=job.account,
            gpus=job.nodes * job.gpus_per_node,
            duration_s=job.run_s,
            estimate_s=job.limit_s,
            account=job.account,
            user=job.user,
            qos=job.qos,
            partition=job.partition,
            nodes=job.nodes,
            gpus_per_node=job.gpus_per_node,
            array_id=job.array,
            array_limit=job.array_limit or None,
            depends=_dependencies(job.depends, ids),
        )
        for job in run.jobs
    ]


def _dependencies(depends: str, ids: dict[str, list[str]]) -> str | None:
    kind, _, name = depends.partition(":")
    return ",".join(f"{kind}:{job_id}" for job_id in ids[name]) if depends else None


def play(run: RecordedRun, **phases: Any) -> Score:
    """Simulate a recorded run with these phases, and compare the first starts of its jobs."""
    trace = trace_of(run)
    policy = Slurm(run.site, epoch_s=run.epoch_s, **phases)
    outcome = simulate(trace, policy, cluster_of_site(run.site))
    starts = {record.job_id: record.start_s for record in outcome.records}
    rows = [
        (start_s - submitted.submit_s, job.runs[0].start_s - submitted.submit_s)
        for job, submitted in zip(run.jobs, trace, strict=True)
        if job.runs and (start_s := starts[job.job_id]) is not None
    ]
    waits, logged_waits = np.array(rows).T
    preempted_jobs = [event.job_id for event in outcome.events if event.event == "requeue"]
    logged_victims = {job.job_id for job in run.jobs if len(job.runs) > 1}
    return Score(
        score_of_waits(logged_waits, waits),
        float(np.abs(waits - logged_waits).mean()),
        float(waits.mean()),
        float(logged_waits.mean()),
        len(logged_victims & set(preempted_jobs)),
        len(preempted_jobs),
    )


def main() -> None:
    print("| run | logged mean wait, s | simulated | error, s | score: median, least, most | victims |")
    print("|---|---|---|---|---|---|")
    for folder in map(Path, sys.argv[1:]):
        run = read_run(folder)
        scores = [play(run, **phases) for phases in Slurm.timer_phases(16)]
        values = sorted(score.score for score in scores)
        victims = ""
        if any(score.preempted for score in scores):
            met, preempted = (median(score[field] for score in scores) for field in (4, 5))
            victims = f"{met:g} of {sum(len(job.runs) > 1 for job in run.jobs)}, {preempted:g} preempted"
        print(
            f"| {folder.name} | {scores[0].logged_wait_s:.1f} | {median(s.wait_s for s in scores):.1f} "
            f"| {median(s.error_s for s in scores):.1f} "
            f"| {median(values):.2f}, {values[0]:.2f}, {values[-1]:.2f} | {victims} |"
        )


if __name__ == "__main__":
    main()
