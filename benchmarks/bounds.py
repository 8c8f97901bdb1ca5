"""CPU seconds of the bounds by method, over those of a simulation, and how close they come to each other.

python benchmarks/bounds.py
python benchmarks/bounds.py --jobs 1000 --loads 0.8 1.3 2.5 --methods area quick prices
python benchmarks/bounds.py --loads 1.0 --prices
python benchmarks/bounds.py --jobs 1000000 --rigid --loads 0.9 --methods area --no-run

LLM jobs under the rules llm-mix, or rigid jobs of 1 to 64 GPUs, arrive as a Poisson stream on 1,024 GPUs,
with the default overheads. `x best` is a method's bound of the mean JCT over that of the last method. `x run`
is its time over that of a simulation under hesrpt (rigid: srtf), which other programs disturb as much. `auto`
is the bound as that run has it, which ends where the run is within 1 % of `area`.
`--prices` prints instead what GPU-seconds are worth, over (jobs in the system) / GPUs: percentiles over time.
"""

from __future__ import annotations

import argparse
from time import process_time

import numpy as np

from clustersim.analysis import completion_times, deadlines, job_columns
from clustersim.bounds import METHODS, Instance, bound_of, instance_of, prices_of
from clustersim.cluster import Cluster
from clustersim.engine import RunSetup, Simulation
from clustersim.overheads import Overheads
from clustersim.records import MemoryRecorder
from clustersim.runs import best_possible, make_policy
from clustersim.speed import Speed, speed_for
from traces.job import Job
from traces.synthetic import Recipe, generate

CLUSTER = Cluster.parse("n128g8")
OVERHEADS = Overheads.of({}, CLUSTER.gpus)


def rigid(count: int, load: float, seed: int = 0) -> list[Job]:
    """Jobs of 1 to 64 GPUs with exponential run times of an hour on average."""
    rng = np.random.default_rng(seed)
    gpus = rng.choice([1, 2, 4, 8, 16, 32, 64], count, p=[0.30, 0.10, 0.10, 0.30, 0.10, 0.07, 0.03])
    run_s = rng.exponential(3600.0, count)
    submit_s = np.cumsum(rng.exponential(float(np.mean(gpus * run_s)) / (load * CLUSTER.gpus), count))
    columns = zip(submit_s.tolist(), gpus.tolist(), run_s.tolist(), strict=True)
    return [Job(str(i), at, gpus=n, duration_s=run) for i, (at, n, run) in enumerate(columns)]


def simulated(jobs: list[Job], speed: Speed, policy: str) -> tuple[float, MemoryRecorder]:
    """CPU seconds of a simulation, and its records."""
    setup = RunSetup(cluster=CLUSTER, scheduler=make_policy(policy, {}), speed=speed, overheads=OVERHEADS)
    recorder = MemoryRecorder(CLUSTER)
    began = process_time()
    Simulation(jobs, setup, recorder).run()
    return process_time() - began, recorder


def measured(
    jobs: list[Job], speed: Speed, recorder: MemoryRecorder | None, methods: list[str]
) -> list[tuple[str, float, float]]:
    """(method, CPU seconds, bound of the mean JCT in seconds) of each method."""
    instance = instance_of(jobs, CLUSTER, speed, OVERHEADS)
    rows = []
    for method in methods:
        began = process_time()
        if method == "auto" and recorder is not None:
            records = job_columns(recorder.job_table)
            values = completion_times(records) | deadlines(records)
            bound = best_possible(
                jobs, recorder.finished, CLUSTER, speed, OVERHEADS, method, run_values=values
            )
        else:
            bound = bound_of(instance, method)
        name = f"auto ({bound.method})" if method == "auto" else bound.method
        rows.append((name, process_time() - began, bound.jct_mean_s or 0.0))
    return rows


def print_prices(load: float, instance: Instance) -> None:
    """Price x GPUs / jobs in the system, while there is one: its 10th, 50th and 90th percentile over time."""
    prices = prices_of(instance)
    busy = prices.jobs >= 1.0
    ratio = prices.price[0, busy] * CLUSTER.gpus / prices.jobs[busy]
    order, span_s = np.argsort(ratio), np.diff(prices.edges_s)[busy]
    passed = np.cumsum(span_s[order]) / span_s.sum()
    low, middle, high = (ratio[order][np.searchsorted(passed, share)] for share in (0.1, 0.5, 0.9))
    print(f"load {load:.2f}: {low:.2f} {middle:.2f} {high:.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--loads", type=float, nargs="+", default=[0.8, 1.3])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=["area", "auto", "quick", "prices"])
    parser.add_argument("--rigid", action="store_true")
    parser.add_argument("--no-run", action="store_true", help="leave out the simulation")
    parser.add_argument("--rows", action="store_true", help="print rows of docs/performance.md")
    parser.add_argument("--prices", action="store_true", help="the prices of GPU-seconds, not the times")
    args = parser.parse_args()
    if not args.prices and not args.rows:
        print(f"{'load':>5} {'method':>12} {'CPU s':>8} {'x run':>8} {'mean JCT s':>12} {'x best':>7}")
    for load in args.loads:
        speed = speed_for(CLUSTER, "vtrain")
        if args.rigid:
            jobs = rigid(args.jobs, load)
        else:
            recipe = Recipe(jobs=args.jobs, gpus=CLUSTER.gpus, arrivals="poisson", rules="llm-mix", load=load)
            jobs, _ = generate(recipe)
        if args.prices:
            print_prices(load, instance_of(jobs, CLUSTER, speed, OVERHEADS))
            continue
        run_s, recorder = 0.0, None
        if not args.no_run:
            run_s, recorder = simulated(jobs, speed, "srtf" if args.rigid else "hesrpt")
        rows = measured(jobs, speed, recorder, args.methods)
        for method, seconds, mean_s in rows:
            ratio = f"{seconds / run_s:8.2f}" if run_s else f"{'-':>8}"
            if args.rows:
                kind = "rigid" if args.rigid else "LLM"
                print(f"| {args.jobs:,} {kind} jobs, load {load:g} | {method} | {seconds / run_s:.2f} |")
                continue
            share = mean_s / rows[-1][2]
            print(f"{load:5.2f} {method:>12} {seconds:8.2f} {ratio} {mean_s:12.1f} {share:7.3f}", flush=True)


if __name__ == "__main__":
    main()
