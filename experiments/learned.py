"""A policy that is learned in the Gymnasium environment, beside FIFO on streams that it has not seen.

    python -m experiments.learned

trains `LinearScheduler` by the cross-entropy method on streams of 200 LLM jobs and 128 A100s, and prints its
weights and mean JCTs on 20 other streams. About a minute on one core.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace

from clustersim import run
from clustersim.analysis.statistics import paired_difference
from clustersim.gym import JOB_FEATURES, ClusterEnv, LinearScheduler, learn
from traces.synthetic import Recipe, generate

CLUSTER, GPUS, WINDOW = "n16g8", 128, 32
RECIPE = Recipe(jobs=200, load=1.2, gpus=GPUS)
FIRST_SEED, SEEDS = 10_000, 20
OTHERS = ("fifo", "fifo-skip", "sjf", "srtf")


def main() -> None:
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    env = ClusterEnv(jobs=RECIPE.jobs, load=RECIPE.load or 1.0, cluster=CLUSTER, window=WINDOW)
    weights = [
        round(float(weight), 2)
        for weight in learn(
            env, on_generation=lambda g, r: print(f"generation {g}: {r:.0f}", file=sys.stderr)
        )
    ]
    sys.stdout.write(f"weights: {dict(zip(JOB_FEATURES, weights, strict=True))}\n\n{table(weights)}")


def table(weights: Sequence[float]) -> str:
    """Mean JCT of every policy, and its paired difference from FIFO with a 95 % interval."""

    class Learned(LinearScheduler):
        def __init__(self) -> None:
            super().__init__(weights, WINDOW)

    jct_s: dict[str, list[float]] = {}
    for seed in range(FIRST_SEED, FIRST_SEED + SEEDS):
        jobs = generate(replace(RECIPE, seed=seed))[0]
        for policy in (*OTHERS, Learned):
            name = policy if isinstance(policy, str) else "learned"
            summary = run(jobs, policy, cluster=CLUSTER, bound="none").summary
            jct_s.setdefault(name, []).append(summary["jct_mean_s"])
    rows = ["| policy | mean JCT, h | against fifo | 95 % |", "|---|---|---|---|"]
    for name, times in jct_s.items():
        mean_h = sum(times) / len(times) / 3600.0
        found = paired_difference(jct_s["fifo"], times)
        interval = (
            "" if found.relative_low is None else f"{found.relative_low:+.1%} to {found.relative_high:+.1%}"
        )
        relative = "" if found.relative is None else f"{found.relative:+.1%}"
        rows.append(f"| {name} | {mean_h:.2f} | {relative} | {interval} |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    main()
