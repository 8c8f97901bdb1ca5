"""Published: times to train of MLPerf's BERT on 1,024 A100s, rounds 1.1 and 2.0, by the plans of their logs.

Samsung 25.06 and 22.32 s, NVIDIA 33.45 and 25.25 s, Azure 39.38 s (mlcommons/training_results_v1.1, _v2.0).
Steps are an input, and nothing is fitted to these runs. Samsung's steps by the table are Samsung's own.
"""

from __future__ import annotations

import csv
import json
import re
import shlex
from functools import cache
from pathlib import Path

import pytest

from itertime import cli
from itertime.calibration import RunSet, read_table
from itertime.planning import Steps, TrainTime, load_convergence, train_time
from itertime.spec import mlperf_evaluations
from tests.places import ROOT

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
