"""Concurrent loads in the engine: simultaneous loads share the storage, and no load is charged twice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from clustersim.overheads import Overheads
from clustersim.scheduler import JobView, Proposal, Scheduler, State
from clustersim.speed import Curve
from clustersim.testing import simulate
from tests.builders import Script, elastic
from traces.job import Job

TABLE = {("m", 8): {1: 1.0, 2: 2.0, 4: 3.0, 8: 4.0}}
GB = 1e9
# 1 s to launch; a checkpoint of 60 GB: 6 s to save or load alone on one node, 12 s at half the storage
SHARED = Overheads(
    launch_s=1.0, checkpoint_bytes_per_parameter=1.0, storage_node_bytes_per_s=10 * GB,
    storage_bytes_per_s=10 * GB, storage_shared=True,
)  # fmt: skip
# two jobs start, are stopped, and start again at the same times
TOGETHER = {
    0.0: lambda p, jobs: (p.start(jobs["a"]), p.start(jobs["b"])),
    20.0: lambda p, jobs: (p.stop(jobs["a"]), p.stop(jobs["b"])),
    30.0: lambda p, jobs: (p.start(jobs["a"]), p.start(jobs["b"])),
}


@pytest.fixture(autouse=True)
def _with_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models of the table have 60 GB of checkpoints."""
    from clustersim.testing import outcome

    plain = outcome.TableSpeed.curve

    def curve(self: Any, job: Job) -> Curve:
        return replace(plain(self, job), parameters=60 * GB)

    monkeypatch.setattr(outcome.TableSpeed, "curve", curve)


def tick(at_s: float) -> Job:
    """A tiny job, so that the policy is asked at `at_s`."""
    return Job(f"tick{at_s:g}", at_s, gpus=8, duration_s=1.0)


def test_two_loads_at_once_take_twice_as_long() -> None:
    """Both stopped at t=20, both restarted at t=30: 1 s launch + 6 s save, then 12 s of loading together."""
    jobs = [elastic("a", 0, 1, 100), elastic("b", 0, 1, 100), tick(20), tick(30)]
    outcome = simulate(jobs, Script(TOGETHER), "n2g4", table=TABLE, overheads=SHARED)
    for name in "ab":
        log = [(e.time_s, e.event, e.overhead_s) for e in outcome.events if e.job_id == name]
        assert log == [
            (0, "submit", 0), (0, "start", 1), (20, "preempt", 0), (30, "restart", 7), (49, "loaded", 12),
            (49 + 100 - 19, "finish", 0),
        ]  # fmt: skip
        record = outcome.of(name)
        assert (record.lost_s, record.overhead_gpu_s, record.wait_s) == (1 + 19, 20, 10)


def test_a_load_that_is_given_up_leaves_its_share() -> None:
    """`b` is stopped again 4 s into the loads: `a` has 60 - 20 GB left, now alone. `b` has paid its save."""
    steps = {**TOGETHER, 41.0: lambda p, jobs: p.stop(jobs["b"]), 60.0: lambda p, jobs: p.start(jobs["b"])}
    jobs = [elastic("a", 0, 1, 100), elastic("b", 0, 1, 100), tick(20), tick(30), tick(41), tick(60)]
    outcome = simulate(jobs, Script(steps), "n2g4", table=TABLE, overheads=SHARED)
    loaded = {(e.job_id, e.time_s): e.overhead_s for e in outcome.events if e.event == "loaded"}
    assert loaded == {("a", 45.0): 8.0, ("b", 60.0 + 1 + 6): 6.0}
    assert (outcome.of("b").lost_s, outcome.of("b").finish_s) == (1 + 11 + 7, 67 + 100 - 19)


def test_a_load_alone_takes_what_the_table_says() -> None:
    """With and without sharing a single restart costs the same."""
    steps = {
        0.0: lambda p, jobs: p.start(jobs["a"]),
        20.0: lambda p, jobs: p.resize(jobs["a"], 4),
    }
    ends = []
    for overheads in (SHARED, Overheads(**{**SHARED.stated(), "storage_shared": False})):
        outcome = simulate(
            [elastic("a", 0, 1, 100), tick(20)], Script(steps), "n2g4", table=TABLE, overheads=overheads
        )
        ends.append((outcome.of("a").finish_s, outcome.of("a").lost_s, outcome.of("a").overhead_gpu_s))
    assert ends[0] == pytest.approx(ends[1])


def test_a_resize_in_the_middle_of_a_load_begins_another() -> None:
    """Its state is saved already: 1 s of launch and 6 s of loading follow."""
    steps = {
        0.0: lambda p, jobs: p.start(jobs["a"]),
        20.0: lambda p, jobs: p.resize(jobs["a"], 2),
        30.0: lambda p, jobs: p.resize(jobs["a"], 4),
    }
    outcome = simulate(
        [elastic("a", 0, 1, 100), tick(20), tick(30)], Script(steps), "n2g4", table=TABLE, overheads=SHARED
    )
    assert [(e.time_s, e.event) for e in outcome.events if e.job_id == "a"] == [
        (0, "submit"), (0, "start"), (20, "resize"), (30, "resize"), (37, "loaded"), (37 + 81 / 3, "finish"),
    ]  # fmt: skip
    assert outcome.of("a").lost_s == 1 + 10 + 7


class Paying(Scheduler):
    """Notes what it sees `a` still pay."""

    def __init__(self) -> None:
        self.seen: dict[float, float] = {}
        self.a: JobView | None = None

    def schedule(self, state: State) -> Proposal:
        proposal = state.proposal()
        for view in state.pending:
            if view.id in "ab":
                proposal.start(view)
        for view in state.running:
            if view.id == "a":
                self.seen[state.now] = view.paying_s
                if state.now in (20.0,):
                    proposal.resize(view, 4)
            if view.id == "b" and state.now == 24.0:
                proposal.resize(view, 4)
        proposal.wake_at = state.now + 1 if state.now < 45 else None
        return proposal


def test_a_policy_sees_what_is_left_to_pay_as_of_now() -> None:
    """a loads alone from t=27 and is to be ready at t=33; b joins at t=31 and halves what is left."""
    paying = Paying()
    simulate(
        [elastic("a", 0, 1, 100), elastic("b", 0, 1, 100)], paying, "n2g4", table=TABLE, overheads=SHARED
    )
    assert [paying.seen[t] for t in (21.0, 26.0, 27.0, 30.0)] == pytest.approx([12.0, 7.0, 6.0, 3.0])
    assert [paying.seen[t] for t in (31.0, 32.0, 35.0, 36.0)] == pytest.approx([4.0, 3.0, 0.0, 0.0])
