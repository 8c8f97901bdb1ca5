"""What policies see: of jobs that misstate their work the statement, and never the truth; past and quotas."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import clustersim
from clustersim.audit.folder import check_run
from clustersim.cli import main
from clustersim.errors import PolicyError
from clustersim.failures import Failures
from clustersim.jobs.active import LEAST_LEFT
from clustersim.overheads import Overheads
from clustersim.records import NOTE, Run
from clustersim.runs import Trace, run
from clustersim.scheduler import JobView, Proposal, State
from clustersim.testing import Outcome, simulate
from tests.builders import Acts, acting, elastic, rigid
from tests.tables import TABLES
from traces.job import Job

TABLE = {("m", 8): {1: 1.0, 2: 2.0, 4: 3.0}, ("m", 4): {1: 4.0}, ("m", 16): {1: 0.25}}
Look = Callable[[JobView], float]


def seen(job: Job, look: Look, **settings: Any) -> tuple[dict[float, float], Outcome]:
    """What `look` says of a job, by the second, and the run."""
    looks: dict[float, float] = {}

    def act(state: State, proposal: Proposal) -> None:
        for view in state.pending:
            proposal.start(view)
        for view in (*state.running, *state.pending):
            looks[state.now] = look(view)
            proposal.wake_at = state.now + 1

    outcome = simulate([job], Acts(act), "n1g4", table=TABLE, **settings)
    return looks, outcome


def left(job: JobView) -> float:
    return job.remaining(1)


def test_a_policy_sees_the_own_columns_of_a_trace() -> None:
    texts = {"x_queue": "blue", "x_task": "17_2", "x_end": "nan"}
    job = rigid("a", 0.0, 1, 1.0, extra=(("x_loss", "0.5"), *texts.items()))
    looks, _ = seen(job, lambda view: dict(view.extra))  # type: ignore[arg-type, return-value]
    assert looks[0.0] == {"x_loss": 0.5, **texts}


LOOKS = [
    left, lambda job: job.oracle_remaining(1), lambda job: job.work_left, lambda job: job.oracle_work_left
]  # fmt: skip


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize(("iterations", "stated"), [(10, 25.0), (20, 10.0)])
def test_a_job_that_does_less_or_more_than_it_states(look: Look, iterations: int, stated: float) -> None:
    """One iteration a second: 15 are left when the first ends. From nine tenths of the 10 stated on, a tenth
    of them is left until the 20th is done.
    """
    looks, outcome = seen(elastic("a", 0, 1, iterations, stated_iterations=stated), look)
    assert looks == pytest.approx({float(t): max(stated - t, LEAST_LEFT * stated) for t in range(iterations)})
    assert outcome.of("a").finish_s == iterations


def test_a_job_outlives_its_statement_once_it_has_done_all_of_it() -> None:
    for stated, since_s in ((10.0, 10.0), (20.0, 99.0), (None, 99.0), (25.0, 99.0)):
        found, _ = seen(elastic("a", 0, 1, 20, stated_iterations=stated), lambda job: job.outlived)
        assert found == {float(t): t >= since_s for t in range(20)}


def test_every_count_tells_the_same_work() -> None:
    found, _ = seen(
        elastic("a", 0, 1, 20, stated_iterations=12.0),
        lambda job: job.remaining(4) * job.rate(4) - job.remaining() * job.rate(1),
    )
    assert max(map(abs, found.values())) < 1e-12


@pytest.mark.parametrize("phases", [None, "0.5:4 0.5:16", "0.5:16 0.5:4"])
def test_the_time_left_never_grows_while_a_job_runs(phases: str | None) -> None:
    """On which `run_by(falling=True)` relies; a unit takes half a second with batch 4, and two with 16."""
    job, run_s = elastic("a", 0, 1, 20, phases=phases), 25.0 if phases else 20.0
    for stated in (1e-12, 3.0, 19.9, 20.0, 20.1, 60.0, 1e12):
        found, _ = seen(replace(job, stated_iterations=stated), lambda job: job.oracle_remaining())
        values = list(found.values())
        assert values[0] == pytest.approx(run_s * stated / 20)
        assert values == sorted(values, reverse=True)
        least = LEAST_LEFT * values[0] if stated != 20.0 else 0.0
        assert values[-1] == pytest.approx(max(least, values[0] - run_s + 1))
    ends, _ = seen(replace(job, estimate_s=run_s), lambda job: job.estimated_end_s())
    assert set(ends.values()) == {run_s}


def test_a_true_statement_changes_no_digit() -> None:
    job = elastic("a", 0, 2, 20 / 3)
    for look in (*LOOKS, lambda job: job.oracle_remaining(), lambda job: job.oracle_remaining(4)):
        assert seen(job, look)[0] == seen(replace(job, stated_iterations=20 / 3), look)[0]


def test_what_the_engine_charges_is_about_the_truth() -> None:
    """Records, restarts and their loads know nothing of the statement."""
    job, charged = elastic("a", 0, 1, 20, deadline_s=25.0), Overheads(plain_restart_s=3.0)
    records = [
        seen(replace(job, stated_iterations=stated), left, overheads=charged)[1].records
        for stated in (None, 1.0, 1e6)
    ]
    assert records[0] == records[1] == records[2]


def test_the_estimate_of_the_run_time_is_a_statement_of_its_own() -> None:
    """`estimate_s` less the work done, whatever iterations are stated."""
    job = elastic("a", 0, 1, 20, estimate_s=12.0)
    plain, _ = seen(job, lambda job: job.estimated_remaining())
    assert plain == pytest.approx({float(t): 12.0 - t for t in range(20)})
    assert seen(replace(job, stated_iterations=50.0), lambda job: job.estimated_remaining())[0] == plain
    ends, _ = seen(replace(job, stated_iterations=50.0), lambda job: job.estimated_end_s())
    assert set(ends.values()) == {12.0}


def test_work_lost_in_a_failure_is_stated_to_be_left_again() -> None:
    """Unsaved work is lost: what is left by the statement grows by the same number of iterations."""
    failures = Failures(mtbf_gpu_h=0.01, kinds={"a": (1, 0.001)})
    charged = Overheads(launch_s=0.0, plain_restart_s=0.0, checkpoint_interval_s=7.0)
    job = elastic("a", 0, 1, 100)
    setting = {"failures": failures, "overheads": charged, "seed": 1}
    truth, outcome = seen(job, left, **setting)
    assert outcome.of("a").lost_work_s > 0
    over, _ = seen(replace(job, stated_iterations=150.0), left, **setting)
    assert over == pytest.approx({t: value + 50.0 for t, value in truth.items()})


def test_jobs_of_a_duration_are_known_by_the_oracle_alone() -> None:
    found, _ = seen(rigid("a", 0, 1, 5), lambda job: job.oracle_remaining())
    assert found == pytest.approx({float(t): 5.0 - t for t in range(5)})


# Past, quotas


PAST = TABLES["the past of a job"]
"""By second: GPU-seconds of service, those of work, and seconds of waiting."""


def test_the_past_of_a_job() -> None:
    """It runs from 10 s on, is stopped at 50 s and runs again from 80 s."""
    past: dict[float, tuple[float, float, float]] = {}

    def act(state: State, proposal: Proposal) -> None:
        for job in [*state.running, *state.pending]:
            past[state.now] = job.attained, job.productive_gpu_s, job.waited_s
            runs = 10 <= state.now < 50 or state.now >= 80
            if runs and not job.running:
                proposal.start(job)
            elif not runs and job.running:
                proposal.stop(job)
            proposal.wake_at = state.now + 5

    charged = Overheads(launch_s=20.0, plain_restart_s=10.0)
    simulate([rigid("a", 0, 4, 100)], Acts(act), "n1g4", overheads=charged)
    assert {time_s: past[time_s] for time_s in PAST} == {
        time_s: pytest.approx(PAST[time_s]) for time_s in PAST
    }


def test_a_policy_sees_quotas_and_what_every_tenant_holds() -> None:
    used: list[tuple[float, int, int, int]] = []

    def act(state: State, proposal: Proposal) -> None:
        used.append((state.now, state.used("red"), state.used("blue"), state.used("green")))
        for job in state.pending:
            proposal.start(job)
        assert state.used("red") == used[-1][1], "a draft is not yet reality"
        assert (state.quota("red"), state.quota("green"), dict(state.quotas)) == (4, 0, {"red": 4})

    jobs = [
        rigid("a", 0, 4, 10.0, tenant="red"),
        rigid("b", 1, 2, 4.0, tenant="red"),
        rigid("c", 2, 1, 20.0, tenant="blue", priority=3),
    ]
    clustersim.run(jobs, acting(act), cluster="n1g8", overheads=None, quotas={"red": 4})
    assert used == [
        (0, 0, 0, 0), (1, 4, 0, 0), (2, 6, 0, 0), (5, 4, 1, 0), (10, 0, 1, 0), (22, 0, 0, 0)
    ]  # fmt: skip


# Notes on jobs


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


@pytest.mark.parametrize("text", ["", "  ", "two\nlines", "x" * 201, 7, None, "late"])
def test_a_note_is_a_line_of_text_on_a_job_of_the_system(text: Any) -> None:
    def act(state: State, proposal: Proposal) -> None:
        note_b(state, proposal)
        for event in state.events:
            if event.job is not None and (event.kind == "finished" or text != "late"):
                proposal.note(event.job, text)

    says = r"note\(job a\): it is no longer in the system" if text == "late" else r"note\(job a"
    with pytest.raises(PolicyError, match=says):
        run(Trace.of([rigid("a", 0, 8, 10)]), acting(act), cluster="n1g8")


def test_a_copy_keeps_its_notes() -> None:
    class Copies(acting(note_b)):  # type: ignore[misc]
        def schedule(self, state: State) -> Proposal:
            return super().schedule(state).copy()

    made = run(Trace.of([rigid("a", 0, 8, 100), rigid("b", 10, 8, 50)]), Copies, cluster="n1g8")
    assert made.jobs[1].reason == FIRST
