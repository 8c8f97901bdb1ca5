"""What the default memory headroom costs the planners: seconds per iteration with it over those without.

    python benchmarks/memory_headroom.py

takes every model and batch of the rules `llm-mix` on 1 to 1,024 GPUs of a DGX A100 cluster.
"""

from __future__ import annotations

import argparse

import numpy as np

from itertime import PLANNERS, load_model, load_system, make_planner
from itertime.costs import MEMORY_HEADROOM
from traces.workload.rules import load_rules

SYSTEM = "dgx-a100-80gb"
COUNTS = tuple(1 << k for k in range(11))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.parse_args()
    rules, system = load_rules("llm-mix"), load_system(SYSTEM)
    jobs = sorted({(one.model, one.global_batch) for gpus in COUNTS[:7] for one in rules.choices(gpus) or ()})
    print("planner               curves  counts  slower  faster  mean     most     need more GPUs")
    for name in PLANNERS:
        whole, kept = (make_planner(name, system, memory_headroom=free) for free in (0.0, MEMORY_HEADROOM))
        ratios, need_more = [], 0
        for model, batch in jobs:
            before, after = (planner.curve(load_model(model), batch, COUNTS) for planner in (whole, kept))
            ratios += [after[count].iteration_s / before[count].iteration_s for count in after]
            need_more += min(after) > min(before)
        found = np.array(ratios)
        changed = (
            f"{(found > 1).sum():6}  {(found < 1).sum():6}  {found.mean() - 1:+7.1%}  {found.max() - 1:+7.1%}"
        )
        print(f"{name:20} {len(jobs):7}  {len(found):6}  {changed}  {need_more}")


if __name__ == "__main__":
    main()
