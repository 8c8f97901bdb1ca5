"""Time to train: its parts by hand, evaluations by MLPerf's rule, steps by tables, and published times.

Published: times to train of MLPerf's BERT on 1,024 A100s, rounds 1.1 and 2.0, by the plans of their logs.
Samsung 25.06 and 22.32 s, NVIDIA 33.45 and 25.25 s, Azure 39.38 s (mlcommons/training_results_v1.1, _v2.0).
Steps are an input, and nothing is fitted to these runs. Samsung's steps by the table are Samsung's own.
"""

import csv
import json
import math
import re
import shlex
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from itertime import Plan, cli, load_model, load_system, predict
from itertime.calibration import RunSet, read_table
from itertime.errors import UserError
from itertime.planning import StartUp, Steps, TrainTime, list_convergence, load_convergence, train_time
from itertime.planning.convergence import Convergence, StepsRow, start_up
from itertime.planning.train_time import evaluation_s, steps_of
from itertime.spec import NO_EVALUATIONS, Evaluations, mlperf_evaluations
from tests.places import ROOT

SYSTEM, BERT = load_system("dgx-a100-80gb"), load_model("bert-large")
PLAN = Plan(tp=1, pp=1, dp=1024, micro_batch=16, global_batch=16_384, recompute="none", grad_overlap=True)
TABLED = "bert-large-wikipedia"


@pytest.mark.parametrize(
    ("global_batch", "samples"),
    [(256, 150_000), (768, 150_000), (3072, 175_000), (4096, 175_000), (13_888, 300_000), (16_384, 325_000)],
)
def test_the_interval_of_evaluations_is_that_of_the_rules(global_batch, samples):
    """FLOOR(0.05 (230.23 GBS + 3,000,000), 25,000), by hand: at 3,072 it is FLOOR(185,363) = 175,000."""
    assert mlperf_evaluations(global_batch) == Evaluations(samples, 10_000)


def test_logs_end_at_an_evaluation_of_the_rule(shared_dir):
    """Trainings on 1,024 GPUs ended after whole numbers of intervals: 912 steps of 3,072 are 16.01, 684.55 of
    4,096 are 16.02, and 179 of 16,384 are 9.02. This is what the rule is checked by.
    """
    for steps, batch, count in ((912, 3072, 16), (684.55, 4096, 16), (179, 16_384, 9)):
        rule = mlperf_evaluations(batch)
        assert steps * batch / rule.every == pytest.approx(count, abs=0.03)
        assert rule.count(steps * batch) == count


def test_a_training_is_start_up_steps_and_evaluations():
    found = train_time(
        BERT,
        PLAN,
        SYSTEM,
        steps=Steps(180, 170, 200, "logs", ("A",)),
        startup=StartUp(3.0, 2.0, 4.0, "logs"),
        evaluations=Evaluations(325_000, 10_000),
    )
    step_s = predict(BERT, PLAN, SYSTEM).iteration_s
    assert found.prediction == predict(BERT, PLAN, SYSTEM)
    assert found.evaluated == 9
    assert found.evaluation_s == evaluation_s(BERT, PLAN, SYSTEM, 10_000)
    assert found.parts == {
        "start-up": 3.0,
        "steps": 180 * step_s,
        "evaluations": 9 * found.evaluation_s,
    }
    assert found.seconds == sum(found.parts.values())
    trained = found.seconds - 3.0
    assert found.range_s == pytest.approx((2 + 170 / 180 * trained, 4 + 200 / 180 * trained))


def test_a_model_without_a_table_has_no_evaluations_unless_stated():
    found = train_time(BERT, PLAN, SYSTEM, steps=Steps.given(100), startup=StartUp.given(0))
    assert (found.evaluations, found.evaluated, found.evaluation_s) == (NO_EVALUATIONS, 0, 0.0)
    assert found.seconds == pytest.approx(100 * found.prediction.iteration_s)
    assert found.range_s == pytest.approx((found.seconds, found.seconds))


def test_start_up_is_that_of_logs_unless_stated():
    eager = train_time(BERT, PLAN, SYSTEM, steps=Steps.given(100))
    graph = train_time(BERT, replace(PLAN, cuda_graphs="full"), SYSTEM, steps=Steps.given(100))
    assert graph.start_up.seconds < 1 < eager.start_up.seconds < 4
    layers = train_time(BERT, replace(PLAN, cuda_graphs="layers"), SYSTEM, steps=Steps.given(100))
    assert layers.start_up == eager.start_up  # kernels are loaded one by one


def test_an_evaluation_is_a_forward_pass_on_a_share_of_the_samples():
    """Twice the samples on as many replicas take twice the micro-batches; ten samples a replica are one."""
    one, two = (evaluation_s(BERT, PLAN, SYSTEM, samples) for samples in (16 * 1024, 32 * 1024))
    assert two == pytest.approx(2 * one)
    assert evaluation_s(BERT, PLAN, SYSTEM, 10_000) < one
    compute = ("gemm", "attention", "elementwise", "embedding", "head")
    step = predict(BERT, PLAN, SYSTEM).breakdown
    assert 0.2 < one / sum(step[name] for name in compute) < 0.5  # a third: one pass of three


def test_an_evaluation_runs_through_the_pipeline():
    """Of p stages, each has a p-th of the layers, and the last micro-batch starts after all others."""
    model = load_model("megatron-18.4b")
    plan = Plan(tp=8, pp=4, dp=1, micro_batch=1, global_batch=16)
    whole = evaluation_s(model, replace(plan, pp=1), SYSTEM, 64)
    assert evaluation_s(model, plan, SYSTEM, 64) == pytest.approx(whole / 4 * 67 / 64, rel=0.1)


def test_a_changed_model_has_no_table():
    with pytest.raises(UserError, match=rf"model={TABLED}: .*differs.*--steps N"):
        steps_of(replace(load_model(TABLED), layers=12), PLAN)
    assert steps_of(replace(load_model(TABLED), attention="core"), PLAN).organisations == ("Samsung",)


def row(optimizer: str, batch: int, steps: float, organisations: tuple[str, ...] = ("A", "B")) -> StepsRow:
    return StepsRow(optimizer, batch, 5, "1.0", organisations, 0.9 * steps, steps, 1.2 * steps)


TABLE = Convergence("m", (row("lamb", 100, 1000.0), row("lamb", 400, 500.0, ("B", "C"))))


def test_a_batch_of_the_table_has_its_own_steps():
    found = TABLE.steps("lamb", 100)
    assert (found.count, found.low, found.high) == (1000.0, 900.0, 1200.0)
    assert found.origin == "5 logs (MLPerf 1.0, A, B) at 100"
    assert found.organisations == ("A", "B")


def test_between_two_batches_logarithms_are_linear():
    """Half-way between 100 and 400 in logarithms is 200, and between 1000 and 500 their geometric mean."""
    found = TABLE.steps("lamb", 200)
    assert found.count == pytest.approx(math.sqrt(1000 * 500))
    assert found.low == pytest.approx(0.9 * found.count)
    assert found.high == pytest.approx(1.2 * found.count)
    assert found.organisations == ("A", "B", "C")
    assert "at 100 and" in found.origin
    assert "logarithms linear" in found.origin
    nearer = TABLE.steps("lamb", 150)
    assert nearer.count == pytest.approx(1000 * 0.5 ** (math.log(1.5) / math.log(4)))


def test_the_shipped_table_has_the_optimizers_of_the_logs():
    """Adam at 16,384 comes from Samsung alone: what is predicted of its systems from it is not held out."""
    assert list_convergence() == ("bert-large-wikipedia",)
    table = load_convergence("bert-large-wikipedia")
    assert {each.optimizer for each in table.rows} == {"adam", "lamb"}
    assert table.steps("fused-adam", 16_384).organisations == ("Samsung",)
    assert table.steps("adamw", 16_384) == table.steps("adam", 16_384)
    with pytest.raises(UserError, match="at 16,384 alone"):
        table.steps("adam", 8192)


def test_published_steps_lie_within_the_ranges_of_the_table():
    """MLPerf logs: Samsung 179 and 189 steps of Adam at 16,384; NVIDIA 855 to 969 of LAMB at 3,072 and 641 to
    728 at 4,096 (single runs, of which a log is the median).
    """
    table = load_convergence("bert-large-wikipedia")
    for optimizer, batch, least, most in (
        ("adam", 16_384, 179, 189),
        ("lamb", 3072, 855, 969),
        ("lamb", 4096, 641, 728),
    ):
        found = table.steps(optimizer, batch)
        assert found.low <= most
        assert found.high >= least
        assert found.low < found.count < found.high


def test_start_up_is_shorter_with_one_graph_on_many_gpus():
    assert start_up(1024, one_graph=True).seconds < 1 < start_up(1024, one_graph=False).seconds < 4
    assert start_up(1, one_graph=False) == start_up(8, one_graph=False) != start_up(16, one_graph=False)
    for one_graph in (False, True):
        for gpus in (1, 8, 9, 64, 65, 100_000):
            found = start_up(gpus, one_graph)
            assert 0 <= found.low_s <= found.seconds <= found.high_s
            assert "logs" in found.origin
    assert start_up(1024, one_graph=False).organisations == ("Samsung",)
    assert "NVIDIA" in start_up(1024, one_graph=True).organisations


PUBLISHED_S = {
    ("1.1", "Samsung"): 25.06,
    ("1.1", "NVIDIA"): 33.45,
    ("1.1", "Azure"): 39.38,
    ("2.0", "Samsung"): 22.32,
    ("2.0", "NVIDIA"): 25.25,
}
TOLERANCE = 0.12


@pytest.fixture(scope="module")
def logs(shared_dir: Path) -> Path:
    path = shared_dir / "data" / "mlperf" / "bert_iterations.csv"
    if not path.is_file():
        pytest.skip(f"no logs of MLPerf at {path}")
    return path


@cache
def trainings(path: Path) -> dict[tuple[str, str], tuple[TrainTime, TrainTime]]:
    """By round and submitter: with the steps of the table, and with those of the log."""
    with path.open(encoding="utf-8") as file:
        steps = {row["id"]: float(row["steps_to_converge"]) for row in csv.DictReader(file)}
    runs = RunSet.of(read_table(path))
    table = load_convergence("bert-large-wikipedia")
    found = {}
    for cells, run in zip(runs.cells, runs.runs, strict=True):
        plan = run.plan
        if plan.gpus == 1024 and "A100" in cells["gpu"]:
            _, number, submitter, *_ = cells["id"].split("-")
            by_table = table.steps(plan.options.optimizer, plan.global_batch)
            found[number, submitter] = tuple(
                train_time(
                    run.model,
                    plan,
                    run.system,
                    steps=each,
                    evaluations=mlperf_evaluations(plan.global_batch),
                    profile=run.profile,
                )
                for each in (by_table, Steps.given(steps[cells["id"]]))
            )
    return found


@pytest.mark.parametrize(("number", "submitter"), PUBLISHED_S)
@pytest.mark.parametrize("which", [0, 1], ids=["table", "log"])
def test_the_published_times_are_met(logs, number, submitter, which):
    found = trainings(logs)[number, submitter][which]
    assert found.seconds == pytest.approx(PUBLISHED_S[number, submitter], rel=TOLERANCE)


@pytest.mark.parametrize("which", [0, 1], ids=["table", "log"])
def test_the_first_round_has_the_published_order(logs, which):
    seconds = [trainings(logs)["1.1", name][which].seconds for name in ("Samsung", "NVIDIA", "Azure")]
    assert seconds == sorted(seconds)


def documented() -> list[tuple[str, str]]:
    """Commands of the page on iteration times, each with the line of published seconds above it."""
    text = (ROOT / "docs" / "itertime.md").read_text(encoding="utf-8")
    return re.findall(r"^# (.*)\nitertime (train-time .*)$", text, flags=re.MULTILINE)


@pytest.mark.parametrize(("stated", "command"), documented())
def test_the_commands_of_the_page_meet_the_published_times(capsys, stated, command):
    assert cli.main([*shlex.split(command), "--json"]) == 0
    seconds = json.loads(capsys.readouterr().out)["train_s"]
    submitter, _, results = stated.partition(": ")
    for result in results.split(", "):
        number, published = result.split()
        assert float(published) == PUBLISHED_S[number.removeprefix("v"), submitter]
        assert seconds == pytest.approx(float(published), rel=TOLERANCE)


def test_the_page_has_every_submission():
    found = [
        (number, line.split(":")[0]) for line, _ in documented() for number in re.findall(r"v(\d\.\d)", line)
    ]
    assert sorted(found) == sorted(PUBLISHED_S)
