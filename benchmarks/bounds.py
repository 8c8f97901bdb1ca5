"""CPU seconds of the bounds by method, over those of a simulation, and how close they come to each other.

python benchmarks/bounds.py
python benchmarks/bounds.py --jobs 1000 --loads 0.8 1.3 2.5 --methods area quick prices
python benchmarks/bounds.py --loads 1.0 --prices
python benchmarks/bounds.py --jobs 1000000 --rigid --loads 0.9 --methods area --no-run

LLM jobs under the rules llm-mix, or rigid jobs of 1 to 64 GPUs, arrive as a Poisson stream on 1,024 GPUs,
with the default overheads. `x best` is a method's bound of the mean JCT over that of the last method. `x run`
is its time over that of a simulation under hesrpt (rigid: srtf), which other programs disturb as much.
`--prices` prints instead what GPU-seconds are worth, over (jobs in the system) / GPUs: percentiles over time.
"""

from __future__ import annotations

import argparse
from time import process_time

import numpy as np

from clustersim.bounds import METHODS, Instance, bound_of, instance_of, prices_of
from clustersim.cluster import Cluster
from clustersim.engine import RunSetup, Simulation
from clustersim.overheads import Overheads
from clustersim.runs import make_policy
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


def seconds_of_run(jobs: list[Job], speed: Speed, policy: str) -> float:
    setup = RunSetup(cluster=CLUSTER, scheduler=make_policy(policy, {}), speed=speed, overheads=OVERHEADS)
    began = process_time()
    Simulation(jobs, setup).run()
    return process_time() - began


def measured(instance: Instance, methods: list[str]) -> list[tuple[str, float, float]]:
    """(method, CPU seconds, bound of the mean JCT in seconds) of each method."""
    rows = []
    for method in methods:
        began = process_time()
        bound = bound_of(instance, method)
        rows.append((bound.method, process_time() - began, bound.jct_mean_s or 0.0))
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
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=["area", "quick", "prices"])
    parser.add_argument("--rigid", action="store_true")
    parser.add_argument("--no-run", action="store_true", help="leave out the simulation")
    parser.add_argument("--prices", action="store_true", help="the prices of GPU-seconds, not the times")
    args = parser.parse_args()
    if not args.prices:
        print(f"{'load':>5} {'method':>8} {'CPU s':>8} {'x run':>8} {'mean JCT s':>12} {'x best':>7}")
    for load in args.loads:
        speed = speed_for(CLUSTER, "vtrain")
        if args.rigid:
            jobs = rigid(args.jobs, load)
        else:
            recipe = Recipe(jobs=args.jobs, gpus=CLUSTER.gpus, arrivals="poisson", rules="llm-mix", load=load)
            jobs, _ = generate(recipe)
        instance = instance_of(jobs, CLUSTER, speed, OVERHEADS)
        if args.prices:
            print_prices(load, instance)
            continue
        run_s = 0.0 if args.no_run else seconds_of_run(jobs, speed, "srtf" if args.rigid else "hesrpt")
        rows = measured(instance, args.methods)
        for method, seconds, mean_s in rows:
            ratio = f"{seconds / run_s:8.2f}" if run_s else f"{'-':>8}"
            share = mean_s / rows[-1][2]
            print(f"{load:5.2f} {method:>8} {seconds:8.2f} {ratio} {mean_s:12.1f} {share:7.3f}", flush=True)


if __name__ == "__main__":
    main()
