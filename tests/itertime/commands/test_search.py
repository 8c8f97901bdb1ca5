"""`itertime search`: restrictions, dollars, the front, and the words that explain."""

from __future__ import annotations

import json

import numpy as np
import pytest

from itertime import evaluate, load_model, load_profile, load_system
from itertime.accuracy import errors_on
from itertime.cli import main
from itertime.planning import WHOLE, search, space
from itertime.planning.search import fitting_plans
from itertime.planning.space import candidates
from itertime.prediction import GROUPS, difference, in_words, where_time_goes
from tests.effort import first

SYSTEM, MODEL = load_system("dgx-a100-80gb"), load_model("megatron-18.4b")
SEARCH = ["search", "--model", "megatron-18.4b", "--system", "dgx-a100-80gb", "--global-batch", "256"]


SMALL = ["search", "--model", "llama2-7b", "--system", "dgx-a100-80gb", "--global-batch", "32"]


def plans_of(capsys, *more, search=SEARCH):
    assert main([*search, *more, "--json"]) == 0
    return json.loads(capsys.readouterr().out)["plans"]


@pytest.mark.parametrize(
    ("more", "key", "values"),
    first(
        5,
        [
            ([], "zero_stage", {0, 1, 2, 3}),
            ([], "sequence_parallel", {False, True}),
            (["--zero", "0,1,1"], "zero_stage", {0, 1}),
            (["--tp", "4"], "tp", {4}),
            (["--pp", "2,4"], "pp", {2, 4}),
            (["--micro-batch", "2"], "micro_batch", {2}),
            (["--pp", "4", "--interleave", "2,4"], "interleave", {2, 4}),
            (["--pp", "4"], "interleave", {1, 2, 4, 8}),
            (["--recompute", "full"], "recompute", {"full"}),
            (["--sequence-parallel"], "sequence_parallel", {True}),
            (["--no-sequence-parallel"], "sequence_parallel", {False}),
        ],
    ),
)
def test_every_choice_is_in_the_space_and_can_be_restricted(capsys, more, key, values):
    plans = plans_of(capsys, "--gpus", "8", "--top", "1000", *more, search=SMALL)
    assert {plan[key] for plan in plans} == values
    assert len({tuple(map(str, plan.values())) for plan in plans}) == len(plans)


def test_cost_is_dollars_at_the_price_and_says_what_makes_a_runner_up_dearer(capsys):
    best, *others = plans_of(
        capsys, "--max-gpus", "64", "--objective", "cost", "--price", "2.5", "--top", "9"
    )
    assert best["cost_usd"] == pytest.approx(best["gpus"] * best["iteration_s"] * 2.5 / 3600)
    assert best["worse_by"] == 0
    for plan in others:
        assert plan["worse_by"] == pytest.approx(plan["cost_usd"] - best["cost_usd"])
        assert sum(plan["worse_because"].values()) == pytest.approx(plan["worse_by"])


def test_the_front_is_every_plan_that_none_with_as_few_gpus_beats(capsys):
    front = plans_of(capsys, "--max-gpus", "64", "--pareto")
    plans = candidates(MODEL, 256, SYSTEM, WHOLE, range(1, 65))
    plans = fitting_plans(MODEL, plans, SYSTEM, load_profile(SYSTEM.profile))
    seconds, used = evaluate(MODEL, plans, SYSTEM).iteration_s, plans.gpus
    expected = [
        (int(gpus), seconds[used == gpus].min())
        for gpus in np.unique(used)
        if not (seconds[used < gpus] <= seconds[used == gpus].min()).any()
    ]
    assert [(plan["gpus"], plan["iteration_s"]) for plan in front[::-1]] == expected
    assert len(front) > 5


def test_large_errors_of_a_framework_are_said(capsys, monkeypatch):
    from itertime.accuracy import errors_by_gpu

    known = errors_on("h100-80gb", "te")
    monkeypatch.setattr(errors_by_gpu, "LARGE_PCT", known.mape_pct)
    where = ["--model", MODEL.name, "--system", "dgx-h100,framework=te", "--global-batch", "64"]
    assert main(["search", *where, "--gpus", "64"]) == 0
    printed = capsys.readouterr().out
    assert max(len(line) for line in printed.partition("warning:")[2].splitlines()) <= 100
    out = " ".join(printed.split())
    error = f"with framework te are unreliable: off by {known.mape_pct:.0f} % on average"
    assert f"warning: predictions on profile h100-80gb {error}" in out


def test_a_space_too_large_to_hold_is_refused(capsys, monkeypatch):
    monkeypatch.setattr(space, "MOST_PLANS", 10_000)
    assert main([*SEARCH, "--max-gpus", "1024"]) == 2
    assert "too many" in capsys.readouterr().err


def test_the_groups_cover_every_part_of_every_kind_of_plan_once():
    names = [name for parts in GROUPS.values() for name in parts]
    assert len(names) == len(set(names))
    for model in (MODEL, load_model("mixtral-8x7b"), load_model("llama2-7b")):
        for found in search(model, 256, SYSTEM, 64, space=WHOLE, top=100).plans:
            assert set(found.prediction.breakdown) <= set(names)
            groups = where_time_goes(found.prediction)
            assert sum(groups.values()) == pytest.approx(found.prediction.iteration_s, rel=1e-12)


def test_parts_too_small_to_matter_are_not_told():
    more = difference({"a": 1.0, "b": 1.0}, {"a": 3.0, "b": 1.001, "c": -1.0})
    assert in_words(more, " s") == "a +2 s, c -1 s"
    assert in_words(difference({}, {}), " s") == ""
