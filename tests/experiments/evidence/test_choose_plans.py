"""Choosing plans by prediction: groups and regret by hand, and what it costs on the measured sets."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from experiments.evidence import choose_plans as plans
from itertime.calibration import RunSet, read_table
from tests.places import TABLES

SETS = ("a100_bigscience", "a100_internevo_zero1", "a100_megatron_deepspeed")


def four_plans(write_table):
    """Two plans of which one ran twice, a run of another batch, and one of another number of layers."""
    rows = [
        {"id": "a", "tp": "8", "dp": "1", "pp": "1", "gpus": "8", "iteration_s": "10"},
        {"id": "b", "tp": "4", "dp": "2", "pp": "1", "gpus": "8", "iteration_s": "7"},
        {"id": "b2", "tp": "4", "dp": "2", "pp": "1", "gpus": "8", "iteration_s": "9"},
        {"id": "c", "tp": "2", "dp": "4", "pp": "1", "gpus": "8", "iteration_s": "1", "global_batch": "8"},
    ]
    return RunSet.of(list(read_table(write_table(*rows))))


def test_the_plans_of_a_choice_differ_and_their_work_does_not(write_table):
    (choice,) = plans.choices_of(four_plans(write_table), np.array([1.0, 2.0, 2.0, 0.5]))
    assert [plan.tp for plan in choice.plans] == [8, 4]
    assert choice.measured_s.tolist() == [10.0, 8.0]
    assert choice.predicted_s.tolist() == [1.0, 2.0]
    assert choice.regret == pytest.approx(0.25)
    assert replace(choice, predicted_s=np.array([2.0, 1.0])).regret == 0.0
    assert choice.only([0]) is None


def test_regret_over_choices(write_table):
    (choice,) = plans.choices_of(four_plans(write_table), np.array([1.0, 2.0, 2.0, 0.5]))
    found = plans.regret_of([choice, replace(choice, predicted_s=np.array([2.0, 1.0]))])
    assert (found.groups, found.plans) == (2, 4)
    assert (found.mean, found.most) == pytest.approx((12.5, 25.0))
    assert plans.regret_of([]) is None
    text = plans.report({"one": [choice]}, largest=1)
    assert text.splitlines()[-1].endswith("tp8 pp1 dp1 mb4 full +25 % over tp4 pp1 dp2 mb4 full")


def test_pipelines_that_are_not_reproduced_are_left_out(write_table):
    (choice,) = plans.choices_of(four_plans(write_table), np.array([1.0, 2.0, 2.0, 0.5]))
    assert plans.reproduced(choice) is choice
    odd = replace(choice, source="hf-h100")
    assert plans.reproduced(odd).plans == odd.plans
    assert plans.reproduced(replace(odd, plans=tuple(replace(plan, pp=2) for plan in odd.plans))) is None


def files(names):
    paths = [TABLES / f"{name}.csv" for name in names]
    if not all(path.exists() for path in paths):
        pytest.skip(f"{TABLES} is not here")
    return paths


def test_the_plan_predicted_best_is_at_most_three_percent_slower_on_a100():
    found = plans.summary(plans.regrets(files(SETS)))
    assert found["all"].groups >= 19
    assert found["all"].mean <= 3.0


def test_the_command(capsys):
    assert plans.main([str(path) for path in files(SETS[:1])]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[1].startswith("a100_bigscience")
    assert "all reproduced" in out
