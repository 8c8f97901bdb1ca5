"""Quickstart, tutorials and how-tos do what they say: their blocks run in order, and print what is shown."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from docs.website.examples import run_page
from tests.places import ROOT
from tests.printed import assert_nearly_printed

PAGES = [
    ROOT / "docs" / "quickstart.md",
    *(page for folder in ("tutorials", "how-to") for page in sorted((ROOT / "docs" / folder).glob("*.md"))),
]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_its_blocks_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.symlink(ROOT / "traces", tmp_path / "traces")  # the sample log, where a clone has it
    monkeypatch.chdir(tmp_path)
    found = list(run_page(path.read_text(encoding="utf-8"), path.name))
    assert found
    for _, shown, printed in found:
        if shown is not None:
            assert_nearly_printed(shown, printed)
