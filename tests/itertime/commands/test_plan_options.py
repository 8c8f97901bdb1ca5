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


def test_the_catalogue_has_every_key_with_its_values(capsys):
    assert main(["plan-options", "--json"]) == 0
    keys = json.loads(capsys.readouterr().out)["plan_options"]
    assert [key["name"] for key in keys] == [field.name for field in fields(PlanOptions)]
    assert all(key["text"] and key["values"] for key in keys)
    assert main(["plan-options"]) == 0
    out = capsys.readouterr().out
    assert "clipping: after or none or before or bucket; default after\n" in out
    assert "convergence is not predicted" in out
