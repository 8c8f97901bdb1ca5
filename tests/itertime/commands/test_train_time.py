"""`itertime train-time`: seconds, their parts and their range, and which of them are inputs."""

from __future__ import annotations

import json

import pytest

from itertime.cli import main

BERT = ["train-time", "--model", "bert-large", "--system", "dgx-a100-80gb", "--recompute", "none"]
PLAN = [*BERT, "--dp", "64", "--micro-batch", "16", "--global-batch", "1024"]
STEPS = [*PLAN, "--steps", "100", "--startup", "2.5"]


def document(capsys, arguments):
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_document_has_the_parts_and_says_what_is_an_input(capsys):
    found = document(capsys, [*STEPS, "--eval-every", "10000", "--eval-samples", "640"])
    assert found["train_parts_s"]["start-up"] == 2.5
    assert found["train_parts_s"]["steps"] == pytest.approx(100 * found["iteration_s"])
    evaluations = found["evaluations"]
    assert evaluations["count"] == 10
    assert found["train_parts_s"]["evaluations"] == pytest.approx(10 * evaluations["seconds"])
    assert found["train_s"] == pytest.approx(sum(found["train_parts_s"].values()))
    assert found["train_range_s"] == pytest.approx([found["train_s"]] * 2)
    assert found["steps"]["origin"] == found["start_up"]["origin"] == "given"
    assert (found["input"], found["predicted"]) == (
        ["steps", "start_up"],
        ["iteration_s", "evaluations.seconds"],
    )


def test_the_text_has_the_same_numbers(capsys):
    found = document(capsys, [*PLAN, "--steps", "100"])
    assert main([*PLAN, "--steps", "100"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("bert-large to its target on 64 GPUs: tp1 pp1 dp64 mb16 none\n")
    low, high = found["train_range_s"]
    assert f"{found['train_s']:.2f} s, {low:.2f} to {high:.2f} s by the spread of the logs" in out
    assert f"100 of {found['iteration_s']:.4f} s\n" in out
    assert "  steps: given\n" in out
    assert "  start-up: 22 logs (MLPerf 1.0 to 5.0, 7 sources) of BERT on 9 and more GPUs" in out
    assert "no evaluations are counted" in " ".join(err.split())


WIKIPEDIA = [*BERT, "--dp", "1024", "--micro-batch", "16", "--global-batch", "16384", "--grad-overlap"]
WIKIPEDIA[WIKIPEDIA.index("bert-large")] = "bert-large-wikipedia"
