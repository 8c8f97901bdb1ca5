"""The rules of proposals and of what a policy may see."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from clustersim.errors import PolicyError
from clustersim.overheads import Overheads
from clustersim.scheduler import JobView, Proposal, Scheduler, State
from clustersim.testing import simulate
from policies.fifo import Fifo
from tests.builders import Acts, Script, Step
from traces.job import Job

A = Job("a", 0.0, gpus=2, duration_s=100.0)
B = Job("b", 0.0, gpus=4, duration_s=100.0)
LATE = Job("late", 50.0, gpus=1, duration_s=1.0)
TABLE = {("m", 8): {1: 1.0, 2: 1.6, 4: 3.0, 8: 2.0}}
ELASTIC = Job("e", 0.0, model="m", global_batch=8, gpus=2, iterations=320.0)
SHAPED = Job("s", 0.0, gpus=2, duration_s=100.0, nodes=2, gpus_per_node=1)


def at_start(step: Step, jobs: tuple[Job, ...] = (A, B), cluster: str = "n2g4", **more: Any) -> Any:
    return simulate(jobs, Script({0.0: step}), cluster, table=TABLE, **more)


# What cannot be proposed


def start(job_id: str, *args: Any, **more: Any) -> Step:
    return lambda proposal, jobs: proposal.start(jobs[job_id], *args, **more)


@pytest.mark.parametrize(
    ("step", "text"),
    [
        (start("a", "2"), "gpus='2'.*can run on 2"),
        (start("a", on=()), "do not add up to 2 GPUs"),
        (start("s", on=((0, 2),)), "it asks for 2 nodes with 1 GPUs each; see `in_shape`"),
        (lambda p, jobs: p.compact({jobs["e"]: 3}), r"compact\(job e, gpus=3\): it can run on 1, 2, 4 GPUs"),
    ],
)
def test_illegal_calls_that_no_schedule_can_state(step: Step, text: str) -> None:
    with pytest.raises(PolicyError, match=text):
        at_start(step, (A, B, ELASTIC, SHAPED))


def test_a_job_cannot_be_started_while_it_is_judged() -> None:
    class Eager(Scheduler):
        def admit(self, job: JobView, state: State) -> bool:
            return state.proposal().start(job) is not None

    with pytest.raises(PolicyError, match=r"start\(job a\)"):
        simulate([A], Eager())


# What a draft does


# What the engine takes from `schedule`


class Answers(Scheduler):
    """Returns a given answer."""

    def __init__(self, answer: Callable[[State], Any]):
        self.answer = answer

    def schedule(self, state: State) -> Proposal:
        return self.answer(state)


def test_an_enacted_draft_is_not_reality() -> None:
    jobs = [Job(str(i), 7.0 * i, gpus=1 + i % 4, duration_s=20.0 + i) for i in range(30)]
    proposals: list[Proposal] = []
    changed = 0

    def tamper(state: State) -> Proposal:
        """Change the last proposal after it was enacted."""
        nonlocal changed
        for proposal in proposals[-1:]:
            for job in state.running:
                proposal.stop(job)
                changed += 1
            changed += sum(proposal.start(job) is not None for job in state.pending)
        proposals.append(Fifo().schedule(state))
        return proposals[-1]

    assert simulate(jobs, Answers(tamper), "n2g4").log() == simulate(jobs, Fifo(), "n2g4").log()
    assert changed > 30


def test_anything_but_a_proposal_of_this_decision() -> None:
    """That of an earlier decision would allocate the GPUs of a finished job twice."""
    proposals: list[Proposal] = []

    def keep(state: State) -> Proposal:
        if not proposals:
            proposals.append(state.proposal())
            for job in state.pending:
                proposals[0].start(job)
        return proposals[0]

    with pytest.raises(PolicyError, match="earlier"):
        simulate([A, LATE], Answers(keep))
    for answer in (None, [], Proposal, True, proposals[0]):
        with pytest.raises(PolicyError, match=r"not a proposal made by state.proposal"):
            simulate([A], Answers(lambda state, answer=answer: answer))


@pytest.mark.parametrize("wake_at", [0.0, -1.0, float("nan"), float("inf"), "soon", object()])
def test_impossible_wake_ups(wake_at: Any) -> None:
    policy = Acts(lambda state, proposal: setattr(proposal, "wake_at", wake_at))
    with pytest.raises(PolicyError, match=r"wake_at=.*must be a time after now"):
        simulate([A], policy)


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


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (lambda job: {"a": 0.0}[job.id], r"Acts at t=50 s: .*KeyError at .*late"),
        (lambda job: job.deadline_s, r"Acts at t=50 s: .*TypeError"),
    ],
    ids=["keys that raise when a job begins to wait", "keys that cannot be compared"],
)
def test_wrong_keys_are_the_error_of_the_policy(key: Callable[[JobView], Any], text: str) -> None:
    """Keys are called outside of `schedule`."""
    policy = Acts(lambda state, proposal: list(state.pending_by(key)))
    with pytest.raises(PolicyError, match=text):
        simulate([replace(A, deadline_s=5.0), LATE], policy)


# What a policy sees


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
        assert (other.gpus, other.running, other.started) == (0, False, False)
        assert (other.attained, other.paying_s) == (0.0, 0.0)
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


@pytest.mark.parametrize(
    ("gpus", "iterations", "launch_s", "view"),
    [(4, 100.0, 0.0, (0.0, 0.0, 0, False)), (2, 320.0, 80.0, (200.0, 30.0, 2, True))],
    ids=["of a finished job, though its progress is a sum of thirds", "while it pays"],
)
def test_work_left_overhead_left_gpus_and_whether_it_runs(
    gpus: int, iterations: float, launch_s: float, view: tuple[float, float, int, bool]
) -> None:
    seen: list[tuple[float, float, int, bool]] = []

    def step(proposal: Proposal, jobs: dict[str, JobView]) -> None:
        job = jobs["e"]
        seen.append((job.remaining(), job.paying_s, job.gpus, job.running))

    jobs = (replace(ELASTIC, gpus=gpus, iterations=iterations), LATE)
    policy, overheads = Script({0.0: start("e"), 50.0: step}), Overheads(launch_s=launch_s)
    simulate(jobs, policy, "n2g4", table=TABLE, overheads=overheads)
    assert seen == [pytest.approx(view)]


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

    def watch(state: State, proposal: Proposal) -> None:
        seen[state.now] = {job.id: time for job, time in state.unsettled().items()}
        for job in state.pending:
            proposal.start(job, 2)
        for job in state.running:
            if state.now == 40.0:
                proposal.resize(job, 1)
        proposal.wake_at = next((t for t in (1.0, 10.0, 29.0, 30.0, 40.0, 50.0, 90.0) if t > state.now), None)

    overheads = Overheads(launch_s=5.0, plain_restart_s=20.0, checkpoint_bytes_per_parameter=0.0)
    simulate([ELASTIC], Acts(watch), "n1g4", table=TABLE, overheads=overheads)
    assert list(seen.items())[:8] == [
        (0.0, {}), (1.0, {"e": 30.0}), (10.0, {"e": 30.0}), (29.0, {"e": 30.0}), (30.0, {}), (40.0, {}),
        (50.0, {"e": 90.0}), (90.0, {}),
    ]  # fmt: skip
