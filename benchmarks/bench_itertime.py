"""Speed of itertime: predictions, the recurrences, batches of plans, search, scaling curves.

    python -m pytest benchmarks/bench_itertime.py --benchmark-timer=time.process_time

needs the extra `bench`. Times are CPU seconds of this process; no test depends on them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from experiments.mt_nlg_cost import study
from itertime import evaluate, load_model, load_profile, load_system, make_planner, predict, search
from itertime.planning import WHOLE
from itertime.planning.curve_cache import CurveCache
from itertime.planning.space import candidates
from itertime.schedule.recurrences import interleaved_s, one_f_one_b_s

from .prediction import KINDS, drawn, setting

SYSTEM = load_system("dgx-a100-80gb")
PROFILE = load_profile(SYSTEM.profile)
SMALL, MIDDLE = (load_model(name) for name in ("megatron-39.1b", "megatron-145.6b"))
Count = Callable[[str], None]
logging.getLogger("itertime").setLevel(logging.ERROR)  # sizes beyond the profile's range


def fastest(benchmark: Any) -> float:
    """Seconds of the fastest round."""
    return float(benchmark.stats.stats.min)


@pytest.mark.parametrize("kind", KINDS)
def test_cold_prediction(benchmark: Any, kind: str, counted: Count) -> None:
    """Every plan is predicted once."""
    model, system = setting(kind)
    plans = iter(drawn(kind, model, 200, 0))

    def one() -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (model, next(plans), system), {}

    benchmark.pedantic(predict, setup=one, rounds=150, warmup_rounds=20)
    counted(f"cold prediction, {kind}: median {benchmark.stats.stats.median * 1e3:.3f} ms")


def test_warm_prediction(benchmark: Any) -> None:
    plan = drawn("1f1b", MIDDLE, 1, 0)[0]
    benchmark(predict, MIDDLE, plan, SYSTEM)


@pytest.mark.parametrize("plans", [1, 1000])
def test_1f1b_recurrence(benchmark: Any, plans: int, counted: Count) -> None:
    """35 stages and 160 micro-batches, with random seconds to prevent an early period. A step has two passes,
    each a maximum and a sum.
    """
    rng = np.random.default_rng(0)
    forward, backward = rng.random((2, plans, 35))
    benchmark(one_f_one_b_s, forward, backward, 160)
    steps = 2 * 35 * 160 * plans
    counted(
        f"1F1B recurrence, {plans} plans: {fastest(benchmark) / steps * 1e9:.2f} ns per max-plus operation"
    )


def test_interleaved_recurrence(benchmark: Any, counted: Count) -> None:
    rng = np.random.default_rng(0)
    forward, backward = rng.random((2, 100, 8, 4))
    benchmark(interleaved_s, forward, backward, 64)
    steps = 2 * 8 * 4 * 64 * 100
    counted(f"interleaved recurrence: {fastest(benchmark) / steps * 1e9:.2f} ns per max-plus operation")


def test_ten_thousand_mixed_plans(benchmark: Any, counted: Count) -> None:
    """Plans of the whole space, with stage costs, schedules and memory."""
    plans = candidates(SMALL, 1536, SYSTEM, WHOLE, range(1, 1025))
    plans = plans.take(np.random.default_rng(0).choice(len(plans), 10_000, replace=False))
    kinds = np.unique(np.stack([plans.interleave > 1, plans.zero_stage, plans.recompute]), axis=1).shape[1]
    benchmark(evaluate, SMALL, plans, SYSTEM, PROFILE)
    counted(f"10,000 plans of {kinds} kinds: {10_000 / fastest(benchmark):,.0f} exact evaluations/s")


def test_mt_nlg_study(benchmark: Any, counted: Count) -> None:
    """List and evaluate vTrain's design space."""
    found = study()
    benchmark(study)
    counted(f"MT-NLG study: {len(found.plans)} plans in {fastest(benchmark) * 1e3:.1f} ms")


@pytest.mark.parametrize("objective", ["time", "cost", "pareto"])
def test_search(benchmark: Any, objective: str, counted: Count) -> None:
    def run() -> int:
        return search(SMALL, 1536, SYSTEM, max_gpus=1024, space=WHOLE, objective=objective, top=10).evaluated

    plans = benchmark(run)
    counted(f"search by {objective}: {plans:,} plans, {plans / fastest(benchmark):,.0f} plans/s")


@pytest.mark.parametrize("space", ["vTrain's", "whole"])
def test_scaling_curve_cold(benchmark: Any, space: str, counted: Count) -> None:
    """A model of 39B parameters at all GPU counts up to 1,024."""
    chosen = WHOLE if space == "whole" else None

    def curve() -> int:
        return len(make_planner("vtrain", SYSTEM, space=chosen).scaling_curve(SMALL, 1536, 1024))

    counts = benchmark(curve)
    counted(f"scaling curve, {space} space: {counts} counts in {fastest(benchmark) * 1e3:.1f} ms")


def test_scaling_curve_from_disk(benchmark: Any, counted: Count, tmp_path: Any) -> None:
    cache = CurveCache(tmp_path)

    def curve() -> int:
        return len(make_planner("vtrain", SYSTEM, space=WHOLE, cache=cache).scaling_curve(SMALL, 1536, 1024))

    curve()
    counts = benchmark(curve)
    counted(f"scaling curve from disk: {counts} counts in {fastest(benchmark) * 1e3:.2f} ms")
