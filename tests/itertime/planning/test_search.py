"""The search: complete, correct, pruned without a loss; planners: rules, curves, and curves kept on disk."""

import ast
import functools
import itertools
import json
import math
import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import itertime
from itertime import (
    PLANNERS,
    Plan,
    Planner,
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
from itertime.accuracy import errors_on
from itertime.calibration import validate
from itertime.commands.options import MEMORY_HEADROOM
from itertime.costs import MEMORY_HEADROOM as SHIPPED
from itertime.planning import VTRAIN, WHOLE, default_cache, judge
from itertime.planning import curve_cache as module
from itertime.planning.choice import Z, choice_among
from itertime.planning.curve_cache import CODE, CurveCache
from itertime.planning.lower_bound import lower_bound_s
from itertime.planning.search import among_best, best_of_counts, fitting_plans, rank
from itertime.planning.space import candidates, divisors
from itertime.spec import DEFAULT_OPTIONS, PlanBatch, PlanOptions, parse_options
from tests.iteration_table import table_of
from tests.tables import TABLES, table_rows

SYSTEM = load_system("dgx-a100-80gb")
OWN_PLANNERS = [name for name in PLANNERS if name != "vtrain-paper"]
"""Planners that predict by the rules of `itertime`."""
MODEL = load_model("megatron-18.4b")


def test_the_search_finds_the_best_of_every_plan_tried_by_hand():
    space = replace(VTRAIN, micro_batch=(1, 2, 4), recompute=("none", "full"))
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


def test_names_and_numbers_of_numpy_are_as_good() -> None:
    """In Python as on the command line, a space and what a planner needs have names."""
    plans = search("llama3-8b", np.int64(64), "dgx-h100", np.int64(8), space="vtrain", top=1).plans
    space = replace(VTRAIN, tp=np.array([1, 2, 4, 8]))
    assert search("llama3-8b", 64, "dgx-h100", 8, space=space, top=1).plans == plans
    plan = replace(plans[0].plan, tp=np.int32(plans[0].plan.tp))
    assert (plan, type(plan.gpus)) == (plans[0].plan, int)
    curve = make_planner("vtrain", "dgx-h100").curve("llama3-8b", 64, [8])
    assert curve[8].iteration_s == plans[0].prediction.iteration_s


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
    degrees = {"tp": (1, 2, 4), "pp": (1, 2), "ep": (1, 2, 4, 8), "etp": etp}
    space = replace(VTRAIN, micro_batch=(1,), recompute=("full",), **degrees)
    plans = candidates(mixture, 16, SYSTEM, space, (16,))
    found = {plans.plan(row) for row in range(len(plans))}
    shapes = [(tp, pp, 16 // tp // pp, ep) for tp in (1, 2, 4) for pp in (1, 2) for ep in (1, 2, 4, 8)]
    tried = [
        Plan(tp, pp, dp, 1, 16, ep=ep, etp=None if etp == tp else etp, sequence_parallel=tp > 1)
        for tp, pp, dp, ep in shapes
    ]
    assert {plan for plan in found if plan.sequence_parallel == (plan.tp > 1)} == {
        plan for plan in tried if plan.expert_tp == etp and not plan.broken_rules(mixture)
    }
    best = search(mixture, 16, SYSTEM, 16, space=space).plans[0]
    assert best.prediction.iteration_s == predict(mixture, best.plan, SYSTEM).iteration_s


def test_what_holds_for_all_plans_of_a_space_is_in_each_of_them() -> None:
    stated = TABLES["what holds for all plans of a space"]
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


@functools.cache
def fitting(name, batch, most, split=None, rules="itertime"):
    model = load_model(name)
    plans = candidates(model, batch, SYSTEM, replace(WHOLE, split=split, rules=rules), range(1, most + 1))
    return model, fitting_plans(model, plans, SYSTEM, PROFILE)


@pytest.mark.parametrize("case", CASES)
def test_pruning_keeps_the_best_and_drops_some(case):
    model, plans = fitting(*case)
    result = evaluate(model, plans, SYSTEM, PROFILE)
    for objective in ("time", "cost"):
        kept = among_best(model, plans, SYSTEM, PROFILE, 10, objective)
        pruned = plans.take(kept)
        few = rank(pruned, evaluate(model, pruned, SYSTEM, PROFILE), objective)[:10]
        assert kept[few].tolist() == rank(plans, result, objective)[:10].tolist()
        assert len(kept) < 0.2 * len(plans)


@pytest.mark.parametrize("case", [*CASES[:-1], pytest.param(CASES[-1], marks=pytest.mark.long)])
def test_pruning_keeps_the_best_of_every_count(case):
    model, plans = fitting(*case)
    kept = best_of_counts(model, plans, SYSTEM, PROFILE)
    seconds = evaluate(model, plans, SYSTEM, PROFILE).iteration_s
    curve = make_planner("vtrain", SYSTEM, space=WHOLE).scaling_curve(model, case[1], case[2])
    for count, run in curve.items():
        within = plans.gpus <= count
        assert run.iteration_s == seconds[within].min() == seconds[kept][within[kept]].min()
    assert len(kept) < 0.9 * len(plans)


@pytest.mark.parametrize(
    ("launch_s", "split"), [(20e-6, None), (500e-6, None), (20e-6, "compute"), (20e-6, "remainder")]
)
def test_no_plan_is_faster_than_the_bound(launch_s, split):
    """Nor where the layers wait for their launches, and embedding and head hide behind that, nor where a
    split leaves the last stages fewer layers.
    """
    system = replace(SYSTEM, site=Site(launch_s=launch_s))
    rng = np.random.default_rng(3)
    for case in CASES if split is None else [("qwen3-0.6b", 64, 16)]:
        model, plans = fitting(*case, split)
        count = min(len(plans), 5000 if split is None else 400)
        plans = plans.take(np.sort(rng.choice(len(plans), count, replace=False)))
        for overlap in (False, True):
            plans = replace(plans, grad_overlap=np.full(len(plans), overlap))
            bound = lower_bound_s(model, plans, system, PROFILE)
            seconds = evaluate(model, plans, system, PROFILE).iteration_s
            assert (bound <= seconds).all()
        assert launch_s > 1e-4 or np.median(bound / seconds) > (0.8 if split is None else 0.5)


@pytest.mark.parametrize(
    "stated", [{"schedule": name} for name in ("zb-h1", "zb-v", "dualpipe")] + [{"split": "1,8,9,10"}]
)
def test_nor_where_backward_passes_are_split_or_layers_listed(stated):
    """One plan alone is as in a batch of several."""
    model = load_model("qwen3-0.6b")
    space = Space(**stated, grad_overlap=True, recompute=("none",))
    plans = candidates(model, 64, SYSTEM, space, range(1, 65))
    assert len(plans) > 100
    plans = plans.take(np.sort(np.random.default_rng(5).choice(len(plans), 100, replace=False)))
    seconds = evaluate(model, plans, SYSTEM, PROFILE).iteration_s
    bound = lower_bound_s(model, plans, SYSTEM, PROFILE)
    assert (bound <= seconds).all()
    assert np.median(bound / seconds) > 0.2
    for row in (0, 40, 80):
        assert predict(model, plans.plan(row), SYSTEM, PROFILE).iteration_s == pytest.approx(
            seconds[row], rel=1e-9
        )


def test_a_search_by_the_rules_of_the_paper_looks_at_the_plans_that_they_know():
    """No bound exceeds the seconds, though the last stage repeats nothing and no repetition waits."""
    model, plans = fitting("megatron-18.4b", 512, 256, rules="vtrain")
    known = replace(VTRAIN, recompute=("none", "full"))
    of_paper = candidates(model, 512, SYSTEM, known, range(1, 257))
    assert len(plans) == len(fitting_plans(model, of_paper, SYSTEM, PROFILE))
    bound = lower_bound_s(model, plans, SYSTEM, PROFILE)
    ratios = bound / evaluate(model, plans, SYSTEM, PROFILE).iteration_s
    assert ratios.max() <= 1
    assert ratios.min() > 0.9
    found = search(model, 512, SYSTEM, 64, space=replace(WHOLE, rules="vtrain")).plans[0]
    assert found.plan == make_planner("vtrain-paper", SYSTEM).curve(model, 512, [64])[64].plan
    assert found.plan.label.endswith("vtrain-rules none")
    assert found.prediction == predict(model, found.plan, SYSTEM)
    assert found.prediction.interval_s is None


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
    wide, narrow = (search(model, 96, SYSTEM, 64, space=space).plans[0] for space in (WHOLE, VTRAIN))
    assert wide.prediction.iteration_s < narrow.prediction.iteration_s


CAPACITY = PROFILE.memory_bytes
TIGHT = Plan(tp=4, pp=2, dp=2, micro_batch=2, global_batch=128, recompute="none")


def test_the_commands_name_the_default_of_the_library() -> None:
    assert MEMORY_HEADROOM == SHIPPED == 0.07


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
        headroom: make_planner("vtrain", SYSTEM, cache=cache, memory_headroom=headroom).curve(
            MODEL, 128, [16, 64]
        )
        for headroom in (0.0, 0.3)
    }
    assert len(list(tmp_path.iterdir())) == 2
    for headroom, curve in kept.items():
        again = make_planner("vtrain", SYSTEM, cache=cache, memory_headroom=headroom)
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


@pytest.mark.parametrize("text", TABLES["candidates are those that keep the rules of the options"])
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


@pytest.mark.parametrize("name", OWN_PLANNERS)
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
        make_planner("vtrain", SYSTEM, space=space, cache=cache).curve(model, 32, [8])
    assert len(list((tmp_path / "curves").glob("*.json"))) == 2


COUNTS = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]
CURVES = [("megatron-18.4b", 1024), ("megatron-39.1b", 1536), ("llama2-7b", 512), ("bert-large", 4096)]


def curve(planner, name, batch, counts=COUNTS):
    return make_planner(planner, SYSTEM).curve(load_model(name), batch, counts)


@pytest.mark.parametrize("planner", PLANNERS)
@pytest.mark.parametrize(("name", "batch"), CURVES)
def test_a_curve_uses_at_most_its_gpus_fits_and_never_rises(planner, name, batch):
    found = curve(planner, name, batch)
    assert list(found) == sorted(found)
    assert set(found) <= set(COUNTS)
    assert max(found) == 1024
    last = float("inf")
    for count, run in found.items():
        assert run.gpus == run.plan.gpus <= count
        assert run.plan.broken_rules(load_model(name)) == []
        assert run.memory_bytes <= 85e9
        assert run.iteration_s <= last
        last = run.iteration_s


@pytest.mark.parametrize(("name", "batch"), CURVES)
def test_the_whole_space_is_never_slower(name, batch):
    """`best` has all plans of the others but those that keep the optimizer on the CPU."""
    best, vtrain, more = (curve(planner, name, batch) for planner in ("best", "vtrain", "reconfigurable"))
    for planner in OWN_PLANNERS:
        for count, run in curve(planner, name, batch).items():
            seconds = run.iteration_s * (1 + 1e-12)
            assert run.plan.offload_optimizer or best[count].iteration_s <= seconds
            assert planner == "best" or more[count].iteration_s <= seconds
            assert planner in ("best", "reconfigurable") or vtrain[count].iteration_s <= seconds


@pytest.mark.parametrize(("gpus", "batch"), [(1, 64), (2, 64), (8, 512)])
def test_reconfigurable_finds_the_fastest_of_all_its_plans(gpus, batch):
    """Every ZeRO stage with and without offloading, searched one by one."""
    model, fastest = load_model("llama2-7b"), []
    for zero in (0, 1, 2, 3):
        for offload in (False, True):
            space = replace(VTRAIN, zero_stage=(zero,), offload_optimizer=offload)
            runs = make_planner("vtrain", SYSTEM, space=space).curve(model, batch, [gpus])
            fastest += [run.iteration_s for run in runs.values()]
    found = curve("reconfigurable", "llama2-7b", batch, [gpus])[gpus]
    assert found.iteration_s == min(fastest)


def test_reconfigurable_runs_where_states_must_leave_the_gpu():
    """A model of 7B parameters has 112 GB of weights, gradients and states (ZeRO, SC 2020, section 3.1)."""
    assert 1 not in curve("vtrain", "llama2-7b", 64, [1])
    assert curve("reconfigurable", "llama2-7b", 64, [1])[1].plan.offload_optimizer


def test_a_small_memory_of_the_node_keeps_optimizers_on_the_gpus():
    """One GPU offloads 14 x 6.7e9 bytes, of which a share of 1/8 of 0.4 TB holds about half."""
    small = replace(SYSTEM, cpu_memory_bytes=0.4e12)
    found = make_planner("reconfigurable", small).curve(load_model("llama2-7b"), 64, [1, 2, 4])
    assert 1 not in found
    assert not found[2].plan.offload_optimizer or found[2].plan.zero_stage or found[2].plan.tp == 2


def test_data_parallel_keeps_tp_and_pp_and_micro_batch():
    plans = [
        run.plan
        for count, run in curve("data-parallel", "megatron-76.1b", 1792, [64, 128, 512, 1024]).items()
    ]
    assert {(plan.tp, plan.micro_batch) for plan in plans} == {(8, 1)}
    assert len({plan.pp for plan in plans}) == 1
    assert [plan.dp for plan in plans] == sorted(plan.dp for plan in plans)
    assert plans[-1].pp == 3  # the smallest pipeline that fits: 24 GPUs a replica
    assert curve("data-parallel", "megatron-76.1b", 1792, [16, 23]) == {}


def test_data_parallel_below_a_node_splits_the_model_over_all_gpus():
    plans = {count: run.plan for count, run in curve("data-parallel", "gpt3-1.3b", 512, [1, 2, 4, 8]).items()}
    assert {count: (plan.tp, plan.dp) for count, plan in plans.items()} == {n: (n, 1) for n in (1, 2, 4, 8)}


def test_a_frozen_plan_keeps_the_tp_and_pp_of_the_smallest_count():
    found = curve("data-parallel-best", "megatron-39.1b", 1536)
    assert len({(run.plan.tp, run.plan.pp) for run in found.values()}) == 1
    smallest = min(found)
    assert found[smallest].iteration_s == curve("vtrain", "megatron-39.1b", 1536)[smallest].iteration_s


def test_megatron_uses_no_pipeline_where_a_node_is_enough():
    small, large = curve("megatron", "gpt3-6.7b", 512), curve("megatron", "gpt3-175b", 1536)
    assert {run.plan.pp for run in small.values()} == {1}
    assert {run.plan.tp for run in large.values()} == {8}


def test_a_caller_cannot_spoil_what_the_planner_remembers():
    planner, model = make_planner("vtrain", SYSTEM), load_model("llama2-7b")
    planner.curve(model, 512, [64]).clear()
    assert 64 in planner.curve(model, 512, [64])


def test_one_plan_is_no_choice() -> None:
    choice = choice_among([3.0], 0.1)
    assert (choice.rivals, choice.optimism, choice.regret, choice.tied) == (1, 0.0, 0.0, 0)
    assert choice.margin == pytest.approx(math.exp(1.6449 * 0.1 * math.sqrt(2)) - 1, rel=1e-4)


@pytest.mark.parametrize("count", [2, 10, 200])
def test_equal_plans_have_the_optimism_of_the_largest_of_so_many_errors(count: int) -> None:
    """Theory: the largest of n normal errors; its mean exponential, by numerical integration."""
    sd = 0.05
    choice = choice_among(np.ones(count), sd, draws=20_000)
    at = np.linspace(-8, 8, 20_001)
    density = np.exp(-(at**2) / 2) / math.sqrt(2 * math.pi)
    below = np.cumsum(density) * (at[1] - at[0])
    largest = count * density * below ** (count - 1)
    expected = float((largest * np.exp(sd * at - sd**2 / 2)).sum() * (at[1] - at[0])) - 1
    assert choice.optimism == pytest.approx(expected, rel=0.03)
    assert choice.regret == 0.0
    assert (choice.rivals, choice.tied) == (count, count - 1)


def test_plans_far_behind_do_not_count() -> None:
    near = choice_among([1.0, 1.01], 0.05)
    assert choice_among([1.0, 1.01, 2.0, 50.0], 0.05) == near
    assert near.rivals == 2


@given(st.lists(st.floats(0.5, 2.0), min_size=1, max_size=30), st.floats(0.005, 0.2), st.floats(1e-3, 1e6))
def test_properties(values: list[float], sd: float, scale: float) -> None:
    """No unit and no order changes the choice; nothing is negative; the tied are rivals."""
    choice = choice_among(values, sd, draws=20)
    assert choice == choice_among(sorted(values), sd, draws=20)
    scaled = choice_among([value * scale for value in values], sd, draws=20)
    assert (scaled.rivals, scaled.optimism) == pytest.approx((choice.rivals, choice.optimism), abs=0.2)
    assert choice.regret >= 0
    assert 0 <= choice.tied < choice.rivals <= len(values)
    assert choice.tied == sum(value <= min(values) * math.exp(Z * sd * math.sqrt(2)) for value in values) - 1


UNIVERSES: dict[str, Callable[[np.random.Generator], np.ndarray]] = {
    "a few": lambda random: random.normal(0, 0.2, 10),
    "a bell": lambda random: random.normal(0, 0.3, 100),
    "a long tail": lambda random: -random.exponential(0.2, 300),
    "an edge": lambda random: random.uniform(0, 0.9, 100),
    "many": lambda random: random.normal(0, 0.2, 1000),
}


@pytest.mark.parametrize("name", UNIVERSES)
def test_the_estimate_is_what_choices_with_known_truth_suffer(name: str) -> None:
    """150 sets of plans with known true seconds, predicted with errors of 10 %.

    The estimate sees predictions alone. It lies within two fifths of the optimism and regret that the choices
    have on average, or a percentage point.
    """
    sd, random = 0.1, np.random.default_rng(1)
    happened, estimated = [], []
    for seed in range(150):
        true = UNIVERSES[name](random)
        error = random.normal(0, sd, len(true))
        predicted = true - error
        chosen = predicted.argmin()
        happened.append((np.exp(error[chosen] - sd**2 / 2) - 1, np.exp(true[chosen] - true.min()) - 1))
        choice = choice_among(np.exp(predicted), sd, seed=seed, draws=50)
        estimated.append((choice.optimism, choice.regret))
    for mine, theirs in zip(np.mean(estimated, axis=0), np.mean(happened, axis=0), strict=True):
        assert mine == pytest.approx(theirs, rel=0.4, abs=0.02)


@pytest.mark.parametrize("objective", ["time", "cost"])
def test_a_search_is_judged_by_all_its_plans(objective: str) -> None:
    """The plans that pruning leaves out, because they are slower than those shown, count as rivals."""
    known = errors_on(SYSTEM.profile, SYSTEM.framework)
    assert known is not None
    assert known.beside_sd is not None
    short = search(MODEL, 128, SYSTEM, max_gpus=64, space=WHOLE, objective=objective, top=1)
    plans = fitting_plans(
        MODEL, candidates(MODEL, 128, SYSTEM, WHOLE, range(1, 65)), SYSTEM, load_profile(SYSTEM.profile)
    )
    seconds = evaluate(MODEL, plans, SYSTEM).iteration_s
    judged = judge(MODEL, SYSTEM, short, objective)
    assert judged is not None
    expected = choice_among(seconds * (plans.gpus if objective == "cost" else 1), known.beside_sd)
    assert (judged.rivals, judged.tied, judged.margin) == (expected.rivals, expected.tied, expected.margin)
    assert judged.optimism == pytest.approx(expected.optimism, rel=1e-9)
    assert judged.rivals > 100


def test_nothing_is_said_where_nothing_is_known() -> None:
    v100 = load_system("dgx-h100,profile=v100-32gb")
    assert judge(MODEL, v100, search(MODEL, 128, v100, 64, space=Space())) is None
    huge = load_model("megatron-1008b")
    assert judge(huge, SYSTEM, search(huge, 8, SYSTEM, 8)) is None


PACKAGE = Path(itertime.__file__).parent


@pytest.fixture
def cache(tmp_path):
    return CurveCache(tmp_path / "curves")


def kept_planner(cache, name="vtrain", **changes):
    return make_planner(name, replace(SYSTEM, **changes), cache=cache)


def only_file(cache):
    (path,) = cache.folder.iterdir()
    return path


def forbid_planning(monkeypatch):
    def planned(*_):
        raise AssertionError("planned again")

    monkeypatch.setattr(Planner, "_planned", planned)


@pytest.mark.parametrize("name", PLANNERS)
def test_a_kept_curve_equals_the_computed_one_to_the_last_bit(cache, monkeypatch, name):
    without = make_planner(name, SYSTEM).scaling_curve(LLAMA, 512, 100)
    written = kept_planner(cache, name).scaling_curve(LLAMA, 512, 100)
    forbid_planning(monkeypatch)
    read = kept_planner(cache, name).scaling_curve(LLAMA, 512, 100)
    assert repr(without) == repr(written) == repr(read)
    assert [type(value) for value in vars(read[64]).values()] == [
        type(value) for value in vars(without[64]).values()
    ]


def test_that_nothing_fits_is_kept_too(cache, monkeypatch):
    big = load_model("gpt3-175b")
    assert kept_planner(cache).scaling_curve(big, 64, 8) == {}
    forbid_planning(monkeypatch)
    assert kept_planner(cache).scaling_curve(big, 64, 8) == {}


def changed(value):
    """Another value of the same type, for a key."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, tuple):
        return (*value, 1)
    if isinstance(value, PlanOptions):
        return replace(value, clipping="bucket")
    return "other" if value is None or isinstance(value, str) else replace(value, gemm_multiplier=1.5)


def test_everything_a_curve_depends_on_is_in_its_key(cache):
    profile = load_profile(SYSTEM.profile)
    base = ("vtrain", WHOLE, LLAMA, 512, range(1, 9), SYSTEM, profile.digest)
    keys = {cache.key(*base)}
    others = [("megatron", *base[1:]), (*base[:3], 513, *base[4:]), (*base[:4], range(1, 10), *base[5:])]
    for place, thing in ((1, WHOLE), (2, LLAMA), (5, SYSTEM)):
        for field in fields(thing):
            other = object.__new__(type(thing))
            other.__dict__.update(vars(thing), **{field.name: changed(getattr(thing, field.name))})
            others.append((*base[:place], other, *base[place + 1 :]))
    for field in fields(Site):
        other = object.__new__(Site)
        other.__dict__.update(vars(SYSTEM.site), **{field.name: changed(getattr(SYSTEM.site, field.name))})
        others.append((*base[:5], replace(SYSTEM, site=other), profile.digest))
    for field in fields(PlanOptions):
        other = object.__new__(PlanOptions)
        value = getattr(WHOLE.options, field.name)
        other.__dict__.update(vars(WHOLE.options), **{field.name: changed(value)})
        others.append((base[0], replace(WHOLE, options=other), *base[2:]))
    slower = replace(profile, launch_s=2 * profile.launch_s)
    keys |= {cache.key(*other) for other in others} | {cache.key(*base[:6], slower.digest)}
    assert len(keys) == len(others) + 2


# Modules that read files, report, or give intervals: no curve depends on them.
BESIDE = ("errors.py", "io/", "accuracy/")


def source_of(name: str) -> Path | None:
    """The file of a module of the package, if there is one of that name."""
    path = PACKAGE.parent.joinpath(*name.split("."))
    found = [file for file in (path.with_suffix(".py"), path / "__init__.py") if file.exists()]
    return found[0] if found else None


def test_the_code_in_the_key_is_all_code_that_plans():
    """Every module of the package that the kept_planner imports, directly or not, apart from `BESIDE`."""
    seen, waiting = set(), [Planner.__module__]
    while waiting:
        name = waiting.pop()
        path = source_of(name)
        if path is None or name in seen:
            continue
        seen.add(name)
        home = name.split(".")[: None if path.name == "__init__.py" else -1]
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                base = ".".join(home[: len(home) - node.level + 1]) + "." if node.level else ""
                source = f"{base}{node.module}"
                waiting += [source, *(f"{source}.{alias.name}" for alias in node.names)]
    paths = {source_of(name).relative_to(PACKAGE).as_posix() for name in seen - {"itertime"}}
    sources = {path for path in paths if not path.startswith(BESIDE)}
    covered = {
        source: [entry for entry in CODE if f"{source}/".startswith(f"{entry}/")] for source in sources
    }
    assert [source for source, entries in covered.items() if not entries] == []
    assert {entry for entries in covered.values() for entry in entries} == set(CODE)
    assert module.PACKAGE == PACKAGE


def test_the_hash_of_the_code_covers_modules_and_folders(tmp_path):
    def version() -> str:
        return module.source_hash(tmp_path, ["one.py", "folder"])

    (tmp_path / "folder" / "inner").mkdir(parents=True)
    for name in ("one.py", "other.py", "folder/two.py", "folder/inner/three.py"):
        (tmp_path / name).write_text("x = 1\n")
    versions = [version()]
    for name in ("one.py", "folder/two.py", "folder/inner/three.py", "folder/new.py"):
        (tmp_path / name).write_text("x = 2\n")
        versions.append(version())
    (tmp_path / "folder/new.py").rename(tmp_path / "folder/newer.py")
    versions.append(version())
    assert len(set(versions)) == len(versions)
    (tmp_path / "other.py").write_text("x = 2\n")
    (tmp_path / "folder/notes.txt").write_text("no code")
    assert version() == versions[-1]


def test_other_code_does_not_use_what_this_one_kept(cache, monkeypatch):
    kept_planner(cache).scaling_curve(LLAMA, 512, 8)
    monkeypatch.setattr(module, "code_version", lambda: "another")
    kept_planner(cache).scaling_curve(LLAMA, 512, 8)
    assert len(list(cache.folder.iterdir())) == 2


def damaged():
    def edit(path, change):
        head, _, body = path.read_bytes().partition(b"\n")
        rows = json.loads(body)
        change(rows)
        body = json.dumps(rows).encode()
        key = head.split()[1].decode()
        path.write_bytes(f"{module.MAGIC} {key} {module._digest(body)}\n".encode() + body)

    return {
        "empty": lambda path: path.write_bytes(b""),
        "cut": lambda path: path.write_bytes(path.read_bytes()[:-20]),
        "a digit": lambda path: path.write_bytes(path.read_bytes().replace(b"1", b"2", 300)),
        "not text": lambda path: path.write_bytes(b"\x80\x04\x95 pickled"),
        "another curve": lambda path: path.write_bytes(
            path.read_bytes().replace(path.stem.encode(), b"0" * 40)
        ),
        "a folder": lambda path: (path.unlink(), path.mkdir()),
        "a pipe": lambda path: (path.unlink(), os.mkfifo(path)),
        "too large": lambda path: path.open("ab").truncate(10**8),
        "no numbers": lambda path: edit(path, lambda rows: rows[0].__setitem__(2, "fast")),
        "negative": lambda path: edit(path, lambda rows: rows[0].__setitem__(2, -1.0)),
        "short": lambda path: edit(path, lambda rows: rows[0].pop()),
        "no rows": lambda path: edit(path, lambda rows: rows.__setitem__(0, 7)),
    }


@pytest.mark.parametrize("how", damaged())
def test_a_damaged_or_foreign_file_is_computed_again(cache, how):
    expected = kept_planner(cache).scaling_curve(LLAMA, 512, 64)
    path = only_file(cache)
    good = path.read_bytes()
    damaged()[how](path)
    assert kept_planner(cache).scaling_curve(LLAMA, 512, 64) == expected
    if how not in ("a folder", "a pipe"):  # which nothing of ours removes
        assert path.read_bytes() == good


def test_a_folder_that_cannot_be_used_is_no_error(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    found = kept_planner(CurveCache(tmp_path / "file" / "curves")).scaling_curve(LLAMA, 512, 8)
    assert found == kept_planner(None).scaling_curve(LLAMA, 512, 8)


def compute(folder):
    return repr(kept_planner(CurveCache(folder)).scaling_curve(LLAMA, 512, 64))


def test_two_processes_at_once_leave_one_good_file(cache):
    with ProcessPoolExecutor(2) as pool:
        answers = set(pool.map(compute, [cache.folder] * 6))
    assert answers == {repr(kept_planner(None).scaling_curve(LLAMA, 512, 64))}
    assert cache.load(only_file(cache).stem)


def test_the_least_recently_used_go_first_and_leftovers_with_them(cache, monkeypatch):
    monkeypatch.setattr(module, "MOST_FILES", 8)
    for number in range(8):
        cache.save(f"{number:040d}", {})
        os.utime(cache.folder / f"{number:040d}.json", (1000 + number, 1000 + number))
    assert cache.load(f"{0:040d}") == {}  # used again
    foreign = "notes.txt", ".hidden.tmp"
    for name in foreign:
        (cache.folder / name).write_text("mine")
    leftover = cache.folder / f".{9:040d}.json.77.tmp"
    leftover.write_text("half")
    os.utime(leftover, (time.time() - 7200,) * 2)
    cache.save(f"{8:040d}", {})
    kept = {path.name for path in cache.folder.iterdir()}
    assert kept == {f"{number:040d}.json" for number in (0, 4, 5, 6, 7, 8)} | set(foreign)


@pytest.mark.parametrize(("environment", "folder"), table_rows("folders of curves"))
def test_where_the_cache_is(monkeypatch, environment, folder):
    for name in ("ITERTIME_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    found = default_cache()
    assert (found and str(found.folder)) == folder
