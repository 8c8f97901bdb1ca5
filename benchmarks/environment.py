"""Steps a second of the Gymnasium environment, with the first possible action as FIFO takes it.

    python benchmarks/environment.py [TRACE] [--cluster n128g8] [--jobs 1000] [--repeats 5]

Without a trace, 1,000 LLM jobs are generated. An episode starts each job once, so it has as many steps as
jobs. Prints steps, CPU seconds of `step` and of `reset`, and what the same simulation takes without an agent.
"""

from __future__ import annotations

import argparse
from statistics import median
from time import process_time
from typing import Any

import gymnasium

import clustersim
import clustersim.gym


def episode(env: gymnasium.Env[Any, Any], seed: int) -> tuple[int, float, float]:
    """Steps, CPU seconds of `reset`, CPU seconds of all steps."""
    began = process_time()
    observation, _ = env.reset(seed=seed)
    ready = process_time()
    steps, over = 0, False
    while not over:
        mask = observation["action_mask"]
        mask[0] = 0
        observation, _, terminated, truncated, _ = env.step(int(mask.argmax()))
        steps, over = steps + 1, terminated or truncated
    return steps, ready - began, process_time() - ready


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace", nargs="?")
    parser.add_argument("--cluster", default="n128g8")
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--window", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    options = {"trace": given.trace, "jobs": given.jobs, "cluster": given.cluster, "window": given.window}
    env = gymnasium.make("clustersim/Cluster-v0", **options)
    episode(env, 0)  # plans are found once and kept
    found = [episode(env, 0) for _ in range(given.repeats)]
    steps = found[0][0]
    stepping, resetting = (median(one[i] for one in found) for i in (2, 1))
    print(
        f"{steps:,} steps; CPU seconds, median of {given.repeats}: "
        f"steps {stepping:.3f}, reset {resetting:.3f}"
    )
    print(f"{steps / stepping:,.0f} steps a second, {steps / (stepping + resetting):,.0f} with the reset")
    if given.trace:
        plain = []
        for _ in range(given.repeats):
            began = process_time()
            clustersim.run(given.trace, "fifo-skip", cluster=given.cluster, bound="none")
            plain.append(process_time() - began)
        print(f"the same trace under fifo-skip: {median(plain):.3f} CPU seconds, reading included")


if __name__ == "__main__":
    main()
