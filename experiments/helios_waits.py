"""What Helios' virtual cluster vcvGl says of its waits, although its log states no start.

    python -m experiments.helios_waits [../shared/data/clusters/helios/venus_vcvGl_sept.csv]

Users submit a job when they have the result of another one. So if a policy explains the waits, submissions of
a user are frequent just after the ends of the user's jobs, and not just before. The table is about policies
on 20 nodes of 8 GPUs. It counts the jobs of at least five minutes whose user submits another job in the
minute before the end, and in the minute after it. `no wait` ends each job one run time after its submission;
`shifted` does so with run times multiplied by U(0.5, 1.5), which shows what chance gives.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence

import numpy as np

import clustersim
from traces import Job
from traces.logs import import_log

LOG = "../shared/data/clusters/helios/venus_vcvGl_sept.csv"
POLICIES = ("fifo", "sjf", "easy", "fifo-skip")
CLUSTER, LEAST_S, WITHIN_S, SEED = "n20g8", 300.0, 60.0, 0


def followed(jobs: Sequence[Job], end_s: Mapping[str, float]) -> tuple[int, int]:
    """Jobs of at least `LEAST_S` with a submission of the same user within `WITHIN_S` before their end, and
    after it.
    """
    submissions: dict[str | None, list[float]] = {}
    for job in jobs:
        submissions.setdefault(job.user, []).append(job.submit_s)
    before = after = 0
    for job in jobs:
        if job.duration_s is None or job.duration_s < LEAST_S:
            continue
        gaps = np.array(submissions[job.user]) - end_s[job.job_id]
        before += bool(((gaps >= -WITHIN_S) & (gaps < 0)).any())
        after += bool(((gaps >= 0) & (gaps <= WITHIN_S)).any())
    return before, after


def table(path: str = LOG) -> list[tuple[str, float, float, int, int]]:
    """Rows: name, mean wait and its 90th percentile in s, jobs followed before and after their end."""
    jobs, _ = import_log(path)
    ends = {job.job_id: job.submit_s + (job.duration_s or 0.0) for job in jobs}
    factors = np.random.default_rng(SEED).uniform(0.5, 1.5, len(jobs))
    shifted = {
        job.job_id: job.submit_s + float(factor) * (job.duration_s or 0.0)
        for job, factor in zip(jobs, factors, strict=True)
    }
    rows = [("no wait", 0.0, 0.0, *followed(jobs, ends)), ("shifted", 0.0, 0.0, *followed(jobs, shifted))]
    for policy in POLICIES:
        run = clustersim.run(jobs, policy, cluster=CLUSTER, overheads=None, bound="none")
        waits = np.array([record.queue_s for record in run.jobs])
        finished = {record.job_id: record.finish_s or np.inf for record in run.jobs}
        rows.append((policy, waits.mean(), np.quantile(waits, 0.9), *followed(jobs, finished)))
    return rows


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("log", nargs="?", default=LOG, help="the log; default: %(default)s")
    log = parser.parse_args().log
    print(f"{'':10}{'mean wait s':>12}{'p90 s':>10}{'minute before':>15}{'minute after':>14}")
    for name, mean, p90, before, after in table(log):
        print(f"{name:10}{mean:12,.0f}{p90:10,.0f}{before:15}{after:14}")


if __name__ == "__main__":
    main()
