"""A trace, a grid over it, and policies that do harm, in the current folder."""

from __future__ import annotations

import shutil
from contextlib import chdir
from pathlib import Path

import pytest

from clustersim.cli import main

TRACE = "job_id,submit_s,gpus,duration_s\na,0,8,60\nb,0,8,30\nc,10,4,5\n=cmd(),20,4,5\n"
GRID = """
set: {trace: t.csv, cluster: n1g8, overheads: null}
matrix:
  policy: [fifo, srtf]
seeds: 2
"""
POLICIES = '''
"""Policies that do harm."""
import os, sys, time
from clustersim import Scheduler

class Base(Scheduler):
    def schedule(self, state):
        self.harm()
        proposal = state.proposal()
        proposal.run_by(lambda job: job.order)
        return proposal

    def harm(self):
        pass

class Sleeps(Base):
    """Takes a while, once."""
    def __init__(self, wait_s=0.2):
        self.wait_s = wait_s
    def harm(self):
        time.sleep(self.wait_s)
        self.wait_s = 0.0

class Hangs(Base):
    def harm(self):
        while True:
            time.sleep(0.01)

class Grows(Base):
    def harm(self):
        self.kept = [b"x" * 50_000_000 for _ in range(40)]
        time.sleep(10)

class Raises(Base):
    def harm(self):
        print("about to fail")
        raise RuntimeError("no policy for this")

class Exits(Base):
    def harm(self):
        os._exit(7)

class Crashes(Base):
    def harm(self):
        os.abort()

class Counts(Base):
    """A class that remembers earlier runs of its process."""
    runs = 0
    def __init__(self):
        Counts.runs += 1
    def schedule(self, state):
        proposal = super().schedule(state)
        if Counts.runs > 1:
            raise RuntimeError("another cell was here before")
        return proposal
'''


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
