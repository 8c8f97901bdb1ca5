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


def test_evaluations_can_be_left_out_in_so_many_words(capsys):
    assert main([*STEPS, "--eval-samples", "0"]) == 0
    out, err = capsys.readouterr()
    assert "no evaluations" not in err
    assert "evaluations         0.00 s" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (PLAN, "model=bert-large: has no table of steps"),
        ([*PLAN, "--steps", "0"], "--steps=0: must be a number of steps, from 1 to 10^12"),
        ([*PLAN, "--steps", "1e18"], "--steps=1e+18: must be a number of steps, from 1 to 10^12"),
        ([*PLAN, "--steps", "1e-300"], "--steps=1e-300: must be a number of steps, from 1 to 10^12"),
        ([*STEPS, "--startup", "-1"], "--startup=-1: must be seconds, from 0 to 10^9"),
        ([*STEPS, "--startup", "1e20"], "--startup=1e+20: must be seconds, from 0 to 10^9"),
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


WIKIPEDIA = [*BERT, "--dp", "1024", "--micro-batch", "16", "--global-batch", "16384", "--grad-overlap"]
WIKIPEDIA[WIKIPEDIA.index("bert-large")] = "bert-large-wikipedia"


def test_a_single_organisation_behind_the_steps_is_named(capsys):
    assert main(WIKIPEDIA) == 0
    out, err = capsys.readouterr()
    assert "184 of " in out
    assert "after every 325,000 samples" in out
    words = " ".join(err.split())
    assert "all logs behind these steps are of Samsung: a time of Samsung's own is not held out" in words


def test_a_method_that_changes_convergence_needs_its_own_steps(capsys):
    compressed = [*WIKIPEDIA, "--options", "compression=onebit-adam"]
    assert main(compressed) == 2
    assert "is an input; give the steps that your training takes: --steps N" in capsys.readouterr().err
    assert main([*compressed, "--steps", "184"]) == 0


def test_uneven_ranks_spread_an_iteration(capsys):
    """As drawn, ranks differ more than sorted over all; padded, they do not differ."""
    arguments = ["predict", *WIKIPEDIA[1:], "--options"]
    spreads = []
    for balance in ("drawn", "sorted"):
        assert main([*arguments, f"batching=unpadded,balance={balance}"]) == 0
        out = capsys.readouterr().out
        (line,) = [line for line in out.splitlines() if line.endswith("by the lengths of the samples drawn")]
        low, high = (float(word) for word in line.split() if word[0].isdigit())
        spreads.append(high - low)
    assert spreads[0] > spreads[1] >= 0
    assert main([*arguments, "batching=padded"]) == 0
    assert "samples drawn" not in capsys.readouterr().out
