"""The search: complete, correct, deterministic."""

from __future__ import annotations

import pytest

from itertime import Plan, Space, load_model, load_system, predict, search
from itertime.planning.space import candidates, divisors

SYSTEM = load_system("dgx-a100-80gb")
MODEL = load_model("megatron-18.4b")


def test_the_search_finds_the_best_of_every_plan_tried_by_hand():
    space = Space(micro_batch=(1, 2, 4), recompute=("none", "full"))
    best = None
    count = fits = 0
    for tp in (1, 2, 4, 8):
        for pp in divisors(MODEL.layers):
            for size in (1, 2, 4):
                for recompute in ("none", "full"):
                    dp = 64 // (tp * pp)
                    plan = Plan(tp, pp, dp, size, 96, recompute=recompute)
                    if tp * pp * dp != 64 or plan.broken_rules(MODEL):
                        continue
                    run = predict(MODEL, plan, SYSTEM)
                    count, fits = count + 1, fits + run.fits
                    if run.fits and (best is None or run.iteration_s < best[0]):
                        best = (run.iteration_s, plan)
    result = search(MODEL, 96, SYSTEM, 64, space=space)
    assert best is not None
    assert (result.evaluated, result.feasible) == (count, fits)
    assert result.plans[0].plan == best[1]
    assert result.plans[0].prediction.iteration_s == pytest.approx(best[0], rel=1e-12)


def test_every_candidate_keeps_the_rules():
    space = Space(
        interleave=(1, 2, 5), zero_stage=(0, 1, 2, 3), sequence_parallel=(False, True), tp=(1, 2, 8, 16, 3)
    )
    plans = candidates(MODEL, 96, SYSTEM, space, range(1, 65))
    assert len(plans) > 500
    for row in range(0, len(plans), 7):
        assert plans.plan(row).broken_rules(MODEL) == []
        assert plans.plan(row).gpus <= 64
    assert len({plans.plan(row) for row in range(len(plans))}) == len(plans)


def test_a_choice_named_twice_is_one_choice():
    once, twice = (
        search(MODEL, 64, SYSTEM, gpus=16, space=Space(tp=tp, recompute=recompute))
        for tp, recompute in (((8,), ("full",)), ((8, 8), ("full", "full")))
    )
    assert once == twice


def test_candidates_of_a_mixture_keep_its_rules_and_spread_its_experts():
    mixture = load_model("mixtral-8x7b")
    space = Space(cp=(1, 2, 3), zero_stage=(0, 1))
    plans = candidates(mixture, 96, SYSTEM, space, range(1, 65))
    for row in range(len(plans)):
        assert plans.plan(row).broken_rules(mixture) == []
        assert plans.plan(row).gpus <= 64
    assert {(plan.cp, plan.ep) for plan in map(plans.plan, range(len(plans)))} == {
        (cp, ep) for cp in (1, 2) for ep in (1, 2, 4, 8)
    }
    best = search(mixture, 96, SYSTEM, 64, space=space).plans[0]
    assert best.plan.ep > 1  # 46 billion parameters
    assert best.prediction.iteration_s == predict(mixture, best.plan, SYSTEM).iteration_s


@pytest.mark.parametrize("etp", [1, 2, 4])
def test_candidates_with_experts_split_apart_are_all_that_keep_the_rules(etp: int) -> None:
    mixture = load_model("mixtral-8x7b")
    space = Space(tp=(1, 2, 4), pp=(1, 2), micro_batch=(1,), recompute=("full",), ep=(1, 2, 4, 8), etp=etp)
    plans = candidates(mixture, 16, SYSTEM, space, (16,))
    found = {plans.plan(row) for row in range(len(plans))}
    shapes = [(tp, pp, 16 // tp // pp, ep) for tp in (1, 2, 4) for pp in (1, 2) for ep in (1, 2, 4, 8)]
    tried = [
        Plan(tp, pp, dp, 1, 16, ep=ep, etp=None if etp == tp else etp, sequence_parallel=tp > 1)
        for tp, pp, dp, ep in shapes
    ]
    assert {plan for plan in found if plan.sequence_parallel == (plan.tp > 1)} == {
        plan for plan in tried if not plan.broken_rules(mixture)
    }
    best = search(mixture, 16, SYSTEM, 16, space=space).plans[0]
    assert best.prediction.iteration_s == predict(mixture, best.plan, SYSTEM).iteration_s


def test_what_holds_for_all_plans_of_a_space_is_in_each_of_them() -> None:
    stated = {
        "dispatcher": "deepep",
        "cuda_graphs": "full",
        "ep_overlap": True,
        "tp_overlap": False,
        "etp": 1,
    }
    space = Space(tp=(2, 4), micro_batch=(1,), recompute=("full",), **stated)
    mixture, system = load_model("mixtral-8x7b"), load_system("dgx-h100")
    found = search(mixture, 64, system, 64, space=space).plans
    assert found
    for entry in found:
        assert {name: getattr(entry.plan, name) for name in stated} == stated
        assert entry.plan.broken_rules(mixture) == []
        alone = predict(mixture, entry.plan, system).iteration_s
        assert entry.prediction.iteration_s == pytest.approx(alone, rel=1e-12)


def test_runners_up_follow_in_order_and_all_fit():
    found = search(MODEL, 1024, SYSTEM, max_gpus=128, top=50).plans
    times = [entry.prediction.iteration_s for entry in found]
    assert times == sorted(times)
    assert all(entry.prediction.fits and entry.plan.gpus <= 128 for entry in found)


def test_nothing_fits_is_an_answer():
    result = search(load_model("gpt3-175b"), 64, SYSTEM, 8)
    assert result.plans == ()
    assert result.feasible == 0 < result.evaluated
