"""`itertime models`, `itertime systems`, and `--set`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from itertime import list_models, load_model
from itertime.cli import main

NODE = ["--model", "llama3-8b", "--system", "dgx-a100-80gb", "--global-batch", "64"]


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


def test_set_in_search_timeline_and_validate(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, write_table: Any
) -> None:
    search = ["search", *NODE, "--gpus", "16", "--top", "1"]
    plain = document(capsys, *search)["plans"][0]
    slow = document(capsys, *search, "--set", "system.site.iteration_overhead_s=1")["plans"][0]
    assert slow["iteration_s"] == pytest.approx(plain["iteration_s"] + 1)
    assert (
        main(["timeline", *NODE, "--dp", "16", "--set", "model.layers=2", "-o", str(tmp_path / "t.json")])
        == 0
    )
    capsys.readouterr()
    table = str(write_table({}))
    system = ["--system", "dgx-a100-80gb"]
    plain = document(capsys, "validate", table, *system)
    slow = document(capsys, "validate", table, *system, "--set", "system.site.iteration_overhead_s=100")
    assert slow["all"]["bias"] > plain["all"]["bias"] + 100
