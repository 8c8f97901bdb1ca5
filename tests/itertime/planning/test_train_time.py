"""Time to train: its parts by hand, evaluations by MLPerf's rule, and what no table answers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from itertime import Plan, load_model, load_system, predict
from itertime.errors import UserError
from itertime.planning import StartUp, Steps, train_time
from itertime.planning.train_time import evaluation_s, steps_of
from itertime.spec import NO_EVALUATIONS, Evaluations, mlperf_evaluations

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
