"""What two jobs on the same GPUs are worth: mean completion times without packing over those with it.

python -m experiments.packing
python -m experiments.packing --jobs 100 --loads 1.2 --slowdowns 1.3 --policies gandiva

Jobs are drawn as in Gavel's simulations (Narayanan et al., OSDI 2020, section 7.1): of 1, 2, 4 and 8 GPUs
with probabilities 0.7, 0.1, 0.15 and 0.05, for 10^x minutes alone, x uniform in [1.5, 3] for four of five
jobs and in [3, 4] for the others, with Poisson arrivals. They have no models: any two slow each other down by
the same factor, stated for each column. Nothing here was measured on GPUs.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from statistics import mean

import numpy as np

import clustersim
from traces.job import Job

GPUS = 32


def jobs_of(count: int, load: float, seed: int) -> list[Job]:
    """Jobs that ask for `load` times the GPU time of 32 GPUs while they arrive."""
    random = np.random.default_rng(seed)
    gpus = random.choice([1, 2, 4, 8], count, p=[0.7, 0.1, 0.15, 0.05])
    short = random.random(count) < 0.8
    exponent = np.where(short, random.uniform(1.5, 3.0, count), random.uniform(3.0, 4.0, count))
    run_s = np.round(60 * 10**exponent, 1)
    arrivals = np.cumsum(random.exponential(1.0, count))
    submit_s = np.round(arrivals * float(gpus @ run_s) / (load * GPUS) / float(arrivals[-1]), 1)
    return [
        Job(f"j{i}", float(submit_s[i]), gpus=int(gpus[i]), duration_s=float(run_s[i])) for i in range(count)
    ]


def mean_jct_h(policy: str, jobs: list[Job], slowdown: float, packing: bool) -> float:
    """Hours, with 10 s for each start."""
    run = clustersim.run(
        jobs, policy, cluster=f"n{GPUS // 8}g8", params={"packing": packing}, sharing={"slowdown": slowdown},
        overheads={"launch_s": 10.0}, bound="none",
    )  # fmt: skip
    return float(run.summary["jct_mean_s"]) / 3600


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--loads", type=float, nargs="+", default=[1.0, 1.6])
    parser.add_argument("--slowdowns", type=float, nargs="+", default=[1.1, 1.3, 1.6, 2.0])
    parser.add_argument("--policies", nargs="+", default=["gavel-max-min", "gavel-ftf", "gandiva"])
    options = parser.parse_args(arguments)
    columns = "".join(f" {slowdown:g} |" for slowdown in options.slowdowns)
    print(f"| policy | load | mean JCT alone, h |{columns}")
    print(f"|---|---|---|{'---|' * len(options.slowdowns)}", flush=True)
    for policy in options.policies:
        for load in options.loads:
            drawn = [jobs_of(options.jobs, load, seed) for seed in range(options.seeds)]
            alone = [mean_jct_h(policy, jobs, 1.0, False) for jobs in drawn]
            ratios = [
                mean(
                    one / mean_jct_h(policy, jobs, slowdown, True)
                    for one, jobs in zip(alone, drawn, strict=True)
                )
                for slowdown in options.slowdowns
            ]
            cells = "".join(f" {ratio:.2f} |" for ratio in ratios)
            print(f"| `{policy}` | {load:g} | {mean(alone):.1f} |{cells}", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
