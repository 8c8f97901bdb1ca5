"""Jobs per second of the engine against bare SimPy with as many processes, in the same run.

python benchmarks/engine.py --jobs 100000 --policies fifo srtf

Rigid jobs of 1 to 64 GPUs with exponential run times arrive as a Poisson stream at load 0.9 on 1,024 GPUs,
without overheads. The bare run has one process a job that waits for its submission and then for its run
time: no resource, no policy, no record. Ratios carry over between machines better than seconds.
"""

from __future__ import annotations

import argparse
from time import perf_counter

import numpy as np
import simpy

from clustersim.cluster import Cluster
from clustersim.overheads import Overheads
from clustersim.registry import make_policy
from clustersim.simulation import Simulation
from clustersim.speed import speed_for
from traces.job import Job

GPUS, SHARES = (1, 2, 4, 8, 16, 32, 64), (0.30, 0.10, 0.10, 0.30, 0.10, 0.07, 0.03)
LOAD, MEAN_RUN_TIME_S = 0.9, 3600.0


def rigid_jobs(count: int, cluster: Cluster, seed: int) -> list[Job]:
    gaps, sizes, times = (np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(3))
    mean_gpus = float(np.dot(GPUS, SHARES))
    mean_gap_s = MEAN_RUN_TIME_S * mean_gpus / (LOAD * cluster.gpus)
    submits = np.cumsum(gaps.exponential(mean_gap_s, count)).tolist()
    gpus = sizes.choice(GPUS, count, p=SHARES).tolist()
    durations = times.exponential(MEAN_RUN_TIME_S, count).tolist()
    return [
        Job(str(i), submit, gpus=n, duration_s=duration)
        for i, (submit, n, duration) in enumerate(zip(submits, gpus, durations, strict=True))
    ]


def bare_simpy_s(jobs: list[Job]) -> float:
    def process(env: simpy.Environment, job: Job):
        yield env.timeout(job.submit_s)
        yield env.timeout(job.duration_s)

    env = simpy.Environment()
    began = perf_counter()
    for job in jobs:
        env.process(process(env, job))
    env.run()
    return perf_counter() - began


def engine_s(jobs: list[Job], policy: str, cluster: Cluster) -> float:
    simulation = Simulation(
        jobs, cluster, make_policy(policy, {}), speed_for(cluster, "3d"), overheads=Overheads.none()
    )
    began = perf_counter()
    simulation.run()
    return perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--policies", nargs="+", default=["fifo", "fifo-skip", "sjf", "srtf"])
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    cluster = Cluster.parse("n128g8")
    jobs = rigid_jobs(options.jobs, cluster, options.seed)
    bare = bare_simpy_s(jobs)
    print(f"{'':<12}{'jobs/s':>10}{'x bare SimPy':>14}")
    print(f"{'bare SimPy':<12}{len(jobs) / bare:>10,.0f}{1.0:>14.1f}")
    for policy in options.policies:
        seconds = engine_s(jobs, policy, cluster)
        print(f"{policy:<12}{len(jobs) / seconds:>10,.0f}{seconds / bare:>14.1f}")


if __name__ == "__main__":
    main()
