"""A trace, a grid over it, and policies that do harm, in the current folder."""

import shutil
from contextlib import chdir
from pathlib import Path

import pytest

from clustersim.cli import main
from tests.tables import TEXTS

TRACE = "job_id,submit_s,gpus,duration_s\na,0,8,60\nb,0,8,30\nc,10,4,5\n=cmd(),20,4,5\n"
GRID = """
set: {trace: t.csv, cluster: n1g8, overheads: null}
matrix:
  policy: [fifo, srtf]
seeds: 2
"""
POLICIES = TEXTS["policies that do harm"]


FILES = {"t.csv": TRACE, "harm.py": POLICIES, "g.yaml": GRID}


@pytest.fixture
def here(here: Path) -> Path:
    for name, text in FILES.items():
        (here / name).write_text(text)
    return here


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of `GRID`."""
    folder = tmp_path_factory.mktemp("finished")
    for name, text in FILES.items():
        (folder / name).write_text(text)
    with chdir(folder):
        assert main(["grid", "g.yaml", "--workers", "1"]) == 0
    return folder / "g"


@pytest.fixture
def made_before(here: Path, finished: Path) -> Path:
    """A copy of these results, where the grid's call finds them."""
    return Path(shutil.copytree(finished, here / "g"))
