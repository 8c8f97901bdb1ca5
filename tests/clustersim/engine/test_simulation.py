"""The engine: whole event logs of tiny scenarios, worked out by hand, and its laws."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from clustersim.cluster import Cluster
from clustersim.engine import Simulation
from clustersim.errors import PolicyError
from clustersim.overheads import Overheads
from clustersim.records import MemoryRecorder
from clustersim.scheduler import JobView, Proposal, Scheduler, State
from clustersim.scheduler.internal import active_of
from clustersim.speed import Curve, SpeedOnOneType
from clustersim.testing import simulate
from policies.fifo import Fifo
from policies.srtf import Srtf
from tests.builders import Script, elastic, free_setup, rigid
from traces.job import Job

TABLE = {("m", 8): {1: 1.0, 2: 2.0, 4: 3.0}}
CHARGED = Overheads(launch_s=10.0, plain_restart_s=20.0)  # 10 s to start, 30 s to restart, resize or migrate


# Whole logs, by hand


def test_first_come_first_served() -> None:
    outcome = simulate([rigid("a", 5, 2, 10), rigid("b", 5, 3, 4), rigid("c", 6, 2, 1)], Fifo(), "n1g4")
    assert outcome.log() == [
        (5, "submit", "a", 0), (5, "submit", "b", 0), (5, "start", "a", 2), (6, "submit", "c", 0),
        (15, "finish", "a", 0), (15, "start", "b", 3), (19, "finish", "b", 0), (19, "start", "c", 2),
        (20, "finish", "c", 0),
    ]  # fmt: skip
    b = outcome.of("b")
    assert (b.start_s, b.finish_s, b.jct_s, b.queue_s, b.wait_s, b.gpu_seconds) == (15, 19, 14, 10, 10, 12)
    assert (b.state, b.gpus, b.isolated_s, b.lost_s, b.reason) == ("finished", 3, 4, 0, "")


def test_preemption_keeps_progress() -> None:
    """A long job has run 10 of 100 s when a short one takes its GPU for 20 s."""
    outcome = simulate([rigid("long", 0, 1, 100), rigid("short", 10, 1, 20)], Srtf(), "n1g1")
    assert outcome.log() == [
        (0, "submit", "long", 0), (0, "start", "long", 1),
        (10, "submit", "short", 0), (10, "preempt", "long", 0), (10, "start", "short", 1),
        (30, "finish", "short", 0), (30, "restart", "long", 1), (120, "finish", "long", 0),
    ]  # fmt: skip
    long = outcome.of("long")
    assert (long.preemptions, long.restarts, long.wait_s, long.queue_s, long.gpu_seconds) == (
        1,
        1,
        20,
        0,
        100,
    )


def test_overheads_in_closed_form() -> None:
    """Start 10 s; after 40 s of work preempted; restart 30 s; then the other 60 s."""
    jobs = [rigid("long", 0, 1, 100), rigid("short", 50, 1, 20)]
    outcome = simulate(jobs, Srtf(), "n1g1", overheads=CHARGED)
    long, short = outcome.of("long"), outcome.of("short")
    assert (short.start_s, short.finish_s) == (50, 80)
    assert (long.finish_s, long.lost_s, long.overhead_gpu_s) == (80 + 30 + 60, 40, 40)
    assert [event.overhead_s for event in outcome.events if event.gpus] == [10, 10, 30]


def test_an_overhead_cut_short_is_paid_as_far_as_it_went() -> None:
    """Preempted 4 s into its launch, it has lost 4 s and has nothing to save or load: another launch."""
    steps = {
        0.0: lambda p, jobs: p.start(jobs["a"]),
        4.0: lambda p, jobs: p.stop(jobs["a"]),
        5.0: lambda p, jobs: p.start(jobs["a"]),
    }
    jobs = [rigid("a", 0, 1, 100), rigid("x", 4, 4, 1), rigid("y", 5, 4, 1)]
    record = simulate(jobs, Script(steps), "n1g4", overheads=CHARGED).of("a")
    assert (record.finish_s, record.lost_s, record.wait_s, record.gpu_seconds) == (5 + 10 + 100, 14, 1, 114)


def test_resize_pays_and_goes_on_at_the_new_rate() -> None:
    """120 iterations: 10 s launch, 30 s at 2/s, 30 s resize, the other 60 at 3/s."""
    steps = {0.0: lambda p, jobs: p.start(jobs["e"]), 40.0: lambda p, jobs: p.resize(jobs["e"], 4)}
    jobs = [elastic("e", 0, 2, 120), rigid("x", 40, 1, 1)]
    outcome = simulate(jobs, Script(steps), "n1g4", table=TABLE, overheads=CHARGED)
    assert [entry for entry in outcome.log() if entry[2] == "e"] == [
        (0, "submit", "e", 0), (0, "start", "e", 2), (40, "resize", "e", 4), (90, "finish", "e", 0),
    ]  # fmt: skip
    record = outcome.of("e")
    assert (record.resizes, record.preemptions, record.restarts, record.migrations) == (1, 0, 0, 0)
    assert (record.gpu_seconds, record.overhead_gpu_s, record.isolated_s) == (2 * 40 + 4 * 50, 20 + 120, 60)


def test_growing_into_ones_own_gpus_moves_nothing_else() -> None:
    steps = {
        0.0: lambda p, jobs: (p.start(jobs["e"]), p.start(jobs["f"])),
        10.0: lambda p, jobs: p.resize(jobs["e"], 1),
    }
    jobs = [elastic("e", 0, 2, 120), elastic("f", 0, 2, 120), rigid("x", 10, 1, 1)]
    outcome = simulate(jobs, Script(steps), "n2g4", table=TABLE)
    places = [event.placement for event in outcome.events if event.job_id == "e" and event.gpus]
    assert places == [((0, 2),), ((0, 1),)]
    assert outcome.of("f").migrations == 0


def test_migration_and_exchange() -> None:
    """Two jobs change places in one decision; both pay, neither is preempted."""

    def exchange(proposal: Proposal, jobs: dict[str, JobView]) -> None:
        proposal.stop(jobs["a"])
        proposal.stop(jobs["b"])
        proposal.start(jobs["a"], on=((1, 4),))
        proposal.start(jobs["b"], on=((0, 4),))

    steps = {0.0: lambda p, jobs: (p.start(jobs["a"]), p.start(jobs["b"])), 20.0: exchange}
    jobs = [rigid("a", 0, 4, 50), rigid("b", 0, 4, 50), rigid("x", 20, 1, 1)]
    outcome = simulate(jobs, Script(steps), "n2g4", overheads=CHARGED)
    assert [(e.event, e.job_id, e.placement) for e in outcome.events if e.time_s == 20][1:] == [
        ("migrate", "a", ((1, 4),)),
        ("migrate", "b", ((0, 4),)),
    ]
    assert [outcome.of(j).migrations for j in "ab"] == [1, 1]
    assert [outcome.of(j).finish_s for j in "ab"] == [20 + 30 + 40] * 2


def test_a_preempted_job_counts_its_next_start_as_a_restart_even_elsewhere() -> None:
    steps = {
        0.0: lambda p, jobs: p.start(jobs["e"]),
        10.0: lambda p, jobs: p.stop(jobs["e"]),
        20.0: lambda p, jobs: p.start(jobs["e"], 4),
    }
    jobs = [elastic("e", 0, 2, 80), rigid("x", 10, 1, 1), rigid("y", 20, 1, 1)]
    record = simulate(jobs, Script(steps), "n1g4", table=TABLE).of("e")
    assert (record.preemptions, record.restarts, record.resizes) == (1, 1, 0)
    assert (record.wait_s, record.finish_s) == (10, 40)


# Order within an instant


def test_completions_give_back_before_submissions_are_placed() -> None:
    """At t=10 `a` ends and `b` comes; whichever the heap holds first, `b` starts at once."""
    for submit_first in (True, False):
        ids = ("0", "1") if submit_first else ("1", "0")
        outcome = simulate([rigid(ids[0], 0, 4, 10), rigid(ids[1], 10, 4, 5)], Fifo(), "n1g4")
        assert outcome.of(ids[1]).start_s == 10


def test_one_decision_per_instant() -> None:
    policy = Script({0.0: lambda p, jobs: [p.start(job) for job in jobs.values()]})
    policy.steps[0.0] = lambda p, jobs: [p.start(jobs[j]) for j in "abc"] and setattr(p, "wake_at", 10.0)
    simulate(
        [rigid(j, 0, 1, 10) for j in "abc"] + [rigid("d", 10, 1, 1), rigid("e", 10, 1, 1)], policy, "n1g4"
    )
    assert policy.seen[0] == (0.0, [("submitted", "a"), ("submitted", "b"), ("submitted", "c")])
    assert policy.seen[1][0] == 10.0
    assert sorted(policy.seen[1][1][:4], key=str) == [
        ("finished", "a"),
        ("finished", "b"),
        ("finished", "c"),
        ("woken", None),
    ]
    assert policy.seen[1][1][4:] == [("submitted", "d"), ("submitted", "e")]
    assert len(policy.seen) == 2


def test_ties_are_served_in_order_of_submission_and_id() -> None:
    jobs = [rigid(i, 0, 1, 1) for i in ("10", "9", "b", "a")]
    outcome = simulate(jobs, Fifo(), "n1g1")
    assert [record.job_id for record in outcome.records] == ["9", "10", "a", "b"]


def test_declined_jobs_are_rejected_with_a_reason() -> None:
    outcome = simulate([rigid("a", 3, 1, 1)], Script({}, ("a",)), "n1g1")
    assert outcome.log() == [(3, "submit", "a", 0), (3, "reject", "a", 0)]
    assert (outcome.of("a").state, outcome.of("a").reason) == ("rejected", "declined by the policy")


def test_impossible_jobs_are_rejected_and_the_run_goes_on() -> None:
    jobs = [
        rigid("wide", 0, 9, 10, deadline_s=50.0),
        elastic("greedy", 0, 9, 10),
        elastic("bounded", 0, 8, 10, min_gpus=8, max_gpus=8),
        Job("other", 0, model="m", global_batch=3, gpus=1, iterations=5.0),
        rigid("fine", 0, 8, 10),
    ]
    outcome = simulate(jobs, Fifo(), "n2g4", table=TABLE)
    reasons = {record.job_id: record.reason for record in outcome.records if record.state == "rejected"}
    assert reasons == {
        "wide": "asks for 9 GPUs, the cluster has 8",
        "greedy": "asks for 9 GPUs, the cluster has 8",
        "bounded": "the throughput table has no speed for m between 8 and 8 GPUs",
        "other": "the throughput table has no row for m with global batch 3",
    }
    assert outcome.of("fine").finish_s == 10
    assert outcome.of("wide").deadline_met is False


def test_a_request_that_cannot_run_is_raised_and_noted() -> None:
    table = {("m", 8): {4: 1.0, 8: 2.0}}
    outcome = simulate([elastic("e", 0, 2, 10)], Fifo(), "n1g8", table=table)
    record = outcome.of("e")
    assert (record.gpus, record.finish_s) == (4, 10)
    assert record.reason == "asked for 2 GPUs, which cannot run it; given 4"


# Waking up


def test_a_new_wake_up_replaces_the_old_one() -> None:
    steps: dict[float, Any] = {
        0.0: lambda p, jobs: (p.start(jobs["a"]), setattr(p, "wake_at", 30.0)),
        10.0: lambda p, jobs: setattr(p, "wake_at", 20.0),
        20.0: lambda p, jobs: setattr(p, "wake_at", 50.0),
    }
    policy = Script(steps)
    simulate([rigid("a", 0, 1, 100), rigid("x", 10, 2, 1)], policy, "n1g2", until_s=90)
    assert [time for time, _ in policy.seen] == [0, 10, 20, 50]


def test_no_wake_up_keeps_the_old_one() -> None:
    policy = Script({0.0: lambda p, jobs: (p.start(jobs["a"]), setattr(p, "wake_at", 30.0))})
    simulate([rigid("a", 0, 1, 100), rigid("x", 10, 2, 1)], policy, "n1g2", until_s=90)
    assert [time for time, _ in policy.seen] == [0, 10, 30]


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


def test_waking_up_for_ever_without_running_anything() -> None:
    text = r"Periodic at t=.*woke up 10000 times since t=.* got nothing done, with 0 jobs running and 1 jobs"
    with pytest.raises(PolicyError, match=text):
        simulate([rigid("a", 0, 1, 90)], Periodic(60.0, lazy=True), "n1g1")


# How a run ends


def test_until_stops_the_clock() -> None:
    jobs = [
        rigid("done", 0, 1, 40),
        rigid("runs", 0, 1, 100),
        rigid("waits", 10, 2, 5),
        rigid("later", 60, 1, 1),
    ]
    outcome = simulate(jobs, Fifo(), "n1g2", until_s=50.0, overheads=CHARGED)
    states = {record.job_id: (record.state, record.reason) for record in outcome.records}
    assert states == {
        "done": ("unfinished", "still running when the run ended"),
        "runs": ("unfinished", "still running when the run ended"),
        "waits": ("unfinished", "still waiting when the run ended"),
        "later": ("unfinished", "the run ended before its submission"),
    }
    runs, waits = outcome.of("runs"), outcome.of("waits")
    assert (runs.gpu_seconds, runs.overhead_gpu_s, runs.finish_s, runs.jct_s) == (50, 10, None, None)
    assert (waits.wait_s, waits.start_s) == (40, None)


@pytest.mark.parametrize("until_s", [0.0, 3.0, 5.0])
def test_until_before_anything_happens(until_s: float) -> None:
    outcome = simulate([rigid("a", 5, 1, 40)], Fifo(), "n1g1", until_s=until_s)
    assert not outcome.events
    assert outcome.of("a").reason == "the run ended before its submission"


def test_what_happens_exactly_at_until_is_not_simulated() -> None:
    outcome = simulate([rigid("a", 0, 1, 40)], Fifo(), "n1g1", until_s=40.0)
    assert outcome.of("a").state == "unfinished"
    assert outcome.of("a").gpu_seconds == 40


def test_a_job_that_the_policy_never_runs() -> None:
    outcome = simulate(
        [rigid("a", 0, 1, 40), rigid("b", 7, 1, 1)], Periodic(1.0, lazy=True), "n1g1", until_s=9.0
    )
    assert [record.state for record in outcome.records] == ["unfinished"] * 2

    class Idle(Scheduler):
        def schedule(self, state: State) -> Proposal:
            return state.proposal()

    record = simulate([rigid("a", 0, 1, 40), rigid("b", 7, 1, 1)], Idle(), "n1g1").of("a")
    assert (record.state, record.wait_s) == ("unfinished", 7)
    assert record.reason == "the policy never ran it again, and nothing more was to happen"


def test_the_run_ends_with_its_last_event() -> None:
    """A completion that became stale when its job grew lies far behind the true end."""
    steps = {0.0: lambda p, jobs: p.start(jobs["e"], 1), 10.0: lambda p, jobs: p.resize(jobs["e"], 4)}
    jobs = [elastic("e", 0, 1, 1000), rigid("never", 10, 4, 1)]
    recorder = Simulation(jobs, free_setup(Cluster(1, 4), Script(steps), TABLE)).run()
    by_id = {record.job_id: record for record in recorder.jobs}
    assert recorder.end_s == by_id["e"].finish_s == 10 + 990 / 3
    assert by_id["never"].wait_s == 990 / 3


def test_no_jobs_at_all() -> None:
    outcome = simulate([], Fifo())
    assert outcome.events == ()
    assert outcome.records == ()


class FailsOn(Scheduler):
    """Fails in `admit` of one job."""

    def __init__(self, job_id: str):
        self.job_id = job_id

    def admit(self, job: JobView, state: State) -> bool:
        if job.id == self.job_id:
            raise RuntimeError("bang")
        return True

    def schedule(self, state: State) -> Proposal:
        proposal = state.proposal()
        for job in state.pending:
            proposal.start(job)
        return proposal


def test_every_job_has_a_record_when_a_policy_fails() -> None:
    """Also those that arrived together with the job on which it failed."""
    jobs = [rigid("a", 0, 1, 5)] + [rigid(j, 10, 1, 50) for j in "bcd"] + [rigid("e", 20, 1, 1)]
    cluster = Cluster(1, 8)
    recorder = MemoryRecorder(cluster)
    with pytest.raises(PolicyError, match=r"FailsOn at t=10 s: admit raised RuntimeError .*bang"):
        Simulation(jobs, free_setup(cluster, FailsOn("c"), TABLE), recorder).run()
    states = {record.job_id: record.state for record in recorder.jobs}
    assert states == {
        "a": "finished",
        "b": "unfinished",
        "c": "unfinished",
        "d": "unfinished",
        "e": "unfinished",
    }
    assert len(recorder.jobs_by_submission()) == 5


def test_progress_is_reported() -> None:
    seen: list[int] = []
    jobs = [rigid("a", 0, 1, 5), rigid("b", 0, 9, 5), rigid("c", 0, 1, 5)]
    cluster = Cluster(1, 8)
    Simulation(jobs, free_setup(cluster, Fifo(), TABLE), on_progress=seen.append).run()
    assert seen == [1, 2, 3]


# Changes of speed


def test_a_running_job_changes_its_speed() -> None:
    """100 s of work behind 10 s of overhead, at half speed from t = 5 on and at its own from t = 50 on:
    20 units are done by 50 s, the other 80 take until 130 s.
    """
    cluster = Cluster(1, 8)
    simulation = Simulation([rigid("a", 0, 1, 100)], free_setup(cluster, Fifo(), TABLE, overheads=CHARGED))
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


# Records


def test_records_state_every_field() -> None:
    """Records are built field by field; a missing one would be an AttributeError."""
    cluster = Cluster(1, 8)
    jobs = [rigid("a", 0, 1, 100), rigid("wide", 0, 9, 100), rigid("late", 500, 1, 100)]
    recorder = Simulation(
        jobs, free_setup(cluster, Fifo(), TABLE, overheads=Overheads(), until_s=300.0)
    ).run()
    states = {record.job_id: asdict(record)["state"] for record in recorder.jobs}
    assert states == {"a": "finished", "wide": "rejected", "late": "unfinished"}


# Snapshots


def test_snapshots_follow_the_cluster() -> None:
    jobs = [rigid("a", 0, 6, 10), rigid("b", 2, 4, 10)]
    cluster = Cluster(2, 4)
    setup = free_setup(cluster, Fifo(), TABLE, placement="any")
    recorder = Simulation(jobs, setup).run()
    assert [tuple(snapshot) for snapshot in recorder.snapshots] == [
        (0, 6, 2, 1, 0, 0),  # time, allocated, stranded, running, pending, down
        (2, 6, 2, 1, 1, 0),
        (10, 4, 0, 1, 0, 0),
        (20, 0, 0, 0, 0, 0),
    ]


def test_curve_fields_used_by_the_engine() -> None:
    """A model's parameters reach the checkpoint time of a restart."""

    class Heavy(SpeedOnOneType):
        def curve(self, job: Job) -> Curve:
            return Curve({8: 1.0}, (8,), {8: "tp8"}, parameters=20e9)

    cluster = Cluster(1, 8)
    jobs = [elastic("long", 0, 8, 1000), elastic("short", 100, 8, 10)]
    setup = free_setup(cluster, Srtf(), speed=Heavy(cluster, None), overheads=Overheads(launch_s=30.0))
    recorder = Simulation(jobs, setup).run()
    restart = next(event for event in recorder.events if event.event == "restart")
    # 14 bytes x 20e9 parameters over the node's 2 GB/s, saved and loaded
    assert restart.overhead_s == pytest.approx(30 + 2 * 14 * 20e9 / 2e9)
    assert restart.plan == "tp8"


class Thrashing(Scheduler):
    """Takes its GPUs from everything every few seconds, before any launch is paid."""

    def schedule(self, state: State) -> Proposal:
        proposal = state.proposal()
        for job in list(state.running):
            proposal.stop(job)
        for job in [] if state.running else state.pending:
            proposal.start(job)
        proposal.wake_at = state.now + 5.0
        return proposal


def test_endless_wake_ups_without_progress() -> None:
    with pytest.raises(PolicyError, match=r"Thrashing at t=.*woke up 10000 times .* got nothing done"):
        simulate([rigid("a", 0, 1, 90)], Thrashing(), "n1g1", overheads=Overheads())


@pytest.mark.parametrize("answer", [None, "no", 1])
def test_admit_must_answer(answer: object) -> None:
    class Vague(Scheduler):
        def admit(self, job: JobView, state: State) -> bool:
            return answer  # type: ignore[return-value]

        def schedule(self, state: State) -> Proposal:
            return state.proposal()

    with pytest.raises(PolicyError, match="return True or False"):
        simulate([rigid("a", 0, 1, 90)], Vague(), "n1g1")
