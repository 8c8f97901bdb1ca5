"""The examples of docs/sharing.md run, and its tables are those of the files beside it."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from clustersim.cli import app
from itertime.commandline import run_app
from tests.places import ROOT

PAGE = (ROOT / "docs" / "sharing.md").read_text(encoding="utf-8")
COMMAND = "    clustersim "


@pytest.mark.parametrize("name", ["shared.csv", "chat.csv"])
def test_its_tables_are_the_files(name: str) -> None:
    text = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert "".join(f"    {line}\n" for line in text.splitlines()) in PAGE


def test_its_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared_traces: Path) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [line.removeprefix(COMMAND) for line in PAGE.splitlines() if line.startswith(COMMAND)]
    assert len(lines) == 14
    for line in lines:
        if "pods.csv --policy" in line:
            continue  # a table of its own, a longer run
        words = line.replace("../shared/data", str(shared_traces.parent)).replace("docs/", f"{ROOT}/docs/")
        assert run_app(app, "clustersim", shlex.split(words)) == 0, line
