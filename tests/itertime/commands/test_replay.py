"""Every plan that is shown can be predicted again by the command that is shown with it."""

from __future__ import annotations

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

MODELS = ("llama3-8b", "gpt3-6.7b", "mixtral-8x7b")
PREDICT = typer.main.get_command(app).commands["predict"]  # type: ignore[attr-defined]
GROUPS = (Subject, PlanLayout, Execution)
SWITCHES = ("grad_overlap", "fp32_gradients", "prefetch", "ep_overlap", "offload_optimizer")


def drawn_plan(draw: random.Random, model: str) -> Plan:
    some = draw.choice
    options = some(["", "", "optimizer=lamb", "compression=fp8", "workers=2,local_steps=8"])
    return Plan(
        tp=some([1, 1, 2, 4]),
        pp=some([1, 1, 2, 4]),
        dp=some([1, 2, 4]),
        cp=some([1, 1, 1, 2]),
        ep=some([1, 2]) if model == "mixtral-8x7b" else 1,
        etp=some([None, 1]) if model == "mixtral-8x7b" else None,
        micro_batch=some([1, 2, 4]),
        global_batch=some([32, 64]),
        interleave=some([1, 1, 2, 4]),
        zero_stage=some([0, 1, 2, 3]),
        zero_group=some([None, None, 2]),
        sequence_parallel=some([True, False]),
        recompute_fraction=some([1.0, 1.0, 0.5, 0.125]),
        offload_layers=some([0, 0, 2]),
        bucket_bytes=some([None, None, 25_000_000]),
        tp_overlap=some([None, True, False]),
        options=parse_options(options),
        **{name: some(words) for name, words in CHOICES.items() if name != "precision"},
        precision=some(["bf16", "fp8", "fp8_block"]),
        **{name: some([True, False]) for name in SWITCHES},
    )


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


USER_FILES = ["--model", "my model.yaml", "--system", "site's.yaml", "--set", "model.layers=24"]
ASKED = [
    ["search", *USER_FILES, "--gpus", "16", "--global-batch", "64", "--framework", "te", "--top", "8"],
    ["search", "--model", "mixtral-8x7b", "--system", "dgx-h100", "--max-gpus", "64", "--global-batch", "64",
     "--pareto", "--precision", "fp8", "--memory-headroom", "0.05"],
    ["search", "--model", "llama3-8b", "--system", "dgx-h100", "--gpus", "64", "--global-batch", "16",
     "--seq-len", "131072", "--offload-optimizer", "--options", "optimizer=lamb"],
    ["cost", "--model", "llama3-8b", "--system", "dgx-h100", "--gpus", "64", "--global-batch", "256",
     "--seq-len", "4096", "--precision", "fp8"],
    ["budget", "--system", "dgx-a100-80gb", "--gpus", "64", "--days", "2", "--global-batch", "64",
     "--attention", "flash"],
]  # fmt: skip


@pytest.mark.parametrize("words", ASKED)
def test_a_plan_that_is_shown_is_predicted_again(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
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
