"""What a policy says about jobs: in the log, in the records, in the story of a job, and under audit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clustersim.audit import Finding
from clustersim.audit.folder import check_run
from clustersim.cli import main
from clustersim.errors import PolicyError
from clustersim.records import NOTE, Run
from clustersim.runs import Trace, run
from clustersim.scheduler import Proposal, Scheduler, State
from tests.builders import rigid

pytestmark = pytest.mark.usefixtures("wide_terminal")

FIRST, LAST = "put off: a shorter job came", "put off: two shorter jobs came"


class Notes(Scheduler):
    """First come, first served; notes `FIRST` and `LAST` for the second job when others arrive."""

    def schedule(self, state: State) -> Proposal:
        proposal = state.proposal()
        for job in state.pending:
            proposal.start(job)
        for job in state.pending:
            if job.id == "b" and state.now in (10.0, 20.0):
                proposal.note(job, FIRST if state.now == 10.0 else LAST)
        return proposal


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text("job_id,submit_s,gpus,duration_s\na,0,8,100\nb,1,8,50\nc,10,8,5\nd,20,8,5\n")
    return path


def noted(trace: Path, out: Path | None = None) -> Run:
    return run(trace, Notes, cluster="n1g8", out=out)


def broken(findings: list[Finding]) -> list[str]:
    return [finding.rule for finding in findings if finding.violations]


def test_each_note_is_an_event_and_the_last_one_the_reason(trace: Path) -> None:
    made = noted(trace)
    assert [(e.time_s, e.job_id, e.detail) for e in made.events if e.event == NOTE] == [
        (10, "b", FIRST),
        (20, "b", LAST),
    ]
    assert [job.reason for job in made.jobs] == ["", LAST, "", ""]
    assert broken(check_run(made, trace)) == []


def test_the_reason_of_an_unfinished_job_comes_first(trace: Path) -> None:
    made = run(trace, Notes, cluster="n1g8", until_s=15.0)
    assert made.jobs[1].reason == f"still waiting when the run ended; {FIRST}"
    assert broken(check_run(made, trace)) == []


@pytest.mark.parametrize("reason", ["", FIRST, "forged"])
def test_another_reason_than_the_last_note_is_found(trace: Path, reason: str) -> None:
    made = noted(trace)
    jobs = [replace(job, reason=reason) if job.job_id == "b" else job for job in made.jobs]
    assert "records" in broken(check_run(replace(made, jobs=jobs), trace))


def test_a_reason_that_no_policy_noted_is_found(trace: Path) -> None:
    made = noted(trace)
    jobs = [replace(job, reason=LAST) if job.job_id == "c" else job for job in made.jobs]
    assert broken(check_run(replace(made, jobs=jobs), trace)) == ["trace"]


def test_explain_tells_when_the_policy_noted_what(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    noted(trace, tmp_path / "out")
    assert main(["explain", str(tmp_path / "out"), "--job", "b"]) == 0
    told = capsys.readouterr().out
    assert f"t=10 s: noted by the policy: {FIRST}" in told
    assert f"t=20 s: noted by the policy: {LAST}" in told
    assert told.index(FIRST) < told.index("t=20 s: noted") < told.index("started on")


@pytest.mark.parametrize("text", ["", "  ", "two\nlines", "x" * 201, 7, None])
def test_a_note_is_a_line_of_text(text: Any) -> None:
    class Says(Notes):
        def schedule(self, state: State) -> Proposal:
            proposal = super().schedule(state)
            for job in state.pending:
                proposal.note(job, text)
            return proposal

    with pytest.raises(PolicyError, match=r"note\(job a"):
        run(Trace.of([rigid("a", 0, 8, 10)]), Says, cluster="n1g8")


def test_a_job_that_has_left_gets_no_note() -> None:
    class Late(Notes):
        def schedule(self, state: State) -> Proposal:
            proposal = super().schedule(state)
            for event in state.events:
                if event.kind == "finished" and event.job is not None:
                    proposal.note(event.job, "late")
            return proposal

    with pytest.raises(PolicyError, match=r"note\(job a\): it is no longer in the system"):
        run(Trace.of([rigid("a", 0, 8, 10)]), Late, cluster="n1g8")


def test_a_copy_keeps_its_notes() -> None:
    class Copies(Notes):
        def schedule(self, state: State) -> Proposal:
            return super().schedule(state).copy()

    made = run(
        Trace.of([rigid("a", 0, 8, 100), rigid("b", 10, 8, 50)]),
        Copies,
        cluster="n1g8",
    )
    assert made.jobs[1].reason == FIRST
