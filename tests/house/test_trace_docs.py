"""The examples of docs/traces.md are true."""

from __future__ import annotations

import doctest
import shlex
from pathlib import Path

import pytest

from clustersim.commands.trace import app
from itertime.commandline import run_app
from tests.places import ROOT
from traces.logs import FORMATS
from traces.logs.named_columns import MEANINGS

PAGE = ROOT / "docs" / "traces.md"
COMMAND = "    clustersim trace "


def run(line: str, shared_traces: Path | None = None) -> int:
    line = line.replace("../shared/data", str(shared_traces and shared_traces.parent))
    return run_app(app, "clustersim trace", shlex.split(line))


def test_its_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = doctest.testfile(str(PAGE), module_relative=False)
    assert (result.failed, result.attempted) == (0, 3)


def test_its_commands_run(shared_traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [line.removeprefix(COMMAND) for line in PAGE.read_text().splitlines() if line.startswith(COMMAND)]
    assert len(lines) == 18
    for line in lines:
        assert run(line, shared_traces) == 0, line


def test_its_table_and_the_help_name_every_format(capsys: pytest.CaptureFixture[str]) -> None:
    page = PAGE.read_text()
    assert [name for name in FORMATS if f"\n| `{name}` | " not in page] == []
    assert [field for field in MEANINGS if f"`{field}`" not in page] == []
    assert run("import --help") == 0
    shown = "".join(capsys.readouterr().out.split())  # lines break at hyphens
    assert [name for name in FORMATS if name not in shown] == []


def test_its_example_of_errors_is_what_the_check_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [f"{i},{i},8,gpt3-13b,64,5" for i in range(6)]
    rows[1] = "1,1,0,gpt3-13b,64,5"
    rows[5] = "5,5,8,gpt3-31b,64,5"
    Path("jobs.csv").write_text("\n".join(["job_id,submit_s,gpus,model,global_batch,iterations", *rows]))
    assert run("check jobs.csv") == 3
    shown = PAGE.read_text().split("    $ clustersim trace check jobs.csv\n")[1].split("\n\n")[0]
    assert capsys.readouterr().err.splitlines() == [line.strip() for line in shown.splitlines()]
