"""What policies see of an instant, wake-ups, errors of policies, and changes of speed. Whole logs are in
`schedules/simulation.yaml`.
"""

from __future__ import annotations

import pytest

from clustersim.cluster import Cluster
from clustersim.engine import Simulation
from clustersim.errors import PolicyError
from clustersim.overheads import Overheads
from clustersim.records import MemoryRecorder
from clustersim.scheduler import JobView, Proposal, Scheduler, State
from clustersim.scheduler.internal import active_of
from clustersim.testing import simulate
from policies.fifo import Fifo
from tests.builders import Acts, free_setup, rigid

CHARGED = Overheads(launch_s=10.0, plain_restart_s=20.0)  # 10 s to start, 30 s to restart, resize or migrate


def test_one_decision_per_instant() -> None:
    seen: list[tuple[float, list[tuple[str, str | None]]]] = []

    def act(state: State, proposal: Proposal) -> None:
        seen.append(
            (state.now, [(event.kind, event.job.id if event.job else None) for event in state.events])
        )
        if state.now == 0.0:
            for job in state.pending:
                proposal.start(job)
            proposal.wake_at = 10.0

    simulate([rigid(name, 0 if name in "abc" else 10, 1, 10) for name in "abcde"], Acts(act), "n1g4")
    (first_s, submitted), (second_s, events) = seen
    assert (first_s, submitted) == (0.0, [("submitted", name) for name in "abc"])
    assert second_s == 10.0
    assert sorted(events[:4], key=str) == [*[("finished", name) for name in "abc"], ("woken", None)]
    assert events[4:] == [("submitted", "d"), ("submitted", "e")]


# Waking up


@pytest.mark.parametrize(
    ("wake_ups", "times"),
    [({0.0: 30.0, 10.0: 20.0, 20.0: 50.0}, [0, 10, 20, 50]), ({0.0: 30.0}, [0, 10, 30])],
    ids=["a new one replaces the old one", "no new one keeps the old one"],
)
def test_wake_ups(wake_ups: dict[float, float], times: list[float]) -> None:
    seen: list[float] = []

    def act(state: State, proposal: Proposal) -> None:
        seen.append(state.now)
        for job in state.pending:
            proposal.start(job)
        proposal.wake_at = wake_ups.get(state.now)

    simulate([rigid("a", 0, 1, 100), rigid("x", 10, 2, 1)], Acts(act), "n1g2", until_s=90)
    assert seen == times


class Periodic(Scheduler):
    """Requests a wake-up every `quantum_s` seconds."""

    def __init__(self, quantum_s: float, lazy: bool = False):
        self.quantum_s, self.lazy, self.decisions = quantum_s, lazy, 0

    def schedule(self, state: State) -> Proposal:
        self.decisions += 1
        proposal = state.proposal()
        for job in () if self.lazy else state.pending:
            proposal.start(job)
        proposal.wake_at = state.now + self.quantum_s
        return proposal


def test_a_periodic_policy_ends_with_its_jobs() -> None:
    policy = Periodic(60.0)
    outcome = simulate([rigid("a", 0, 1, 90), rigid("b", 1000, 1, 90)], policy, "n1g1")
    assert outcome.events[-1][:2] == (1090, "finish")
    assert policy.decisions < 25


# Errors of policies, and progress


class FailsOn(Fifo):
    """Fails in `admit` of one job."""

    def __init__(self, job_id: str):
        self.job_id = job_id

    def admit(self, job: JobView, state: State) -> bool:
        if job.id == self.job_id:
            raise RuntimeError("bang")
        return True


def test_every_job_has_a_record_when_a_policy_fails() -> None:
    """Also those that arrived together with the job on which it failed."""
    jobs = [rigid("a", 0, 1, 5)] + [rigid(j, 10, 1, 50) for j in "bcd"] + [rigid("e", 20, 1, 1)]
    cluster = Cluster(1, 8)
    recorder = MemoryRecorder(cluster)
    with pytest.raises(PolicyError, match=r"FailsOn at t=10 s: admit raised RuntimeError .*bang"):
        Simulation(jobs, free_setup(cluster, FailsOn("c")), recorder).run()
    states = [(record.job_id, record.state) for record in recorder.jobs_by_submission()]
    assert states == [("a", "finished"), *[(name, "unfinished") for name in "bcde"]]


def test_progress_is_reported() -> None:
    seen: list[int] = []
    jobs = [rigid("a", 0, 1, 5), rigid("b", 0, 9, 5), rigid("c", 0, 1, 5)]
    cluster = Cluster(1, 8)
    Simulation(jobs, free_setup(cluster, Fifo()), on_progress=seen.append).run()
    assert seen == [1, 2, 3]


# Changes of speed


def test_a_running_job_changes_its_speed() -> None:
    """100 s of work behind 10 s of overhead, at half speed from t = 5 on and at its own from t = 50 on:
    20 units are done by 50 s, the other 80 take until 130 s.
    """
    cluster = Cluster(1, 8)
    simulation = Simulation([rigid("a", 0, 1, 100)], free_setup(cluster, Fifo(), overheads=CHARGED))
    for time_s, unit_s in ((5.0, 2.0), (50.0, 1.0)):

        def change(_: object, unit_s: float = unit_s) -> None:
            (job,) = simulation.world.state.running
            simulation.enactment.change_speed(active_of(job), unit_s)

        simulation.world.clock.after(time_s, [change])
    recorder = simulation.run()
    assert [(e.time_s, e.event, e.unit_s) for e in recorder.events] == [
        (0, "submit", 1), (0, "start", 1), (5, "rate", 2), (50, "rate", 1), (130, "finish", 0),
    ]  # fmt: skip
    (record,) = recorder.jobs
    assert (record.gpu_seconds, record.lost_s, record.overhead_gpu_s) == (130, 10, 10)


# Snapshots


def test_snapshots_follow_the_cluster() -> None:
    jobs = [rigid("a", 0, 6, 10), rigid("b", 2, 4, 10)]
    cluster = Cluster(2, 4)
    setup = free_setup(cluster, Fifo(), placement="any")
    recorder = Simulation(jobs, setup).run()
    assert [tuple(snapshot) for snapshot in recorder.snapshots] == [
        (0, 6, 2, 1, 0, 0),  # time, allocated, stranded, running, pending, down
        (2, 6, 2, 1, 1, 0),
        (10, 4, 0, 1, 0, 0),
        (20, 0, 0, 0, 0, 0),
    ]


def thrash(state: State, proposal: Proposal) -> None:
    """Takes its GPUs from everything every few seconds, before any launch is paid."""
    for job in state.running:
        proposal.stop(job)
    for job in [] if state.running else state.pending:
        proposal.start(job)
    proposal.wake_at = state.now + 5.0


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        (
            Periodic(60.0, lazy=True),
            r"Periodic at t=.*: woke up 10000 times since t=.*, with 0 jobs running and 1 ",
        ),
        (Acts(thrash), r"Acts at t=.*woke up 10000 times .* got nothing done"),
    ],
)
def test_waking_up_for_ever_without_progress(policy: Scheduler, text: str) -> None:
    with pytest.raises(PolicyError, match=text):
        simulate([rigid("a", 0, 1, 90)], policy, "n1g1", overheads=Overheads())


@pytest.mark.parametrize("answer", [None, "no", 1])
def test_admit_must_answer(answer: object) -> None:
    class Vague(Fifo):
        def admit(self, job: JobView, state: State) -> bool:
            return answer  # type: ignore[return-value]

    with pytest.raises(PolicyError, match="return True or False"):
        simulate([rigid("a", 0, 1, 90)], Vague(), "n1g1")
