"""The rules of proposals and of what a policy may see."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from clustersim.errors import PolicyError
from clustersim.overheads import Overheads
from clustersim.scheduler import JobView, Proposal, Scheduler, State
from clustersim.testing import simulate
from policies.fifo import Fifo
from tests.builders import Script, Step
from traces.job import Job

A = Job("a", 0.0, gpus=2, duration_s=100.0)
B = Job("b", 0.0, gpus=4, duration_s=100.0)
LATE = Job("late", 50.0, gpus=1, duration_s=1.0)
TABLE = {("m", 8): {1: 1.0, 2: 1.6, 4: 3.0, 8: 2.0}}
ELASTIC = Job("e", 0.0, model="m", global_batch=8, gpus=2, iterations=320.0)


def at_start(step: Step, jobs: tuple[Job, ...] = (A, B), cluster: str = "n2g4", **more: Any) -> Any:
    return simulate(jobs, Script({0.0: step}), cluster, table=TABLE, **more)


# What cannot be proposed


def start(job_id: str, *args: Any, **more: Any) -> Step:
    return lambda proposal, jobs: proposal.start(jobs[job_id], *args, **more)


@pytest.mark.parametrize(
    ("step", "text"),
    [
        (start("a", 3), r"start\(job a, gpus=3\): it can run on 2 GPUs"),
        (start("a", 0), "it can run on 2 GPUs"),
        (start("a", -2), "it can run on 2 GPUs"),
        (start("a", "2"), "gpus='2'.*can run on 2"),
        (start("e", 16), "it can run on 1, 2, 4 GPUs"),
        (start("a", on=((0, 1),)), "do not add up to 2 GPUs"),
        (start("a", on=((0, 3),)), "do not add up to 2 GPUs"),
        (start("a", on=()), "do not add up to 2 GPUs"),
        (start("a", on=((2, 2),)), "node 2: 2 GPUs are not free"),
        (start("a", on=((-1, 2),)), "node -1: 2 GPUs are not free"),
        (start("a", on=((0, 1), (0, 1))), "names a node twice"),
        (start("b", on=((0, 5), (1, -1))), "node 0: 5 GPUs are not free"),
        (
            lambda p, jobs: (p.start(jobs["a"]), p.start(jobs["a"])),
            "already runs in this proposal; use resize",
        ),
        (lambda p, jobs: p.stop(jobs["a"]), r"stop\(job a\): it does not run"),
        (lambda p, jobs: (p.start(jobs["a"]), p.stop(jobs["a"]), p.stop(jobs["a"])), r"stop\(job a\)"),
        (
            lambda p, jobs: p.resize(jobs["e"], 2),
            r"resize\(job e\): it does not run in this proposal; use start",
        ),
        (lambda p, jobs: (p.start(jobs["e"]), p.resize(jobs["e"], 3)), "it can run on 1, 2, 4 GPUs"),
        (
            lambda p, jobs: (p.start(jobs["b"], on=((0, 4),)), p.start(jobs["a"], on=((0, 2),))),
            "are not free",
        ),
    ],
)
def test_illegal_calls(step: Step, text: str) -> None:
    with pytest.raises(PolicyError, match=text) as caught:
        at_start(step, (A, B, ELASTIC))
    assert "policy Script at t=0 s" in str(caught.value)


@pytest.mark.parametrize("call", ["start", "stop", "resize"])
def test_jobs_that_left_cannot_be_touched(call: str) -> None:
    """Neither a finished nor a declined job."""
    for victim, declines in (("a", ()), ("b", ("b",))):
        arguments = (2,) if call == "resize" else ()
        steps = {
            0.0: lambda p, jobs: p.start(jobs["a"]),
            100.0: lambda p, jobs, v=victim, x=arguments: getattr(p, call)(jobs[v], *x),
        }
        with pytest.raises(PolicyError, match=f"{call}\\(job {victim}\\): it"):
            simulate((A, B), Script(steps, declines), "n2g4")


def test_a_job_cannot_be_started_while_it_is_judged() -> None:
    class Eager(Scheduler):
        def admit(self, job: JobView, state: State) -> bool:
            return state.proposal().start(job) is not None

    with pytest.raises(PolicyError, match=r"start\(job a\)"):
        simulate([A], Eager())


# What a draft does


def test_start_says_where_or_none() -> None:
    def step(proposal: Proposal, jobs: dict[str, JobView]) -> None:
        assert proposal.fits(8)
        assert not proposal.fits(9)
        assert proposal.start(jobs["b"]) == ((0, 4),)
        assert proposal.start(jobs["a"]) == ((1, 2),)
        assert (proposal.free, proposal.gpus(jobs["a"]), proposal.placement(jobs["e"])) == (2, 2, None)
        assert not proposal.fits(4)
        assert proposal.start(jobs["e"], 4) is None
        assert proposal.start(jobs["e"], 1) == ((1, 1),)
        assert proposal.resize(jobs["e"], 4) is None
        assert proposal.placement(jobs["e"]) == ((1, 1),), "a resize without room changes nothing"
        assert proposal.resize(jobs["e"], 1) == ((1, 1),)
        assert proposal.resize(jobs["e"], 2) == ((1, 2),)
        assert proposal.free == 0
        proposal.stop(jobs["b"])
        assert proposal.free == 4
        assert proposal.start(jobs["b"], on=((0, 4),)) == ((0, 4),)

    outcome = at_start(step, (A, B, ELASTIC))
    assert {event.placement for event in outcome.events if event.job_id == "e" and event.gpus} == {((1, 2),)}


def test_copies_are_independent() -> None:
    def step(proposal: Proposal, jobs: dict[str, JobView]) -> None:
        proposal.start(jobs["a"])
        proposal.wake_at = 7.0
        twin = proposal.copy()
        twin.stop(jobs["a"])
        twin.start(jobs["b"])
        twin.wake_at = 9.0
        assert (proposal.gpus(jobs["a"]), proposal.gpus(jobs["b"]), proposal.free, proposal.wake_at) == (
            2,
            0,
            6,
            7.0,
        )
        assert (twin.gpus(jobs["a"]), twin.gpus(jobs["b"]), twin.free, twin.wake_at) == (0, 4, 4, 9.0)
        proposal.stop(jobs["a"])
        assert twin.free == 4
        assert proposal.free == 8

    outcome = at_start(step)
    assert not outcome.of("a").gpu_seconds


# What the engine takes from `schedule`


class Answers(Scheduler):
    """Returns a given answer."""

    def __init__(self, answer: Callable[[State], Any]):
        self.answer = answer

    def schedule(self, state: State) -> Proposal:
        return self.answer(state)


class Tampering(Fifo):
    """Keeps its last proposal and changes it after it was enacted."""

    def __init__(self) -> None:
        self.last: Proposal | None = None
        self.changed = 0

    def schedule(self, state: State) -> Proposal:
        if self.last is not None:
            for job in state.running:
                self.last.stop(job)
                self.changed += 1
            for job in state.pending:
                self.changed += self.last.start(job) is not None
        self.last = super().schedule(state)
        return self.last


def test_an_enacted_draft_is_not_reality() -> None:
    jobs = [Job(str(i), 7.0 * i, gpus=1 + i % 4, duration_s=20.0 + i) for i in range(30)]
    policy = Tampering()
    assert simulate(jobs, policy, "n2g4").log() == simulate(jobs, Fifo(), "n2g4").log()
    assert policy.changed > 30


@pytest.mark.parametrize("answer", [lambda s: None, lambda s: [], lambda s: Proposal, lambda s: True])
def test_anything_but_a_proposal(answer: Callable[[State], Any]) -> None:
    with pytest.raises(PolicyError, match=r"not a proposal made by state.proposal"):
        simulate([A], Answers(answer))


def test_a_proposal_of_another_run() -> None:
    kept: list[Proposal] = []

    def keep(state: State) -> Proposal:
        kept.append(state.proposal())
        return kept[0]

    simulate([A], Answers(keep))
    with pytest.raises(PolicyError, match=r"not a proposal made by state.proposal"):
        simulate([A], Answers(lambda state: kept[0]))


def test_a_proposal_of_an_earlier_decision() -> None:
    """It describes an earlier state: here it would allocate the GPUs of a finished job twice."""
    kept: list[Proposal] = []

    def stale(state: State) -> Proposal:
        if not kept:
            kept.append(state.proposal())
            for job in state.pending:
                kept[0].start(job)
        return kept[0]

    with pytest.raises(PolicyError, match=r"earlier"):
        simulate([A, LATE], Answers(stale))


@pytest.mark.parametrize("wake_at", [0.0, -1.0, float("nan"), float("inf"), "soon", object()])
def test_impossible_wake_ups(wake_at: Any) -> None:
    def answer(state: State) -> Proposal:
        proposal = state.proposal()
        proposal.wake_at = wake_at
        return proposal

    with pytest.raises(PolicyError, match=r"wake_at=.*must be a time after now"):
        simulate([A], Answers(answer))


@pytest.mark.parametrize(
    "error", [ZeroDivisionError("oh"), KeyError("oh"), RecursionError("oh"), SystemExit("oh")]
)
def test_what_a_policy_raises_is_its_own_error(error: BaseException) -> None:
    def fail(state: State) -> Proposal:
        raise error

    with pytest.raises(
        PolicyError, match=rf"Answers at t=0 s: schedule raised {type(error).__name__} at .*:\d+: '?oh"
    ):
        simulate([A], Answers(fail))


def test_keys_that_raise_are_the_policys_error() -> None:
    """Keys are called when a job begins to wait, outside of `schedule`."""

    def key(job: JobView) -> float:
        if job.id == "late":
            raise ValueError("no key")
        return 0.0

    class Keyed(Scheduler):
        def schedule(self, state: State) -> Proposal:
            state.pending_by(key)
            return state.proposal()

    with pytest.raises(PolicyError, match=r"Keyed at t=50 s: .*ValueError at .*no key"):
        simulate([A, LATE], Keyed())


def test_keys_that_cannot_be_compared_are_the_policys_error() -> None:
    class Keyed(Scheduler):
        def schedule(self, state: State) -> Proposal:
            state.pending_by(deadline)
            return state.proposal()

    def deadline(job: JobView) -> float | None:
        return job.deadline_s

    jobs = [Job("x", 0.0, gpus=1, duration_s=1.0, deadline_s=5.0), Job("y", 1.0, gpus=1, duration_s=1.0)]
    with pytest.raises(PolicyError, match=r"Keyed at t=1 s: .*TypeError"):
        simulate(jobs, Keyed())


# What a policy sees


def test_pending_is_in_order_of_submission() -> None:
    seen: list[list[str]] = []

    def look(proposal: Proposal, jobs: dict[str, JobView]) -> None:
        seen.append([job.id for job in State(proposal._facts).pending])

    def preempt(proposal: Proposal, jobs: dict[str, JobView]) -> None:
        look(proposal, jobs)
        proposal.stop(jobs["a"])
        proposal.stop(jobs["b"])
        proposal.wake_at = 60.0

    steps = {0.0: lambda p, jobs: (p.start(jobs["b"]), p.start(jobs["a"])), 50.0: preempt, 60.0: look}
    simulate((A, B, LATE), Script(steps), "n2g4")
    assert seen == [["late"], ["a", "b", "late"]]


def test_views_show_what_a_scheduler_can_know() -> None:
    def step(proposal: Proposal, jobs: dict[str, JobView]) -> None:
        job = jobs["e"]
        assert (job.id, job.model, job.requested, job.gpus, job.running, job.started) == (
            "e",
            "m",
            2,
            2,
            True,
            True,
        )
        assert job.sizes == (1, 2, 4), "8 GPUs are slower than 4 and never worth it"
        assert job.can_run_on(8)
        assert not job.can_run_on(16)
        assert (job.rate(4), job.rate(8), job.rate(3)) == (pytest.approx(3.0), pytest.approx(2.0), 0.0)
        # 20 of 50 s went into the launch; 30 s at 1.6/s are done
        assert job.attained == 100.0
        assert job.remaining() == pytest.approx(170.0)
        assert job.remaining(1) == pytest.approx(320.0 - 48.0)
        assert job.remaining(3) == float("inf")
        assert job.paying_s == 0.0
        assert job.productive_s == 30.0
        assert job.restart_s(4) == job.start_cost_s(4) == pytest.approx(50.0)
        other = jobs["late"]
        assert (other.gpus, other.running, other.started, other.attained, other.paying_s) == (
            0,
            False,
            False,
            0.0,
            0.0,
        )
        assert proposal._facts.now_s == 50.0
        assert (other.productive_s, other.start_cost_s(1)) == (0.0, 20.0)
        assert proposal.running() == [job]
        proposal.stop(job)
        proposal.start(other)
        assert proposal.running() == [other]
        assert repr(job) == "<job e: 2 GPUs>"
        seen.append(job.id)

    seen: list[str] = []
    overheads = Overheads(launch_s=20.0, plain_restart_s=30.0)
    steps = {0.0: start("e"), 50.0: step, 60.0: start("e")}
    simulate((ELASTIC, LATE), Script(steps), "n2g4", table=TABLE, overheads=overheads)
    assert seen == ["e"]


def test_a_finished_job_has_nothing_left() -> None:
    """A view kept by the policy shows it, even where the progress is a sum of thirds."""
    seen: list[tuple[float, int, bool]] = []

    def step(proposal: Proposal, jobs: dict[str, JobView]) -> None:
        seen.append((jobs["e"].remaining(), jobs["e"].gpus, jobs["e"].running))

    jobs = (Job("e", 0.0, model="m", global_batch=8, gpus=4, iterations=100.0), LATE)
    simulate(jobs, Script({0.0: start("e"), 50.0: step}), "n2g4", table=TABLE)
    assert seen == [(0.0, 0, False)]


def test_paying_is_what_is_left_of_the_overhead() -> None:
    seen: list[tuple[float, float]] = []

    def step(proposal: Proposal, jobs: dict[str, JobView]) -> None:
        seen.append((jobs["e"].paying_s, jobs["e"].remaining()))

    simulate(
        (ELASTIC, LATE),
        Script({0.0: start("e"), 50.0: step}),
        table=TABLE,
        overheads=Overheads(launch_s=80.0),
    )
    assert seen == [(30.0, pytest.approx(200.0))]


def test_logged_durations_are_behind_the_oracle() -> None:
    def peek(proposal: Proposal, jobs: dict[str, JobView]) -> None:
        with pytest.raises(PolicyError, match=r"job a does not state its work.*oracle_remaining"):
            jobs["a"].remaining()
        oracle.append(jobs["a"].oracle_remaining())

    oracle: list[float] = []
    at_start(peek)
    assert oracle == [100.0]


def test_a_job_settles_when_it_has_worked_for_as_long_as_a_restart_takes() -> None:
    """Started at 0 with a launch of 5 s, a restart of 25 s: it works from 5 s on and has settled at 30 s; its
    resize at 40 s makes it pay until 65 s, and unsettled until 90 s.
    """
    seen: dict[float, dict[str, float]] = {}

    class Watching(Scheduler):
        def schedule(self, state: State) -> Proposal:
            seen[state.now] = {job.id: time for job, time in state.unsettled().items()}
            proposal = state.proposal()
            for job in state.pending:
                proposal.start(job, 2)
            for job in state.running:
                if state.now == 40.0:
                    proposal.resize(job, 1)
            proposal.wake_at = next(
                (t for t in (1.0, 10.0, 29.0, 30.0, 40.0, 50.0, 90.0) if t > state.now), None
            )
            return proposal

    overheads = Overheads(launch_s=5.0, plain_restart_s=20.0, checkpoint_bytes_per_parameter=0.0)
    simulate([ELASTIC], Watching(), "n1g4", table=TABLE, overheads=overheads)
    assert {t: seen[t] for t in (0.0, 1.0, 10.0, 29.0, 30.0, 40.0, 50.0, 90.0)} == {
        0.0: {}, 1.0: {"e": 30.0}, 10.0: {"e": 30.0}, 29.0: {"e": 30.0}, 30.0: {}, 40.0: {},
        50.0: {"e": 90.0}, 90.0: {},
    }  # fmt: skip
