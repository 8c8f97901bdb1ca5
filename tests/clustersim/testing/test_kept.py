"""`clustersim policies check --keep`, a failed case as files and a command, and `policies new`."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest

from clustersim.cli import main
from clustersim.scheduler import JobView, Proposal, Scheduler, State
from clustersim.testing import CASES, BrokenCase, Case, check_case
from clustersim.testing.checks import _run
from clustersim.testing.kept import keep_case
from clustersim.testing.scaffold import write_template
from itertime.errors import UserError
from policies.max_min import MaxMin
from tests.places import ROOT


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_command_runs_the_case_again(case: Case, tmp_path: Path) -> None:
    """Event by event, apart from the reasons for which impossible jobs are rejected."""
    events = _run(case, MaxMin()).events
    command = keep_case(BrokenCase("broken", case, events), tmp_path, "max-min", {})
    program, *words = shlex.split(command)
    assert program == "clustersim"
    assert main([*words, "--no-report"]) == 0
    home = tmp_path / case.name.replace(" ", "-")
    logs = [(home / "run" / "events.csv").read_text(), (home / "events.csv").read_text()]
    again, kept = ([line for line in log.splitlines() if ",reject," not in line] for log in logs)
    assert again == kept
    assert len(kept) > len(case.jobs)


def test_of_runs_that_differ_both_logs_are_kept(tmp_path: Path) -> None:
    runs = count()

    class Differs(Scheduler):
        def __init__(self) -> None:
            self.sign = next(runs) % 2

        def schedule(self, state: State) -> Proposal:
            proposal = state.proposal()
            proposal.run_by(self.rank)
            return proposal

        def rank(self, job: JobView) -> int:
            return -job.order if self.sign else job.order

    with pytest.raises(BrokenCase, match="a second run differs") as caught:
        check_case(Differs, CASES[0])
    keep_case(caught.value, tmp_path, "mine.py:Differs", {})
    home = tmp_path / "rigid-jobs"
    assert (home / "events.csv").read_text() != (home / "events_2.csv").read_text()


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"file/rigid-jobs: cannot be made: .*; name another folder"):
        keep_case(BrokenCase("broken", CASES[0], ()), tmp_path / "file", "fifo", {})


def test_its_own_test_passes(tmp_path: Path) -> None:
    write_template("fair-queue", tmp_path)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*command, str(tmp_path)], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout
