"""The table of balancing: that of the page is what the program prints."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from experiments.evidence import choose_plans as plans
from experiments.evidence.balance_table import imbalances, main
from itertime.calibration import RunSet, read_table
from itertime.cli import main as itertime
from itertime.spec import Lengths, load_lengths
from tests.places import ROOT, TABLES

NUMBER = re.compile(r"\d[\d,]*\.?\d*")


def test_the_page_shows_what_the_program_prints(capsys: pytest.CaptureFixture[str]) -> None:
    """Numbers within a unit of their last digit but one; the last bits of sums differ between CPUs."""
    assert main(["wikipedia-512"]) == 0
    printed = capsys.readouterr().out
    shown = (ROOT / "docs" / "balancing.md").read_text().split("```text\n")[1].split("```")[0]
    assert NUMBER.sub("#", shown) == NUMBER.sub("#", printed)
    numbers = [[float(each.replace(",", "")) for each in NUMBER.findall(text)] for text in (shown, printed)]
    assert numbers[0] == pytest.approx(numbers[1], rel=1e-3, abs=2e-3)


def test_work_is_over_the_mean_without_padding() -> None:
    found = imbalances(load_lengths("wikipedia-512"), 64, 8, 8, 512, 1024)
    assert found["as drawn"].average == pytest.approx(1)
    assert found["sorted over all ranks"].average == pytest.approx(1)
    assert found["padded"].mean == pytest.approx(2.04, abs=0.01)
    assert 1 < found["packed rows, as drawn"].average < 1.05
    equal = imbalances(Lengths("e", "e", (1, 2, 3, 4), (0.25,) * 4), 4, 4, 2, 4, 64)
    assert equal["stratified"].imbalance == pytest.approx(1)  # one sample of each length


def test_bad_input_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["wikipedia-512", "--seq-len", "256"]) == 3
    assert "lengths" in capsys.readouterr().err
    assert main(["wikipedia-512", "--samples", "2"]) == 2
    assert "at least one from each of 4 bins" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["wikipedia-512", "--ranks", "0"])


def test_the_command_of_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """Balancing by strata and exchange beats padding, and what is drawn shows as a spread."""
    page = (ROOT / "docs" / "balancing.md").read_text()
    (line,) = [line for line in page.splitlines() if line.startswith("    itertime ")]
    words = line.split()[1:]
    assert itertime([*words, "--json"]) == 0
    balanced = json.loads(capsys.readouterr().out)
    assert itertime([*words[:-2], "--json"]) == 0
    padded = json.loads(capsys.readouterr().out)
    assert balanced["iteration_s"] < 0.8 * padded["iteration_s"]
    low, high = balanced["spread_s"]
    assert low < balanced["iteration_s"] < high
    assert 0 < balanced["breakdown"]["imbalance"] < 0.1 * balanced["iteration_s"]


# Plans that are chosen


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
