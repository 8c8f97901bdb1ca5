"""`--options` on every command that makes plans, and the catalogue of their keys."""

from __future__ import annotations

import json
from dataclasses import fields

import pytest

from itertime.cli import main
from itertime.spec import PlanOptions

BERT = ["--model", "bert-large", "--system", "dgx-a100-80gb"]
PLAN = ["--dp", "8", "--micro-batch", "4", "--global-batch", "64", "--grad-overlap"]
CHOSEN = ["--options", "clipping=bucket,optimizer=lamb"]
COMMANDS = {
    "predict": ["predict", *BERT, *PLAN],
    "train-time": ["train-time", *BERT, *PLAN, "--steps", "10"],
    "search": ["search", *BERT, "--gpus", "8", "--global-batch", "64", "--top", "1", "--grad-overlap"],
    "layer": ["profile", "layer", "a100-80gb", "--model", "bert-large", "--micro-batch", "4"],
    "budget": ["budget", "--system", "dgx-a100-80gb", "--gpus", "16", "--days", "1", "--global-batch", "64"],
}


@pytest.mark.parametrize("command", ["predict", "train-time"])
def test_a_document_has_the_options_as_keys_and_as_text(capsys, command):
    assert main([*COMMANDS[command], *CHOSEN, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["plan_options"] == "clipping=bucket,optimizer=lamb"
    assert set(found["options"]) == {field.name for field in fields(PlanOptions)}
    assert (found["options"]["clipping"], found["options"]["batching"]) == ("bucket", "padded")
    assert {"spread_s", "sampling_error_s"} <= set(found)


def test_the_plans_of_a_search_have_the_options(capsys):
    assert main([*COMMANDS["search"], *CHOSEN, "--json"]) == 0
    (plan,) = json.loads(capsys.readouterr().out)["plans"]
    assert plan["plan_options"] == "clipping=bucket,optimizer=lamb"
    assert main([*COMMANDS["search"], *CHOSEN]) == 0
    assert "clipping=bucket,optimizer=lamb" in capsys.readouterr().out


def test_the_label_of_a_prediction_has_the_options(capsys):
    assert main([*COMMANDS["predict"], *CHOSEN]) == 0
    assert "full clipping=bucket,optimizer=lamb\n" in capsys.readouterr().out


def test_a_timeline_takes_options(capsys, tmp_path):
    trace = tmp_path / "trace.json"
    assert main(["timeline", *BERT, *PLAN, *CHOSEN, "-o", str(trace)]) == 0
    assert trace.exists()


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("clipping", "--options: clipping: must be KEY=VALUE"),
        ("clipping=bucket,", "--options: clipping=bucket,: has an empty part; remove a comma"),
        ("workers=２", "--options: workers='２': input should be"),
        ("size=1", "--options: unknown key 'size'"),
        ("workers=0", "--options: workers=0: input should be"),
        ("clipping=none,clipping=none", "--options: key 'clipping' is given twice"),
    ],
)
def test_wrong_options_are_one_error_line(capsys, command, text, words):
    assert main([*COMMANDS[command], "--options", text]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert words in err


@pytest.mark.parametrize("command", ["predict", "train-time", "search"])
def test_options_that_need_lengths_are_refused_for_a_model_without(capsys, command):
    assert main([*COMMANDS[command], "--options", "batching=unpadded"]) == 2
    assert "batching=unpadded: needs the lengths of the samples" in capsys.readouterr().err


ONE = ["predict", *BERT, "--global-batch", "4"]
FP16_IDLE = "compression=fp16 changes nothing without --fp32-gradients: gradients have 16 bit"
EIGHT = ["predict", *BERT, "--dp", "8", "--global-batch", "64"]


@pytest.mark.parametrize(
    ("arguments", "options", "note"),
    [
        (ONE, "compression=fp16", "compression=fp16 changes nothing without data parallelism"),
        (ONE, "clipping=before", "clipping=before changes nothing without data parallelism"),
        (ONE, "clipping=none", ""),
        (ONE, "compression=onebit-adam", ""),
        (EIGHT, "compression=fp16", FP16_IDLE),
        ([*EIGHT, "--fp32-gradients"], "compression=fp16", ""),
        (EIGHT, "compression=fp8", ""),
        (EIGHT, "clipping=bucket", "clipping=bucket hides nothing without --grad-overlap"),
        ([*EIGHT, "--grad-overlap"], "clipping=bucket", ""),
        (EIGHT, "workers=2", "workers=2 exchanges in every iteration; state local_steps too"),
        (EIGHT, "workers=2,local_steps=4", ""),
    ],
)
def test_options_without_effect_are_noted(capsys, arguments, options, note):
    assert main([*arguments, "--options", options]) == 0
    err = capsys.readouterr().err
    notes = [line for line in err.splitlines() if "--options" in line]
    assert notes == ([f"note: --options {note}"] if note else [])


def test_the_catalogue_has_every_key_with_its_values(capsys):
    assert main(["plan-options", "--json"]) == 0
    keys = json.loads(capsys.readouterr().out)["plan_options"]
    assert [key["name"] for key in keys] == [field.name for field in fields(PlanOptions)]
    assert all(key["text"] and key["values"] for key in keys)
    assert main(["plan-options"]) == 0
    out = capsys.readouterr().out
    assert "clipping: after or none or before or bucket; default after\n" in out
    assert "convergence is not predicted" in out


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ("compression=int8", "compression"),
        ("compression=int8,workers=2,local_steps=4", "compression and local_steps"),
        ("clipping=before,optimizer=lamb", ""),
    ],
)
def test_convergence_is_said_to_be_an_input(capsys, options, named):
    assert main([*COMMANDS["predict"], "--dp", "2", "--global-batch", "8", "--options", options]) == 0
    found = [line for line in capsys.readouterr().err.splitlines() if "convergence" in line]
    effect = f"not predicted: the effect of {named} on convergence; the number of steps is an input"
    assert found == ([effect] if named else [])
