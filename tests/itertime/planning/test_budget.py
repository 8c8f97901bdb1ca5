"""The largest model of a budget of GPU-days; days and dollars of a training."""

import json
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from itertime import load_model, load_system
from itertime.cli import main
from itertime.planning import (
    COUNTS,
    DAY_S,
    PARAMETRIC_LAWS,
    VTRAIN,
    Budget,
    Downtime,
    TrainingCost,
    published,
)
from itertime.planning.loss import ParametricLaw
from tests.places import ROOT

SYSTEM = load_system("dgx-a100-80gb")
COMMAND = [
    *("budget", "--system", "dgx-a100-80gb", "--gpus", "3360", "--days", "30", "--global-batch", "1680"),
    *("--memory-headroom", "0"),
]


FULL = replace(VTRAIN, recompute=("full",))


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
    found = budget(space=FULL).largest(published()).simulated
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


@pytest.mark.parametrize("law", PARAMETRIC_LAWS.values(), ids=PARAMETRIC_LAWS)
def test_no_other_size_has_a_lower_loss_for_the_flops(law: ParametricLaw) -> None:
    """Theory: of all N and D with 6 N D FLOPs, those with the law's tokens per parameter."""
    flops = 5.76e23
    best = math.log(flops / 6 / law.optimal_tokens_per_parameter(flops)) / 2
    sizes = np.exp(best + np.linspace(-1.0, 1.0, 21))
    losses = [law.nats(SimpleNamespace(parameters=n), flops / 6 / n) for n in sizes]  # type: ignore[arg-type]
    assert int(np.argmin(losses)) == 10


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


def test_command_prints_one_json_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*COMMAND, "--space", "vtrain", "--recompute", "full", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["published"]["naive"]["model"] == "megatron-145.6b"
    assert document["published"]["simulated"]["days"] <= 30
    largest = document["generated"]["simulated"]["parameters"]
    assert document["rule_parameters"] > largest >= 0.99 * document["published"]["simulated"]["parameters"]


@pytest.mark.parametrize(
    ("system", "options"),
    [
        ("dgx-a100-80gb", ["--space", "vtrain"]),
        ("dgx-a100-80gb", ["--space", "vtrain", "--recompute", "full"]),
        ("a100-80gb-800g", ["--rules", "vtrain", "--recompute", "full"]),
    ],
)
def test_page_shows_what_the_command_prints(
    system: str, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Regression: experiments/COMPUTE_OPTIMAL.md; run its commands and paste what they print to renew it."""
    command = [*COMMAND[:2], system, *COMMAND[3:], *options]
    assert main(command) == 0
    page = (ROOT / "experiments" / "COMPUTE_OPTIMAL.md").read_text(encoding="utf-8")
    assert f"itertime {' '.join(command)}\n" in page
    assert f"```text\n{capsys.readouterr().out}```" in page


PEAK = 312e12


def cost(**changes: Any) -> TrainingCost:
    given = {"model": load_model("gpt3-175b"), "system": SYSTEM, "tokens": 300e9, "gpus": 1024}
    return TrainingCost(**{**given, "usd_per_gpu_hour": 5.0, **changes})


@pytest.mark.parametrize(
    ("model", "tokens", "gpus", "flops_per_gpu", "days"),
    [("gpt3-175b", 300e9, 1024, 140e12, 34), ("megatron-1008b", 450e9, 3072, 163e12, 84)],
)
def test_published_days_of_training(
    model: str, tokens: float, gpus: int, flops_per_gpu: float, days: int
) -> None:
    """Published: Narayanan et al. (SC'21), section 5.1: 34 days for GPT-3 at 140 TFLOP/s a GPU, and 84 days
    for a trillion parameters at 163, by 8 T P / (n X).
    """
    training = cost(model=load_model(model), tokens=tokens, gpus=gpus, count="8nt")
    assert round(training.at(flops_per_gpu / PEAK).days) == days


def test_published_dollars() -> None:
    """Published: Bang et al. (MICRO 2024): MT-NLG on 2,240 GPUs costs $9.01M at $5 a GPU-hour. That is 33.5
    days, and so the utilisation that gives them gives the dollars.
    """
    training = cost(model=load_model("mt-nlg-530b"), tokens=270e9, gpus=2240)
    utilisation = training.flops / (2240 * PEAK * 33.52 * 86_400)
    assert training.at(utilisation).cost_usd / 1e6 == pytest.approx(9.01, abs=0.01)


def test_the_counts_by_hand() -> None:
    parameters = load_model("gpt3-175b").parameters
    by_count = {count: cost(count=count).flops / (parameters * 300e9) for count in COUNTS}
    assert by_count["6nt"] == pytest.approx(6)
    assert by_count["8nt"] == pytest.approx(8)
    assert 6 < by_count["model"] < 6.2, "attention adds s / 6h"


def test_half_the_utilisation_is_twice_the_days_and_dollars() -> None:
    low, high = cost().at(0.35), cost().at(0.7)
    assert low.days == pytest.approx(2 * high.days)
    assert low.cost_usd == pytest.approx(2 * high.cost_usd)
    assert high.cost_usd == pytest.approx(high.days * 24 * 1024 * 5)


def test_the_shares_of_a_trainings_time_add_up_and_its_goodput_is_what_meta_reports() -> None:
    """Published: "The Llama 3 Herd of Models" (2024), section 3.3.4: more than 90 % effective training time
    with an interruption every 2.8 hours, here for seconds of evaluation that are counted apart.
    """
    plain = cost(model=load_model("llama3.1-405b"), gpus=16_384)
    parts = cost(
        model=plain.model,
        gpus=plain.gpus,
        downtime=Downtime.of({"preset": "llama3", "evaluation_s": 36, "evaluation_every_s": 3600}),
    )
    goodput = parts.goodput
    shares = (goodput.share, goodput.checkpoint_share, goodput.interruption_share, goodput.evaluation_share)
    assert sum(shares) == pytest.approx(1)
    assert 0.9 < goodput.share < 0.92
    assert goodput.evaluation_share == pytest.approx(0.01 * goodput.share)
    assert goodput.mtbf_s / 3600 == pytest.approx(2.8, abs=0.02)
    assert parts.at(0.4).days == pytest.approx(plain.at(0.4).days / goodput.share)
    assert plain.goodput.share == 1


@pytest.mark.parametrize(
    ("name", "count"), [*(("gpt3-175b", count) for count in COUNTS), ("bert-large-wikipedia", "model")]
)
def test_the_prediction_lies_on_the_curve(name: str, count: str) -> None:
    """And by the FLOPs of the model its utilisation is the MFU of the plan, also where samples are padded."""
    training = cost(model=load_model(name), count=count)
    found = training.predicted(1536, FULL)
    assert found is not None
    point, plan = found
    assert training.at(point.utilisation).days == pytest.approx(point.days)
    assert point.days * DAY_S * plan.prediction.tokens_per_s == pytest.approx(training.tokens)
    assert plan.plan.gpus == 1024
    assert (point.utilisation == pytest.approx(plan.prediction.mfu)) == (count == "model")


# The command

COST = ["cost", "--model", "megatron-18.4b", "--gpus", "64", "--tokens", "1e10", "--recompute", "full"]


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    points = tmp_path / "points.csv"
    assert main([*COST, "--utilisation", "0.4:0.5:0.04", "--csv", str(points)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "megatron-18.4b, 10B tokens on 64 GPUs at $4 a GPU-hour, as system dgx-a100-80gb says"
    assert [line.split()[0] for line in lines[5:-2] if "predicted" not in line] == [
        "40.0%", "44.0%", "48.0%", "50.0%"
    ]  # fmt: skip
    assert sum(line.endswith("predicted") for line in lines) == 1
    assert main([*COST, "--utilisation", "0.4:0.5:0.04", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    rows = [row.split(",") for row in points.read_text().splitlines()]
    assert rows[0] == ["utilisation", "days", "cost_usd", "predicted"]
    wanted = [list(map(repr, point.values())) for point in (*found["points"], found["predicted"])]
    assert [row[:3] for row in rows[1:]] == wanted
    assert [row[3] for row in rows[1:]] == ["false"] * 4 + ["true"]
    assert found["predicted"]["utilisation"] == pytest.approx(found["plan"]["mfu"])


def test_the_figure_is_the_same_twice(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for name in ("a.png", "b.png"):
        assert main([*COST, "--plot", str(tmp_path / name)]) == 0
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    assert main([*COST, "--plot", str(tmp_path / "a.gif")]) == 2
