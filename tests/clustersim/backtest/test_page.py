"""The first example of docs/backtest.md is what its command prints."""

from __future__ import annotations

import shlex

import pytest

from clustersim.cli import main
from tests.places import ROOT

PAGE = (ROOT / "docs" / "backtest.md").read_text(encoding="utf-8")


def test_the_bundled_log_is_reproduced(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    command = next(line for line in PAGE.splitlines() if line.startswith("    clustersim backtest traces/"))
    table = PAGE.partition(command)[2].split("```text\n")[1].split("```")[0].splitlines()
    assert main(shlex.split(command)[1:]) == 0
    shown = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    begin = shown.index(table[0])
    assert shown[begin : begin + len(table)] == table
    assert "Judged part: 250 jobs, score 0.000" in shown
