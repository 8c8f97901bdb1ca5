"""Options of plans in searches and planners: all plans have them, and those that cannot are left out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from itertime import PLANNERS, Space, load_model, load_system, make_planner
from itertime.planning import WHOLE, search
from itertime.planning.curve_cache import CurveCache
from itertime.planning.space import candidates
from itertime.spec import DEFAULT_OPTIONS, PlanOptions, parse_options

SYSTEM, MODEL = load_system("dgx-a100-80gb"), load_model("llama2-7b")
BUCKET = PlanOptions(clipping="bucket")


def test_all_plans_of_a_search_have_the_options_of_the_space():
    found = search(MODEL, 32, SYSTEM, 16, space=replace(WHOLE, options=BUCKET), top=5)
    plain = search(MODEL, 32, SYSTEM, 16, space=WHOLE, top=5)
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
    kept = candidates(MODEL, 48, SYSTEM, space, range(1, 49))
    every = candidates(MODEL, 48, SYSTEM, replace(space, options=DEFAULT_OPTIONS), range(1, 49))
    plans = [replace(every.plan(row), options=options) for row in range(len(every))]
    good = [plan for plan in plans if not plan.broken_rules(MODEL)]
    assert 0 < len(good) < len(plans)
    assert [kept.plan(row) for row in range(len(kept))] == good


def test_a_search_tries_one_zero_stage_where_the_options_say_what_is_shared():
    options = parse_options("weight_shards=1,gradient_shards=8,optimizer_shards=16")
    found = search(MODEL, 32, SYSTEM, 16, space=replace(WHOLE, options=options), top=50)
    assert {one.plan.zero_stage for one in found.plans} == {0}
    assert len({one.plan for one in found.plans}) == len(found.plans)


@pytest.mark.parametrize(
    ("text", "gpus", "words"),
    [
        ("workers=7", 16, "workers=7: must divide dp"),
        ("optimizer_shards=7", 16, "optimizer_shards=7: must divide dp x cp / workers"),
        ("optimizer=lamb", 11, ""),  # no plan of 11 GPUs keeps the other rules
        ("optimizer=lamb", 16, ""),
    ],
)
def test_a_search_without_plans_says_which_option_is_in_the_way(text, gpus, words):
    found = search(MODEL, 32, SYSTEM, gpus, space=Space(options=parse_options(text)))
    assert found.in_the_way.startswith(words)
    assert bool(found.in_the_way) == bool(words)
    assert bool(found.evaluated) == (text == "optimizer=lamb" and gpus == 16)


@pytest.mark.parametrize("name", PLANNERS)
def test_planners_keep_the_options_of_jobs(name):
    planner = make_planner(name, SYSTEM, space=Space(micro_batch=(1,), recompute=("none",)))
    jobs = planner.under(options=BUCKET)
    run = jobs.curve(MODEL, 32, [16])[16]
    assert run.plan.options == BUCKET
    assert planner.curve(MODEL, 32, [16])[16].plan.options == DEFAULT_OPTIONS
    assert jobs is planner.under(options=BUCKET)
    assert planner.under() is planner.under(options=DEFAULT_OPTIONS) is planner
    assert jobs.under() is jobs
    other = planner.under("te", "fp8", BUCKET)
    assert (other.system.framework, other.space.precision, other.space.options) == ("te", "fp8", BUCKET)


def test_curves_of_options_are_kept_apart(tmp_path):
    cache = CurveCache(tmp_path)
    space = Space(micro_batch=(1,), recompute=("none",))
    planner = make_planner("3d", SYSTEM, space=space, cache=cache)
    first = planner.under(options=BUCKET).curve(MODEL, 32, [8])
    planner.curve(MODEL, 32, [8])
    assert len(list(tmp_path.glob("*.json"))) == 2
    again = make_planner("3d", SYSTEM, space=space, cache=cache).under(options=BUCKET)
    assert again.curve(MODEL, 32, [8]) == first
    assert len(list(tmp_path.glob("*.json"))) == 2


def test_curves_follow_the_lengths_of_a_file(tmp_path):
    """The model names the same file, of which the content changes: another curve is kept."""
    cache, file = CurveCache(tmp_path / "curves"), tmp_path / "samples.csv"
    space = Space(micro_batch=(1,), recompute=("none",))
    for text in ("tokens,sequences\n100,1\n", "tokens,sequences\n200,1\n"):
        file.write_text(text)
        model = replace(load_model("bert-large"), lengths=str(file))
        make_planner("3d", SYSTEM, space=space, cache=cache).curve(model, 32, [8])
    assert len(list((tmp_path / "curves").glob("*.json"))) == 2
