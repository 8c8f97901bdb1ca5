"""`clustersim policies new` and `check`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from clustersim.testing.scaffold import write_template
from itertime.errors import UserError
from tests.places import ROOT


def test_its_own_test_passes(tmp_path: Path) -> None:
    write_template("fair-queue", tmp_path)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*command, str(tmp_path)], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    _, test, _ = write_template("mine", tmp_path)
    before = test.read_text()
    (tmp_path / "mine.py").unlink()
    with pytest.raises(UserError, match=r"test_mine\.py: already exists"):
        write_template("mine", tmp_path)
    assert (test.read_text(), sorted(p.name for p in tmp_path.iterdir())) == (before, ["test_mine.py"])


@pytest.mark.parametrize("name", ["", "My", "a b", "a--b", "-a", "../a", "none", "class", "a_b", "é"])
def test_invalid_names(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="write lower-case words joined by hyphens"):
        write_template(name, tmp_path)
    assert not list(tmp_path.iterdir())
