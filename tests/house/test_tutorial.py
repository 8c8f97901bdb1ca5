"""The tutorial does what it says: its Python runs in order and prints what stands below it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.places import ROOT

TEXT = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")


def blocks() -> Iterator[tuple[str, str | None]]:
    """Each block of Python, with the text block that directly follows it, if one does."""
    for match in re.finditer(
        r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```$)?", TEXT, re.DOTALL | re.MULTILINE
    ):
        yield match.group(1), match.group(2)


def test_the_tutorial_runs(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {"__name__": "tutorial"}
    shown = 0
    for code, output in blocks():
        exec(compile(code, "docs/tutorial.md", "exec"), names)
        printed = capsys.readouterr().out
        assert printed == (output or "")
        shown += output is not None
    assert shown >= 5
    every = ("Queue", "Patient", "ShortestFirst", "Ageing", "Elastic", "Foresight")
    steps = [name for name in names if name in every]
    assert len(steps) == 6
