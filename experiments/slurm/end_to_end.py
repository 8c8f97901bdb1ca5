"""The policy `slurm` on recorded runs from the first submission to the last end.

python -m experiments.slurm.end_to_end FOLDER...          # 16 phases of the timers for each recorded run
python -m experiments.slurm.end_to_end --log FOLDER...    # one run, with the times of the controller's log
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
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
from .steps import LogTimes, log_times

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


def play(run: RecordedRun, times: LogTimes | None = None, **phases: Any) -> Score:
    """Simulate a recorded run with these phases, and compare the first starts of its jobs. `times`: those of
    the log, instead of the whole seconds that accounting states.
    """
    trace, logged_starts = trace_of(run), {job.job_id: job.runs[0].start_s for job in run.jobs if job.runs}
    if times is not None:
        trace = [_with_times(job, times) for job in trace]
        logged_starts = times.first_start_s
    policy = Slurm(run.site, epoch_s=run.epoch_s, **phases)
    outcome = simulate(trace, policy, cluster_of_site(run.site))
    starts = {record.job_id: record.start_s for record in outcome.records}
    rows = [
        (start_s - job.submit_s, logged_starts[job.job_id] - job.submit_s)
        for job in trace
        if job.job_id in logged_starts and (start_s := starts[job.job_id]) is not None
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


def _with_times(job: Job, times: LogTimes) -> Job:
    submit_s = times.submit_s.get(job.job_id) or times.submit_s.get(job.array_id or "") or job.submit_s
    return replace(job, submit_s=submit_s, duration_s=times.run_s.get(job.job_id, job.duration_s))


def _at_the_times_of_logs(folders: Sequence[Path]) -> None:
    """Print the score of each run with the times of its log, and with the whole seconds of accounting."""
    scores: list[tuple[float, float]] = []
    print("| run | with the times of the log | with whole seconds |")
    print("|---|---|---|")
    for folder in folders:
        run = read_run(folder)
        times = log_times(run)
        phases = Slurm.phases_from(times.controller_s)
        whole = median(play(run, **free_phases).score for free_phases in Slurm.timer_phases(16))
        scores.append((play(run, times, **phases).score, whole))
        print(f"| {folder.parent.name}/{folder.name} | {scores[-1][0]:.2f} | {scores[-1][1]:.2f} |")
    exact_mean, whole_mean = np.mean(scores, axis=0)
    print(f"| mean | {exact_mean:.2f} | {whole_mean:.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    parser.add_argument("--log", action="store_true", help="decide at the times of the controller's log")
    arguments = parser.parse_args()
    if arguments.log:
        _at_the_times_of_logs(arguments.folders)
        return
    print("| run | logged mean wait, s | simulated | error, s | score: median, least, most | victims |")
    print("|---|---|---|---|---|---|")
    for folder in arguments.folders:
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
