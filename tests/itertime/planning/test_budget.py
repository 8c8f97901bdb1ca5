"""The largest model of a budget of GPU-days."""

from __future__ import annotations

import json
import math

import pytest

from itertime import Space, load_system
from itertime.cli import main
from itertime.planning import Budget, generated, published
from tests.places import ROOT

SYSTEM = load_system("dgx-a100-80gb")
COMMAND = [
    *("budget", "--system", "dgx-a100-80gb", "--gpus", "3360", "--days", "30", "--global-batch", "1680"),
    *("--memory-headroom", "0"),
]


def budget(**changes: object) -> Budget:
    return Budget(**{"gpus": 3360, "days": 30.0, "global_batch": 1680, "system": SYSTEM} | changes)  # type: ignore[arg-type]


def test_naive_answer_is_the_published_one() -> None:
    """Published: Bang et al., MICRO 2024: 145.6B parameters and 2,912B tokens on 3,360 A100s in 30 days."""
    naive = budget().largest(published()).naive
    assert naive is not None
    assert naive.model.parameters / 1e9 == pytest.approx(145.6, abs=0.05)
    assert naive.tokens / 1e9 == pytest.approx(2912, abs=1)


def test_simulated_answer_is_the_published_one_under_full_recomputation() -> None:
    """Published: Bang et al., MICRO 2024: about 76B parameters and 1,521B tokens, plan (8, 70, 6).

    The global batch is not published; ours is divisible by 70.
    """
    found = budget(space=Space(recompute=("full",))).largest(published()).simulated
    assert found is not None
    assert found.fastest is not None
    assert found.model.parameters / 1e9 == pytest.approx(76, abs=0.5)
    assert found.tokens / 1e9 == pytest.approx(1521, abs=2)
    plan = found.fastest.plan
    assert (plan.tp, plan.dp, plan.pp) == (8, 70, 6)


def test_rule_fills_the_budget() -> None:
    """Theory: 6 N D FLOPs with D = 20 N."""
    parameters = budget().rule_parameters()
    assert 6 * 20 * parameters**2 == pytest.approx(3360 * 30 * 86400 * 312e12, rel=1e-3)


def test_days_are_the_iterations_of_the_plan() -> None:
    given = budget()
    training = given.train(published()[4])
    assert training.fastest is not None
    iteration_s, plan = training.fastest.prediction.iteration_s, training.fastest.plan
    assert plan.gpus <= 3360
    iterations = 20 * training.model.parameters / (1680 * 2048)
    assert training.days == pytest.approx(iterations * iteration_s / 86400)
    used = training.fastest.prediction.mfu * plan.gpus / 3360
    assert training.ideal_days == pytest.approx(training.days * used)


def test_the_answer_is_the_largest_in_time() -> None:
    given, shapes = budget(gpus=256, days=20.0, global_batch=512), published()
    answer = given.largest(list(reversed(shapes)))
    every = [given.train(shape) for shape in shapes]
    fitting = [training for training in every if training.days <= 20]
    assert answer.simulated == max(fitting, key=lambda training: training.model.parameters)
    ideal = [training for training in every if training.ideal_days <= 20]
    assert answer.naive == max(ideal, key=lambda training: training.model.parameters)


def test_a_model_without_a_plan_takes_forever() -> None:
    training = budget(gpus=8).train(published()[-1])
    assert training.fastest is None
    assert math.isinf(training.days)


def test_generated_shapes_are_distinct_and_within_the_published_proportions() -> None:
    shapes = generated()
    assert len({(shape.layers, shape.hidden) for shape in shapes}) == len(shapes) > 500
    assert all(96 <= shape.hidden / shape.layers <= 200 and shape.hidden % 1024 == 0 for shape in shapes)


def test_command_prints_one_json_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*COMMAND, "--recompute", "full", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["published"]["naive"]["model"] == "megatron-145.6b"
    assert document["published"]["simulated"]["days"] <= 30
    largest = document["generated"]["simulated"]["parameters"]
    assert document["rule_parameters"] > largest >= 0.99 * document["published"]["simulated"]["parameters"]


@pytest.mark.parametrize("options", [[], ["--recompute", "full"]])
def test_page_shows_what_the_command_prints(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Regression: experiments/COMPUTE_OPTIMAL.md; run its commands and paste what they print to renew it."""
    assert main([*COMMAND, *options]) == 0
    page = (ROOT / "experiments" / "COMPUTE_OPTIMAL.md").read_text(encoding="utf-8")
    assert f"itertime {' '.join([*COMMAND, *options])}\n" in page
    assert f"```text\n{capsys.readouterr().out}```" in page
