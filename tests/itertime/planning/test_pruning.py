"""Pruned and unpruned searches give the same answer; the whole space is searched."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from itertime import (
    Plan,
    Site,
    Space,
    evaluate,
    load_model,
    load_profile,
    load_system,
    make_planner,
    predict,
    search,
)
from itertime.planning import WHOLE
from itertime.planning.search import among_best, best_of_counts, fitting_plans, lower_bound_s, rank
from itertime.planning.space import candidates
from itertime.spec import PlanBatch

SYSTEM = load_system("dgx-a100-80gb")
PROFILE = load_profile(SYSTEM.profile)
CASES = [("megatron-18.4b", 1024, 512), ("llama2-7b", 512, 300), ("bert-large", 4096, 64)]
# (the last has interleaved plans in which the last chunk does not decide)


@cache
def fitting(name, batch, most):
    model = load_model(name)
    plans = candidates(model, batch, SYSTEM, WHOLE, range(1, most + 1))
    return model, fitting_plans(model, plans, SYSTEM, PROFILE)


@pytest.mark.parametrize("case", CASES)
def test_pruning_keeps_the_best_and_drops_some(case):
    model, plans = fitting(*case)
    kept = among_best(model, plans, SYSTEM, PROFILE, 10)
    every = rank(plans, evaluate(model, plans, SYSTEM, PROFILE))[:10]
    pruned = plans.take(kept)
    few = rank(pruned, evaluate(model, pruned, SYSTEM, PROFILE))[:10]
    assert kept[few].tolist() == every.tolist()
    assert len(kept) < 0.9 * len(plans)


@pytest.mark.parametrize("case", [*CASES[:-1], pytest.param(CASES[-1], marks=pytest.mark.long)])
def test_pruning_keeps_the_best_of_every_count(case):
    model, plans = fitting(*case)
    kept = best_of_counts(model, plans, SYSTEM, PROFILE)
    seconds = evaluate(model, plans, SYSTEM, PROFILE).iteration_s
    curve = make_planner("3d", SYSTEM, space=WHOLE).scaling_curve(model, case[1], case[2])
    for count, run in curve.items():
        within = plans.gpus <= count
        assert run.iteration_s == seconds[within].min() == seconds[kept][within[kept]].min()
    assert len(kept) < 0.9 * len(plans)


@pytest.mark.parametrize("launch_s", [20e-6, 500e-6])
def test_no_plan_is_faster_than_the_bound(launch_s):
    """Nor where the layers wait for their launches, and embedding and head hide behind that."""
    system = replace(SYSTEM, site=Site(launch_s=launch_s))
    rng = np.random.default_rng(3)
    for case in CASES:
        model, plans = fitting(*case)
        plans = plans.take(np.sort(rng.choice(len(plans), min(len(plans), 5000), replace=False)))
        bound = lower_bound_s(model, plans, system, PROFILE)
        assert (bound <= evaluate(model, plans, system, PROFILE).iteration_s).all()


def test_batched_results_equal_single_predictions_over_mixed_plans_of_the_whole_space():
    rng = np.random.default_rng(4)
    for name, batch, most in (*CASES, ("mixtral-8x7b", 256, 128), ("gpt3-175b", 1536, 512)):
        model = load_model(name)
        plans = candidates(model, batch, SYSTEM, WHOLE, range(1, most + 1))
        plans = plans.take(rng.choice(len(plans), 150, replace=False))
        together = evaluate(model, plans, SYSTEM)
        assert len({(plan.interleave > 1, plan.zero_stage, plan.recompute) for plan in _all(plans)}) > 4
        for row, plan in enumerate(_all(plans)):
            alone = predict(model, plan, SYSTEM)
            assert alone.iteration_s == pytest.approx(together.iteration_s[row], rel=1e-12)
            assert alone.memory_bytes == pytest.approx(together.memory.total[row], rel=1e-12)
            assert sum(alone.breakdown.values()) == pytest.approx(alone.iteration_s, rel=1e-12)


def _all(plans: PlanBatch) -> list[Plan]:
    return [plans.plan(row) for row in range(len(plans))]


def test_the_whole_space_has_every_interleaving_zero_stage_and_sequence_parallelism():
    model = load_model("megatron-18.4b")
    plans = candidates(model, 96, SYSTEM, WHOLE, range(1, 65))
    found = _all(plans)
    assert len(set(found)) == len(found)
    assert all(plan.broken_rules(model) == [] for plan in found)
    assert {plan.interleave for plan in found if plan.pp == 4} == {1, 2, 5, 10}  # of a stage's 10 layers
    assert {plan.interleave for plan in found if plan.pp == 8} == {1, 5}
    assert {plan.zero_stage for plan in found} == {0, 1, 2, 3}
    assert {plan.sequence_parallel for plan in found} == {False, True}
    wide, narrow = (search(model, 96, SYSTEM, 64, space=space).plans[0] for space in (WHOLE, Space()))
    assert wide.prediction.iteration_s < narrow.prediction.iteration_s
