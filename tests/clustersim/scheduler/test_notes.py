"""What a policy says about jobs: in the log, in the records, in the story of a job, and under audit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clustersim.audit.folder import check_run
from clustersim.cli import main
from clustersim.errors import PolicyError
from clustersim.records import NOTE, Run
from clustersim.runs import Trace, run
from clustersim.scheduler import Proposal, State
from tests.builders import acting, rigid

pytestmark = pytest.mark.usefixtures("wide_terminal")

FIRST, LAST = "put off: a shorter job came", "put off: two shorter jobs came"


def note_b(state: State, proposal: Proposal) -> None:
    """First come, first served; notes `FIRST` and `LAST` for the second job when others arrive."""
    for job in state.pending:
        proposal.start(job)
    for job in state.pending:
        if job.id == "b" and state.now in (10.0, 20.0):
            proposal.note(job, FIRST if state.now == 10.0 else LAST)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text("job_id,submit_s,gpus,duration_s\na,0,8,100\nb,1,8,50\nc,10,8,5\nd,20,8,5\n")
    return path


def noted(trace: Path, **settings: Any) -> Run:
    return run(trace, acting(note_b), cluster="n1g8", **settings)


def broken(made: Run, trace: Path, **reasons: str) -> list[str]:
    """The rules that a run with other reasons breaks."""
    jobs = [replace(job, reason=reasons.get(job.job_id, job.reason)) for job in made.jobs]
    return [found.rule for found in check_run(replace(made, jobs=jobs), trace) if found.violations]


def test_each_note_is_an_event_and_the_last_one_the_reason(trace: Path) -> None:
    made = noted(trace)
    assert [(e.time_s, e.job_id, e.detail) for e in made.events if e.event == NOTE] == [
        (10, "b", FIRST),
        (20, "b", LAST),
    ]
    assert [job.reason for job in made.jobs] == ["", LAST, "", ""]
    assert broken(made, trace) == []


def test_the_reason_of_an_unfinished_job_comes_first(trace: Path) -> None:
    made = noted(trace, until_s=15.0)
    assert made.jobs[1].reason == f"still waiting when the run ended; {FIRST}"
    assert broken(made, trace) == []


def test_another_reason_than_the_last_note_is_found(trace: Path) -> None:
    made = noted(trace)
    for reason in ("", FIRST, "forged"):
        assert "records" in broken(made, trace, b=reason)
    assert broken(made, trace, c=LAST) == ["trace"], "a reason that the policy did not note"


def test_explain_tells_when_the_policy_noted_what(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    noted(trace, out=tmp_path / "out")
    assert main(["explain", str(tmp_path / "out"), "--job", "b"]) == 0
    told = capsys.readouterr().out
    assert f"t=10 s: noted by the policy: {FIRST}" in told
    assert f"t=20 s: noted by the policy: {LAST}" in told
    assert told.index(FIRST) < told.index("t=20 s: noted") < told.index("started on")


@pytest.mark.parametrize("text", ["", "  ", "two\nlines", "x" * 201, 7, None])
def test_a_note_is_a_line_of_text(text: Any) -> None:
    def act(state: State, proposal: Proposal) -> None:
        for job in state.pending:
            proposal.note(job, text)

    with pytest.raises(PolicyError, match=r"note\(job a"):
        run(Trace.of([rigid("a", 0, 8, 10)]), acting(act), cluster="n1g8")


def test_a_job_that_has_left_gets_no_note() -> None:
    def act(state: State, proposal: Proposal) -> None:
        note_b(state, proposal)
        for event in state.events:
            if event.kind == "finished" and event.job is not None:
                proposal.note(event.job, "late")

    with pytest.raises(PolicyError, match=r"note\(job a\): it is no longer in the system"):
        run(Trace.of([rigid("a", 0, 8, 10)]), acting(act), cluster="n1g8")


def test_a_copy_keeps_its_notes() -> None:
    class Copies(acting(note_b)):  # type: ignore[misc]
        def schedule(self, state: State) -> Proposal:
            return super().schedule(state).copy()

    made = run(Trace.of([rigid("a", 0, 8, 100), rigid("b", 10, 8, 50)]), Copies, cluster="n1g8")
    assert made.jobs[1].reason == FIRST
