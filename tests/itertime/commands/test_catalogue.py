"""`itertime models`, `itertime systems`, and `--set`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from itertime import list_models, load_model
from itertime.cli import main

PREDICT = [
    "predict",
    "--model",
    "llama3-8b",
    "--system",
    "dgx-a100-80gb",
    "--dp",
    "16",
    "--global-batch",
    "64",
]


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main([*arguments, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize(
    "arguments",
    [["models"], ["systems"], ["models", "show", "llama4-maverick"], ["models", "show", "gemma3-27b"]],
)
def test_text_fits_a_terminal_of_80_columns(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert main(arguments) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("file: ")]
    assert max(map(len, lines)) <= 80


def test_models_are_listed_with_what_a_prediction_can_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models"]) == 0
    rows = {line.split()[0]: line.split() for line in capsys.readouterr().out.splitlines()[1:-1]}
    assert sorted(rows) == list_models()
    assert (rows["llama3-8b"][-1], rows["gemma2-9b"][-1]) == ("full", "approximate")
    assert rows["mixtral-8x7b"][1:3] == ["46.70", "12.9"]
    listed = document(capsys, "models")["models"]
    assert [row["name"] for row in listed] == list_models()
    assert all(row["parameters"] == load_model(row["name"]).parameters for row in listed)


def test_a_model_is_shown_as_resolved(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("extends: gemma2-9b\nlayers: 10\n")
    shown = document(capsys, "models", "show", str(path))
    assert (shown["name"], shown["values"]["layers"], shown["values"]["hidden"]) == ("mine", 10, 3584)
    assert shown["values"]["head_dim"] == 256
    assert shown["units"]["seq_len"] == "tokens"
    assert [Path(file).name for file in shown["files"]] == ["mine.yaml", "gemma2-9b.yaml"]
    assert shown["parameters"] == load_model(str(path)).parameters
    assert any("caps on logits" in text for text in shown["approximations"])
    assert shown["refusal"] is None
    assert main(["models", "show", str(path)]) == 0
    out = capsys.readouterr().out
    assert f"file: {path}\nextends: " in out
    assert "source of what it extends: Gemma 2" in out, "the paper has no model of 10 layers"
    assert "  layers                          10\n" in out
    assert "  encoder                         false  (default)\n" in out


def test_a_system_is_shown_in_both_units(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["systems", "show", "dgx-h100,site.launch_us=30"]) == 0
    out = capsys.readouterr().out
    assert "nic_bytes_per_s                 4e+11 bytes/s (3,200 Gb/s)" in out
    assert "site.launch_s                   3e-05 s\n" in out
    shown = document(capsys, "systems", "show", "dgx-h100")
    assert shown["values"]["site.launch_s"] == 2e-5
    assert shown["units"]["site.launch_s"] == "s"
    assert shown["source"].startswith("NVIDIA DGX H100")


def test_set_changes_the_model_and_the_system(capsys: pytest.CaptureFixture[str]) -> None:
    plain = document(capsys, *PREDICT)
    slow = document(capsys, *PREDICT, "--set", "system.nic_gbps=100")
    short = document(capsys, *PREDICT, "--set", "model.seq_len=2048")
    assert slow["breakdown"]["dp_comm"] > 2 * plain["breakdown"]["dp_comm"]
    assert slow["breakdown"]["gemm"] == plain["breakdown"]["gemm"]
    assert short["breakdown"]["gemm"] < 0.5 * plain["breakdown"]["gemm"]
    same = document(capsys, *PREDICT, "--seq-len", "2048")
    assert same["iteration_s"] == short["iteration_s"]


def test_set_in_search_timeline_and_validate(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, write_table: Any
) -> None:
    search = ["search", *PREDICT[1:5], "--gpus", "16", "--global-batch", "64", "--top", "1"]
    plain = document(capsys, *search)["plans"][0]
    slow = document(capsys, *search, "--set", "system.site.iteration_overhead_s=1")["plans"][0]
    assert slow["iteration_s"] == pytest.approx(plain["iteration_s"] + 1)
    assert main(["timeline", *PREDICT[1:], "--set", "model.layers=2", "-o", str(tmp_path / "t.json")]) == 0
    capsys.readouterr()
    table = str(write_table({}))
    system = ["--system", "dgx-a100-80gb"]
    plain = document(capsys, "validate", table, *system)
    slow = document(capsys, "validate", table, *system, "--set", "system.site.iteration_overhead_s=100")
    assert slow["all"]["bias"] > plain["all"]["bias"] + 100


def test_approximations_are_told_beside_a_prediction(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["predict", "--model", "gemma2-9b", "--system", "dgx-a100-80gb", "--global-batch", "8"]
    assert main(arguments) == 0
    assert "note: gemma2-9b: The caps on logits" in capsys.readouterr().err
    assert len(document(capsys, *arguments)["approximations"]) == 1
    assert document(capsys, *PREDICT)["approximations"] == []
