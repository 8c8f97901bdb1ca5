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
    assert (
        f"100 of {found['iteration_s']:.4f} s; steps are an input: given; their seconds are predicted" in out
    )
    assert "input: 22 logs (MLPerf 1.0 to 5.0, 7 sources) of BERT on 9 and more GPUs" in out
    assert "no evaluations are counted" in " ".join(err.split())


def test_evaluations_can_be_left_out_in_so_many_words(capsys):
    assert main([*STEPS, "--eval-samples", "0"]) == 0
    out, err = capsys.readouterr()
    assert "no evaluations" not in err
    assert "evaluations         0.00 s" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (PLAN, "model=bert-large: has no table of steps"),
        ([*PLAN, "--steps", "0"], "--steps=0: must be a number of steps, above 0"),
        ([*STEPS, "--startup", "-1"], "--startup=-1: must be seconds, from 0"),
        (
            [*STEPS, "--eval-every", "1000"],
            "--eval-every: bert-large has no rule of evaluation; state --eval-s",
        ),
        (
            [*STEPS, "--eval-samples", "10"],
            "--eval-samples: bert-large has no rule of evaluation; state --eval-e",
        ),
        ([*STEPS, "--options", "clipping=often"], "--options: clipping='often': input should be"),
        ([*STEPS, "--options", "batching=packed"], "batching=packed: needs the lengths of the samples"),
    ],
)
def test_what_cannot_be_answered_is_one_error_line(capsys, arguments, words):
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert words in err


def test_a_single_organisation_behind_the_steps_is_named(capsys):
    from itertime.spec import list_models

    if "bert-large-wikipedia" not in list_models():
        pytest.skip("bert-large-wikipedia is not shipped yet")
    changed = [*BERT, "--dp", "1024", "--micro-batch", "16", "--global-batch", "16384"]
    changed[changed.index("bert-large")] += "-wikipedia"
    assert main(changed) == 0
    err = " ".join(capsys.readouterr().err.split())
    assert "all logs behind these steps are of Samsung" in err
    assert "is not held out" in err
