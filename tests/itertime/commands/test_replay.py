"""Every plan that is shown can be predicted again by the command that is shown with it."""

import json
import random
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from itertime import Plan
from itertime.cli import app, main
from itertime.commands.layout import PlanLayout, chosen_plan, predict_command
from itertime.commands.options import Execution, Subject
from itertime.spec import CHOICES, parse_options
from tests.effort import first
from tests.tables import TABLES

MODELS = ("llama3-8b", "gpt3-6.7b", "mixtral-8x7b")
PREDICT = typer.main.get_command(app).commands["predict"]  # type: ignore[attr-defined]
GROUPS = (Subject, PlanLayout, Execution)


def drawn_plan(draw: random.Random, model: str) -> Plan:
    table = CHOICES | TABLES["values of drawn plans"]
    values = {name: draw.choice(choices) for name, choices in table.items()}
    experts = {} if model == "mixtral-8x7b" else {"ep": 1, "etp": None}
    return Plan(**values | experts | {"options": parse_options(values["options"])})


def drawn_subject(draw: random.Random, model: str, global_batch: int) -> Subject:
    return Subject(
        model=model,
        system="dgx-h100",
        global_batch=global_batch,
        seq_len=draw.choice([None, 2048]),
        attention=draw.choice([None, "flash"]),
        framework=draw.choice([None, "eager"]),
        settings=draw.choice([None, ["model.layers=32", "system.nic_gbps=800"]]),
    )


def parsed(command: str) -> tuple[Any, ...]:
    """The groups of options that a command line of `predict` states."""
    program, name, *words = shlex.split(command)
    assert (program, name) == ("itertime", "predict")
    values = PREDICT.make_context("predict", words).params
    return tuple(group(**{key: values[key] for key in group.__dataclass_fields__}) for group in GROUPS)


@pytest.mark.parametrize("seed", first(1, range(120)))
def test_a_command_states_its_plan_whatever_it_is(seed: int) -> None:
    draw = random.Random(seed)
    plans = 0
    while plans < 20:
        name = draw.choice(MODELS)
        plan = drawn_plan(draw, name)
        subject = drawn_subject(draw, name, plan.global_batch)
        model, system = subject.read_model(), subject.read_system()
        if plan.broken_rules(model):
            continue
        plans += 1
        command = predict_command(subject, plan)
        subject_again, layout, execution = parsed(command)
        assert predict_command(subject_again, plan) == command
        assert chosen_plan(subject, layout, execution, model, system).plan == plan


@pytest.mark.parametrize("line", TABLES["searches whose plans are predicted again"])
def test_a_plan_that_is_shown_is_predicted_again(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = shlex.split(line)
    monkeypatch.chdir(tmp_path)
    Path("my model.yaml").write_text("extends: llama3-8b\nlayers: 48\n", encoding="utf-8")
    Path("site's.yaml").write_text("extends: dgx-h100\nnic_gbps: 800\n", encoding="utf-8")
    assert main([*words, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    plans = shown.get("plans") or [shown.get("plan")]
    if words[0] == "budget":
        plans = [shown[shapes][speed]["plan"] for shapes in ("published", "generated") for speed in SPEEDS]
    for plan in plans:
        assert main([*shlex.split(plan["command"])[1:], "--json"]) == 0
        again = json.loads(capsys.readouterr().out)
        assert again["chosen"] == {}
        assert again["command"] == plan["command"]
        for figure in ("iteration_s", "memory_gb", "mfu"):
            assert again[figure] == pytest.approx(plan[figure], rel=1e-9)


SPEEDS = ("naive", "simulated")
