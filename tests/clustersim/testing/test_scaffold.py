"""`clustersim policies new` and `check`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from clustersim.testing.scaffold import write_template
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
