"""How often forecasts of starts are right: quantiles that `predict-start` states, beside what happens.

    python -m experiments.predict_start [--logs 12]

Each log is one of which the truth is known: random jobs, whose run times are a ratio of their time limits by
a beta distribution of their user, simulated under a policy. A log is cut at moments at which jobs wait. The
forecast gets the jobs that run and wait then, and those that had ended as its history. It is asked for the
first job of the queue, the one in the middle and the last.

If the forecast is right, a start comes by the stated p10 in 10 % of the cases, by the median in 50 %, by p90
in 90 %: of 49 draws these are the 5th, 25th and 45th, and one more draw is at most the k-th with the chance
k / 50. The intervals are 95 % ones over logs (Student's t), since the jobs of one log are not independent.
Jobs that are submitted after the cut take part in the truth or not. The forecast knows none of them; it can
expect some like those of the past.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC

import numpy as np
from scipy.stats import t

import clustersim
from clustersim.backtest import SiteFacts
from clustersim.cluster import Cluster
from clustersim.forecast import Options, Request, SitePolicy, predict_start
from clustersim.forecast.state import state_at
from itertime.commandline import run_task
from traces import Job
from traces.logs.log import Log, LoggedJob
from traces.native import PackedJobs

CLUSTER = "n8g8"
ARMS = (
    ("easy", False, False), ("easy", True, True), ("easy", True, False), ("sjf", True, True),
    ("sjf", True, False), ("fifo", False, False),
)  # fmt: skip
"""Policies; whether jobs come later; whether the forecast expects some."""
JOBS, LOAD, CUTS, DRAWS, LEAST_WAITING = 300, 1.1, 4, 49, 3
SHARES = {"p10": 0.1, "p50": 0.5, "p90": 0.9}
GPUS, GPU_SHARES = (1, 2, 4, 8, 16, 32), (0.35, 0.15, 0.15, 0.2, 0.1, 0.05)
MEDIAN_S, SIGMA = 7200.0, 1.0  # of the lognormal time limits
SOURCE = {"file": "simulated", "format": "simulated"}
RATIOS = ((8.0, 1.5), (2.0, 2.0), (1.5, 6.0), (1.0, 1.0))  # beta distributions, one for each user


@dataclass(frozen=True)
class Coverage:
    """Of the starts of one log: shares that came by each quantile, the mean absolute error of the median, and
    the mean delay, in s.
    """

    jobs: int
    shares: tuple[float, ...]
    absolute_s: float
    mean_s: float


def jobs_of(seed: int) -> list[Job]:
    """Random jobs that offer `LOAD`, with time limits."""
    draw = np.random.default_rng([seed, *b"jobs"])
    gpus = draw.choice(GPUS, JOBS, p=GPU_SHARES)
    limit_s = np.ceil(draw.lognormal(np.log(MEDIAN_S), SIGMA, JOBS))
    users = draw.integers(len(RATIOS), size=JOBS)
    run_s = np.array([max(0.01, draw.beta(*RATIOS[user])) for user in users]) * limit_s
    window_s = float((gpus * run_s).sum()) / LOAD / Cluster.parse(CLUSTER).gpus
    submit_s = np.sort(draw.uniform(0, window_s, JOBS))
    return [
        Job(
            f"{i}", float(submit_s[i]), gpus=int(gpus[i]), duration_s=float(run_s[i]), user=f"u{users[i]}",
            estimate_s=float(limit_s[i]),
        )
        for i in range(JOBS)
    ]  # fmt: skip


def logged(jobs: Sequence[Job], policy: str) -> Log:
    """What a policy does with the jobs, as a log."""
    run = clustersim.run(jobs, policy, cluster=CLUSTER, overheads=None, bound="none")
    starts = {record.job_id: record.start_s for record in run.jobs}
    rows = (
        LoggedJob(
            job.job_id,
            job.submit_s,
            gpus=job.gpus or 0,
            duration_s=job.duration_s,
            user=job.user,
            estimate_s=job.estimate_s,
            logged_start_s=starts[job.job_id],
            line=line,
        )
        for line, job in enumerate(jobs, 1)
    )
    return Log("simulated", (), False, PackedJobs(LoggedJob, rows))


def coverage(policy: str, later: bool, expected: bool, seed: int) -> Coverage:
    """Forecasts for one log, at `CUTS` moments; `later`, `expected`: as in `ARMS`."""
    jobs = jobs_of(seed)
    log = logged(jobs, policy)
    options = Options(
        policy=SitePolicy(policy),
        site_facts=SiteFacts(clusters={"": Cluster.parse(CLUSTER)}),
        draws=DRAWS,
        seed=seed,
        arrivals=expected,
        with_changes=False,
    )
    truths, stated = list[float](), list[list[float]]()
    for now_s in cuts(log, seed):
        state = state_at(log, now_s, UTC, SOURCE)
        known = log if later else logged([job for job in jobs if job.submit_s <= now_s], policy)
        starts = {row.job_id: row.logged_start_s or 0.0 for row in known.jobs}
        for place in sorted({0, len(state.waiting) // 2, len(state.waiting) - 1}):
            job_id = state.waiting[place].job_id
            found = predict_start(state, Request(job_id), log.jobs, options).summary["start"]
            stated.append([found[f"{name}_s"] for name in SHARES])
            truths.append(starts[job_id] - now_s)
    truth, quantiles = np.array(truths), np.array(stated)
    shares = tuple(float((truth <= quantiles[:, k]).mean()) for k in range(len(SHARES)))
    absolute_s = float(np.abs(truth - quantiles[:, 1]).mean())
    return Coverage(len(truth), shares, absolute_s, float(truth.mean()))


def cuts(log: Log, seed: int) -> list[float]:
    """Moments at which jobs wait, drawn from the middle of the log."""
    draw = np.random.default_rng([seed, *b"cuts"])
    last_s = log.jobs[-1].submit_s
    found = list[float]()
    while len(found) < CUTS:
        now_s = float(draw.uniform(0.4, 0.9)) * last_s
        if len(state_at(log, now_s, UTC, SOURCE).waiting) >= LEAST_WAITING:
            found.append(now_s)
    return found


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The mean of independent values, and the half-width of its 95 % interval."""
    spread = float(np.std(values, ddof=1)) / len(values) ** 0.5
    return float(np.mean(values)), float(t.ppf(0.975, len(values) - 1)) * spread


def rows(logs: int) -> Iterator[str]:
    """The table as Markdown, with a row for each of `ARMS`."""
    yield "| policy | later jobs | expected | starts | by p10, % | by the median, % | by p90, % | error |"
    yield "|---|---|---|---|---|---|---|---|"
    for policy, later, expected in ARMS:
        found = [coverage(policy, later, expected, seed) for seed in range(logs)]
        count = sum(one.jobs for one in found)
        cells = [interval([100 * one.shares[k] for one in found]) for k in range(len(SHARES))]
        shares = " | ".join(f"{mean:.0f} ± {half:.0f}" for mean, half in cells)
        error = sum(one.absolute_s * one.jobs for one in found) / sum(one.mean_s * one.jobs for one in found)
        words = " | ".join("yes" if one else "no" for one in (later, expected))
        yield f"| {policy} | {words} | {count} | {shares} | {100 * error:.0f} % |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--logs", type=int, default=12)
    for row in rows(parser.parse_args().logs):
        print(row, flush=True)


if __name__ == "__main__":
    run_task(main)
