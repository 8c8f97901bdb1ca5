"""Jobs per second and memory of the engine, against bare SimPy with as many processes.

python benchmarks/engine.py --jobs 100000 1000000 --policies fifo --write
python benchmarks/engine.py --jobs 100000 --policies fifo fifo-skip sjf srtf
python benchmarks/engine.py --jobs 12500 25000 50000 --load 1.5 --policies sjf srtf edf

Rigid jobs of 1 to 64 GPUs with exponential run times arrive as a Poisson stream at load 0.9 on 1,024 GPUs,
without overheads; at a load above 1 the queue grows throughout. Jobs are generated during the run, so that
the memory is the engine's; the time of generating them is not counted. The bare run has one process per job,
which waits for its submission and then for its run time: no resource, no policy, no record. Ratios carry over
between machines better than seconds. Both are process time, which other programs on the machine disturb less
than the clock. Every measurement has a process of its own; of several repetitions the least counts. With
`--write` the records go into a folder during the run, as with `clustersim run --out`; without it they stay in
memory.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from pathlib import Path
from time import process_time
from typing import NamedTuple

import numpy as np
import simpy

from clustersim.analysis import summarise
from clustersim.cluster import Cluster
from clustersim.engine import RunSetup, Simulation
from clustersim.overheads import Overheads
from clustersim.records import MemoryRecorder
from clustersim.rundir import RunWriter
from clustersim.runs import make_policy
from clustersim.speed import speed_for
from traces.job import Job

GPUS, SHARES = (1, 2, 4, 8, 16, 32, 64), (0.30, 0.10, 0.10, 0.30, 0.10, 0.07, 0.03)
MEAN_RUN_TIME_S = 3600.0
CLUSTER = "n128g8"


class Cost(NamedTuple):
    """`seconds` of process time of the simulation, `writing_s` of the writing after it, peak memory in GiB,
    and the longest queue in jobs.
    """

    seconds: float
    writing_s: float
    memory_gib: float
    waiting: int


class MadeUp(Iterator[Job]):
    """The jobs of `rigid_jobs`, made a thousand at a time, and the process time of making them."""

    def __init__(self, jobs: Iterator[Job]):
        self.seconds, self._jobs = 0.0, jobs
        self._thousand: Iterator[Job] = iter(())

    def __next__(self) -> Job:
        job = next(self._thousand, None)
        if job is None:
            self._thousand = iter(self._take())
            job = next(self._thousand)
        return job

    def _take(self) -> list[Job]:
        began = process_time()
        jobs = list(islice(self._jobs, 1000))
        self.seconds += process_time() - began
        return jobs


def rigid_jobs(count: int, cluster: Cluster, seed: int, load: float = 0.9) -> Iterator[Job]:
    gaps, sizes, times = (np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(3))
    mean_gpus = float(np.dot(GPUS, SHARES))
    mean_gap_s = MEAN_RUN_TIME_S * mean_gpus / (load * cluster.gpus)
    submits = np.cumsum(gaps.exponential(mean_gap_s, count))
    gpus = sizes.choice(GPUS, count, p=SHARES)
    durations = times.exponential(MEAN_RUN_TIME_S, count)
    for i in range(count):
        yield Job(str(i), float(submits[i]), gpus=int(gpus[i]), duration_s=float(durations[i]))


def bare_simpy(count: int, seed: int, load: float) -> Cost:
    """Bare SimPy: one process per job."""

    def process(env: simpy.Environment, submit_s: float, run_s: float):
        yield env.timeout(submit_s)
        yield env.timeout(run_s)

    times = [(job.submit_s, job.duration_s) for job in rigid_jobs(count, Cluster.parse(CLUSTER), seed, load)]
    env = simpy.Environment()
    began = process_time()
    for submit_s, run_s in times:
        env.process(process(env, submit_s, run_s))
    env.run()
    return Cost(process_time() - began, 0.0, _peak_gib(), 0)


def engine(policy: str, count: int, seed: int, load: float, write: bool) -> Cost:
    """One run; with `write`, into a folder that is removed afterwards."""
    cluster = Cluster.parse(CLUSTER)
    jobs = MadeUp(rigid_jobs(count, cluster, seed, load))
    setup = RunSetup(
        cluster=cluster,
        scheduler=make_policy(policy, {}),
        speed=speed_for(cluster, "vtrain"),
        overheads=Overheads.none(),
    )
    if not write:
        recorder = MemoryRecorder(cluster)
        seconds = _simulate(Simulation(jobs, setup, recorder), jobs)
        waiting = max(snapshot.pending for snapshot in recorder.snapshots)
        return Cost(seconds, 0.0, _peak_gib(), waiting)
    with tempfile.TemporaryDirectory() as home, RunWriter(Path(home) / "run", cluster) as writer:
        seconds, began = _simulate(Simulation(jobs, setup, writer), jobs), process_time()
        summary = summarise(
            writer.job_table, writer.usage_table, cluster, end_s=writer.end_s, events=writer.event_count
        )
        writer.finish(policy, "vtrain", summary, {}, [])
        waiting = int(writer.usage_table["pending"].max())
        return Cost(seconds, process_time() - began, _peak_gib(), waiting)


def _simulate(simulation: Simulation, jobs: MadeUp) -> float:
    """Process time of the run, without the time of generating the jobs."""
    began = process_time() - jobs.seconds
    simulation.run()
    return process_time() - began - jobs.seconds


def _peak_gib() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**30 if sys.platform == "darwin" else 2**20)


def _least(repeats: int, function, *arguments) -> Cost:
    """Run each repetition in a process of its own; the fastest counts."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=1) as pool:
        return min(pool.submit(function, *arguments).result() for _ in range(repeats))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--jobs", type=int, nargs="+", default=[100_000])
    parser.add_argument("--policies", nargs="+", default=["fifo", "fifo-skip", "sjf", "srtf"])
    parser.add_argument("--load", type=float, default=0.9)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--rows", action="store_true", help="print rows of docs/performance.md")
    options = parser.parse_args()
    titles = f"{'jobs/s':>10}{'x bare SimPy':>14}{'growth':>8}{'writing':>9}{'memory':>10}{'waiting':>9}"
    if not options.rows:
        print(f"{'':<12}{'jobs':>11}{titles}")
    first: dict[str, float] = {}
    for count in options.jobs:
        bare = _least(options.repeats, bare_simpy, count, options.seed, options.load)
        costs = {"bare SimPy": bare}
        for policy in options.policies:
            arguments = (policy, count, options.seed, options.load, options.write)
            costs[policy] = _least(options.repeats, engine, *arguments)
        for name, cost in costs.items():
            if options.rows:
                ratio = f"{cost.seconds / bare.seconds:.1f} | {count / cost.seconds:,.0f}"
                print(f"| {name} | {count:,} | {ratio} | {cost.memory_gib:.2f} GiB |")
                continue
            growth = cost.seconds / first.setdefault(name, cost.seconds)
            print(
                f"{name:<12}{count:>11,}{count / cost.seconds:>10,.0f}{cost.seconds / bare.seconds:>14.1f}"
                f"{growth:>7.1f}x{cost.writing_s:>7.1f} s{cost.memory_gib:>6.2f} GiB{cost.waiting:>9,}"
            )


if __name__ == "__main__":
    main()
