"""The search: complete, correct, pruned without a loss, with headroom of memory and options of plans."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from itertime import (
    PLANNERS,
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
from itertime.calibration import validate
from itertime.commands.options import MEMORY_HEADROOM
from itertime.costs import MEMORY_HEADROOM as SHIPPED
from itertime.planning import WHOLE
from itertime.planning.curve_cache import CurveCache
from itertime.planning.search import among_best, best_of_counts, fitting_plans, lower_bound_s, rank
from itertime.planning.space import candidates, divisors
from itertime.spec import DEFAULT_OPTIONS, PlanBatch, PlanOptions, parse_options
from tests.iteration_table import table_of
from tests.itertime.tables import TABLES, table_rows

SYSTEM = load_system("dgx-a100-80gb")
MODEL = load_model("megatron-18.4b")


def test_the_search_finds_the_best_of_every_plan_tried_by_hand():
    space = Space(micro_batch=(1, 2, 4), recompute=("none", "full"))
    best = None
    count = fits = 0
    choices = (1, 2, 4, 8), divisors(MODEL.layers), (1, 2, 4), ("none", "full")
    for tp, pp, size, recompute in itertools.product(*choices):
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


CAPACITY = PROFILE.memory_bytes
TIGHT = Plan(tp=4, pp=2, dp=2, micro_batch=2, global_batch=128, recompute="none")


def test_the_commands_name_the_default_of_the_library() -> None:
    assert MEMORY_HEADROOM == SHIPPED == 0.1


def test_search_finds_the_fastest_plan_that_leaves_the_headroom() -> None:
    """Brute force: of all plans of the space, those below the limit."""
    everything = search(MODEL, 64, SYSTEM, 8, space=WHOLE, top=10**6, memory_headroom=0.0)
    assert all(one.prediction.memory_bytes <= CAPACITY for one in everything.plans)
    for headroom in (0.1, 0.4):
        found = search(MODEL, 64, SYSTEM, 8, space=WHOLE, top=10**6, memory_headroom=headroom)
        limit = (1 - headroom) * CAPACITY
        expected = [one.plan for one in everything.plans if one.prediction.memory_bytes <= limit]
        assert [one.plan for one in found.plans] == expected
        assert found.feasible == len(expected)
        assert all(one.prediction.fits for one in found.plans)


@pytest.mark.parametrize("name", PLANNERS)
def test_planners_leave_the_headroom(name: str) -> None:
    for headroom in (0.0, 0.1, 0.3):
        curve = make_planner(name, SYSTEM, memory_headroom=headroom).scaling_curve(MODEL, 128, 64)
        assert curve
        assert max(run.memory_bytes for run in curve.values()) <= (1 - headroom) * CAPACITY


def test_curves_are_kept_by_headroom(tmp_path: Path) -> None:
    cache = CurveCache(tmp_path)
    kept = {
        headroom: make_planner("3d", SYSTEM, cache=cache, memory_headroom=headroom).curve(
            MODEL, 128, [16, 64]
        )
        for headroom in (0.0, 0.3)
    }
    assert len(list(tmp_path.iterdir())) == 2
    for headroom, curve in kept.items():
        again = make_planner("3d", SYSTEM, cache=cache, memory_headroom=headroom)
        assert again.curve(MODEL, 128, [16, 64]) == curve


def test_a_measured_run_needs_no_headroom(tmp_path: Path) -> None:
    """It ran, so the micro-batch that `validate` infers may fill the memory."""
    shape = ("layers", "hidden", "heads", "vocab", "seq_len", "attention")
    row = TABLES["full row"] | {column: getattr(MODEL, column) for column in shape}
    (found,) = validate(table_of(row, tmp_path)).predicted
    assert found.prediction.fits
    assert found.prediction.memory_bytes > 0.9 * CAPACITY
    assert not predict(MODEL, TIGHT, SYSTEM).fits


LLAMA = load_model("llama2-7b")
BUCKET = PlanOptions(clipping="bucket")


def test_all_plans_of_a_search_have_the_options_of_the_space():
    found = search(LLAMA, 32, SYSTEM, 16, space=replace(WHOLE, options=BUCKET), top=5)
    plain = search(LLAMA, 32, SYSTEM, 16, space=WHOLE, top=5)
    assert {one.plan.options for one in found.plans} == {BUCKET}
    assert {one.plan.options for one in plain.plans} == {DEFAULT_OPTIONS}
    assert 0 < found.evaluated < plain.evaluated  # ZeRO-2 and -3 scatter gradients before a rank clips them


@pytest.mark.parametrize(
    "text",
    [
        "compression=onebit-adam",
        "workers=3",
        "workers=4,local_steps=8",
        "compression=topk",
        "clipping=bucket",
    ],
)
def test_candidates_are_those_that_keep_the_rules_of_the_options(text):
    """The vectorised rules against `Plan.broken_rules`, plan by plan."""
    options = parse_options(text)
    space = replace(WHOLE, options=options, micro_batch=(1, 2), recompute=("none",))
    kept = candidates(LLAMA, 48, SYSTEM, space, range(1, 49))
    every = candidates(LLAMA, 48, SYSTEM, replace(space, options=DEFAULT_OPTIONS), range(1, 49))
    plans = [replace(every.plan(row), options=options) for row in range(len(every))]
    good = [plan for plan in plans if not plan.broken_rules(LLAMA)]
    assert 0 < len(good) < len(plans)
    assert [kept.plan(row) for row in range(len(kept))] == good


def test_a_search_tries_one_zero_stage_where_the_options_say_what_is_shared():
    options = parse_options("weight_shards=1,gradient_shards=8,optimizer_shards=16")
    found = search(LLAMA, 32, SYSTEM, 16, space=replace(WHOLE, options=options), top=50)
    assert {one.plan.zero_stage for one in found.plans} == {0}
    assert len({one.plan for one in found.plans}) == len(found.plans)


@pytest.mark.parametrize(("text", "gpus", "words"), table_rows("options in the way"))
def test_a_search_without_plans_says_which_option_is_in_the_way(text, gpus, words):
    found = search(LLAMA, 32, SYSTEM, gpus, space=Space(options=parse_options(text)))
    assert found.in_the_way.startswith(words)
    assert bool(found.in_the_way) == bool(words)
    assert bool(found.evaluated) == (text == "optimizer=lamb" and gpus == 16)


@pytest.mark.parametrize("name", PLANNERS)
def test_planners_keep_the_options_of_jobs(name):
    planner = make_planner(name, SYSTEM, space=Space(micro_batch=(1,), recompute=("none",)))
    jobs = planner.under(options=BUCKET)
    run = jobs.curve(LLAMA, 32, [16])[16]
    assert run.plan.options == BUCKET
    assert planner.curve(LLAMA, 32, [16])[16].plan.options == DEFAULT_OPTIONS
    assert jobs is planner.under(options=BUCKET)
    assert planner.under() is planner.under(options=DEFAULT_OPTIONS) is planner
    assert jobs.under() is jobs
    other = planner.under("te", "fp8", BUCKET)
    assert (other.system.framework, other.space.precision, other.space.options) == ("te", "fp8", BUCKET)


def test_curves_follow_the_lengths_of_a_file(tmp_path):
    """The model names the same file, of which the content changes: another curve is kept."""
    cache, file = CurveCache(tmp_path / "curves"), tmp_path / "samples.csv"
    space = Space(micro_batch=(1,), recompute=("none",))
    for text in ("tokens,sequences\n100,1\n", "tokens,sequences\n200,1\n"):
        file.write_text(text)
        model = replace(load_model("bert-large"), lengths=str(file))
        make_planner("3d", SYSTEM, space=space, cache=cache).curve(model, 32, [8])
    assert len(list((tmp_path / "curves").glob("*.json"))) == 2
