"""`clustersim policies check --keep`: a failed case as files and a command."""

from __future__ import annotations

import shlex
from itertools import count
from pathlib import Path

import pytest

from clustersim.cli import main
from clustersim.scheduler import JobView, Proposal, Scheduler, State
from clustersim.testing import CASES, BrokenCase, Case, check_case
from clustersim.testing.checks import _run
from clustersim.testing.kept import keep_case
from itertime.errors import UserError
from policies.max_min import MaxMin

POLICIES = """
from clustersim.scheduler import Scheduler

class Late(Scheduler):
    "Fails at the first decision after 200 s."
    def __init__(self, after_s=200.0):
        self.after_s = after_s

    def schedule(self, state):
        proposal = state.proposal()
        for job in state.pending:
            proposal.start(job)
        if state.now > self.after_s:
            proposal.start(next(iter(state.running)))
        return proposal
"""


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


def test_a_failed_case_is_kept_and_fails_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(POLICIES)
    options = ["--set", "policy.after_s=300", "--keep", "kept here"]
    assert main(["policies", "check", "mine.py:Late", *options]) == 4
    lines = capsys.readouterr().out.splitlines()
    at = lines.index(next(line for line in lines if line.startswith("rigid jobs: BROKEN: policy Late at t=")))
    command = lines[at + 1].removeprefix("  run it again: ")
    assert command.startswith("clustersim run 'kept here/rigid-jobs/trace.csv' --policy mine.py:Late ")
    assert "policy.after_s=300" in command
    assert Path("kept here/rigid-jobs/events.csv").read_text().count("start") > 3
    assert main(shlex.split(command)[1:]) == 4
    message = lines[at].removeprefix("rigid jobs: BROKEN: ")
    assert message in capsys.readouterr().err
    assert main(["policies", "check", "mine.py:Late", "--set", "policy.after_s=300"]) == 4
    assert "run it again" not in capsys.readouterr().out


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
