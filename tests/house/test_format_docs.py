"""docs/formats.md has every format of logs, and its commands import logs of that format."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from clustersim.cli import main
from tests.places import ROOT
from traces.logs import FORMATS

PAGE = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")
EXAMPLES = dict(re.findall(r"^\| `([a-z-]+)` \| `(.*)` \|$", PAGE, re.MULTILINE))


def test_every_format_has_an_example() -> None:
    assert sorted(EXAMPLES) == sorted(FORMATS)
    assert all("clustersim trace import " in command for command in EXAMPLES.values())


@pytest.mark.parametrize("name", [name for name, command in EXAMPLES.items() if "../shared/" in command])
def test_its_example_imports_a_log_of_that_format(
    name: str, shared_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command = shlex.split(EXAMPLES[name].replace("../shared", str(shared_dir)))
    assert main(command[1:]) == 0
    assert json.loads(Path("jobs.import.json").read_text())["format"] == name
