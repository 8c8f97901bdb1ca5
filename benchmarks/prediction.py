"""Milliseconds of one prediction; every plan is predicted once, so that no part of it is cached.

    python benchmarks/prediction.py --plans 200

What depends on lengths of samples is drawn once for a number of ranks and samples, before the time is taken.
Plans of each kind are drawn from a seeded generator. The first predictions of the process, which import and
load, are not counted. The output is the median, the 95th percentile and the best of each kind, in CPU time.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from time import process_time

import numpy as np

from itertime import ModelSpec, Plan, System, load_model, load_system, predict
from itertime.spec import PlanOptions

BASE = Plan(8, 8, 1, 1, 8)
KINDS: dict[str, dict[str, object]] = {
    "1f1b": {},
    "gpipe": {"schedule": "gpipe"},
    "uneven": {"pp": 7, "split": "balanced"},
    "uneven x3": {"pp": 9, "interleave": 3, "split": "remainder"},
    "interleaved": {"interleave": 2},
    "interleaved x5": {"interleave": 5},
    "zero-1, overlap": {"zero_stage": 1, "grad_overlap": True},
    "fsdp": {"pp": 1, "zero_stage": 3},
    "experts": {"ep": 2, "sequence_parallel": True},
    "fp8": {"precision": "fp8", "interleave": 5, "zero_stage": 1, "grad_overlap": True, "cp": 2},
    "mixture": {"tp": 1, "pp": 4, "ep": 8, "zero_stage": 1, "grad_overlap": True, "dispatcher": "hybridep"},
    "two kinds of layers": {
        "tp": 1, "pp": 4, "ep": 64, "zero_stage": 1, "grad_overlap": True, "precision": "mxfp8",
        "split": "remainder", "interleave": 4,
    },
    "packed": {"tp": 1, "pp": 2, "zero_stage": 1, "options": PlanOptions(batching="packed")},
    "unpadded": {"tp": 1, "pp": 1, "grad_overlap": True, "options": PlanOptions(batching="unpadded")},
    "balanced": {
        "tp": 1, "pp": 1, "grad_overlap": True,
        "options": PlanOptions(
            batching="unpadded", balance="stratified-exchanged", clipping="bucket", optimizer="fused-adam",
            compression="fp16",
        ),
    },
}  # fmt: skip
USUAL = "megatron-145.6b", "dgx-a100-80gb"
OTHERS = {
    "fp8": ("llama3-70b", "dgx-h100"),
    "mixture": ("qwen3-30b-a3b", "gb200-nvl72"),
    "two kinds of layers": ("deepseek-v3", "gb200-nvl72"),
    **dict.fromkeys(("packed", "unpadded", "balanced"), ("bert-large-wikipedia", "dgx-a100-80gb")),
}
"""Model and system of a kind, where they are not the usual ones."""


def setting(kind: str) -> tuple[ModelSpec, System]:
    """Model and system of a kind."""
    name, site = OTHERS.get(kind, USUAL)
    model = load_model(name)
    if kind == "experts":
        model = replace(model, experts=8, experts_per_token=2)
    return model, load_system(site)


def drawn(kind: str, model: ModelSpec, count: int, seed: int) -> list[Plan]:
    """Plans of one kind that keep the rules, with random dp, micro-batch, micro-batches and recompute."""
    rng = np.random.default_rng(seed)
    plans = []
    while len(plans) < count:
        dp, size, rounds = (int(value) for value in rng.integers((2, 1, 1), (33, 5, 25)))
        plan = replace(BASE, **KINDS[kind], recompute=str(rng.choice(["none", "selective", "full"])))
        dp *= max(2, plan.ep)
        plan = replace(plan, dp=dp, micro_batch=size, global_batch=dp * size * plan.pp * rounds)
        if not plan.broken_rules(model):
            plans.append(plan)
    return plans


def milliseconds(work: Callable[[], object]) -> float:
    started = process_time()
    work()
    return (process_time() - started) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plans", type=int, default=200, help="of each kind")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    logging.getLogger("itertime").setLevel(logging.ERROR)  # sizes beyond the profile's range
    print(f"{'kind':20}{'median ms':>10}{'p95 ms':>10}{'best ms':>10}")
    for kind in KINDS:
        model, system = setting(kind)
        plans = drawn(kind, model, options.plans + 5, options.seed)
        for plan in plans if model.lengths else ():
            predict(model, replace(plan, recompute="elementwise"), system)
        times = [milliseconds(partial(predict, model, plan, system)) for plan in plans]
        median, high = np.percentile(times[5:], [50, 95])
        print(f"{kind:20}{median:10.3f}{high:10.3f}{min(times[5:]):10.3f}")


if __name__ == "__main__":
    main()
