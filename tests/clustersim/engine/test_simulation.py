"""What policies see of an instant, wake-ups, errors of policies, changes of speed, and what must hold in runs
with nodes that fail. Whole logs are in `schedules/simulation.yaml` and `node_events.yaml`.
"""

from math import fsum, nextafter
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import clustersim
from clustersim.audit import check_run_folder
from clustersim.cluster import Cluster
from clustersim.engine import Simulation
from clustersim.errors import PolicyError
from clustersim.failures import Failures
from clustersim.overheads import Overheads
from clustersim.records import MemoryRecorder
from clustersim.runs import RunConfig
from clustersim.scheduler import JobView, Proposal, Scheduler, State
from clustersim.scheduler.internal import active_of
from clustersim.testing import Outcome, check_outcome, simulate
from itertime.errors import UserError
from policies.fifo import Fifo
from policies.srtf import Srtf
from tests.builders import Acts, Restless, elastic, failing, free_setup, rigid
from tests.effort import examples
from traces.job import Job

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


def test_jobs_that_come_one_by_one_depend_on_none() -> None:
    jobs = [rigid("a", 0.0, 1, 9.0), rigid("b", 0.0, 1, 9.0, depends="afterok:a")]
    with pytest.raises(UserError, match="job b: depends=afterok:a: the jobs come one by one"):
        Simulation(iter(jobs), free_setup(Cluster(1, 4), Fifo())).run()


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


# Nodes that fail


class AdmitsWhatFits(Fifo):
    def admit(self, job: JobView, state: State) -> bool:
        return state.ever_fits(job)


def test_a_policy_may_ask_whether_a_job_ever_fits_before_it_admits_the_job() -> None:
    jobs = [rigid("small", 10.0, 8, 5.0), rigid("large", 10.0, 16, 5.0)]
    outcome = simulate(jobs, AdmitsWhatFits(), "n2g8", calendar=[{"at_s": 5, "remove": 0}])
    assert (outcome.of("small").state, outcome.of("large").state) == ("finished", "rejected")


def test_a_run_ends_when_no_waiting_job_can_ever_run_again() -> None:
    """Nodes keep failing and returning, but once the second is removed job b never fits."""
    jobs = [rigid("a", 0, 4, 50), rigid("b", 200, 8, 30)]
    failures = Failures(mtbf_gpu_h=1.0)

    def run(*calendar: dict[str, Any]) -> Outcome:
        return simulate(jobs, Fifo(), "n2g4", calendar=calendar, failures=failures)

    stays, gone = run(), run({"at_s": 100, "remove": 1})
    assert stays.of("b").state == "finished"
    assert (gone.of("b").state, gone.of("b").start_s) == ("unfinished", None)
    assert gone.of("b").reason == "no place for 8 GPUs on the nodes that were left for good"
    assert sum(event.time_s > 200 for event in gone.events) <= 1, "not on and on"
    back_s = 1e7
    back = run({"at_s": 100, "remove": 1}, {"at_s": back_s, "add": 1})
    assert back.of("b").start_s is not None, "it waits for what is planned"
    assert back.of("b").start_s >= back_s
    assert sum(event.event == "node_down" for event in back.events) > 100, "and nodes fail meanwhile"


def test_a_policy_of_rounds_outlasts_capacity_that_is_away() -> None:
    """More rounds than the engine allows an idle policy; job b waits for the node, job c never fits."""
    away_s = 60 * 30_000
    calendar = [{"at_s": 61, "maintenance": 0, "for_s": away_s}, {"at_s": 90, "remove": 1}]
    jobs = [rigid("a", 0, 4, 50), rigid("b", 120, 4, 30), rigid("c", 120, 8, 30)]

    def each_minute(state: State, proposal: Proposal) -> None:
        for job in state.pending if state.now % 60 == 0 else ():
            proposal.start(job)
        proposal.wake_at = (state.now // 60 + 1) * 60

    outcome = simulate(jobs, Acts(each_minute), "n2g4", calendar=calendar)
    assert (outcome.of("a").state, outcome.of("a").finish_s) == ("finished", 50)
    assert (outcome.of("b").start_s, outcome.of("b").finish_s) == (away_s + 120, away_s + 150)
    c = outcome.of("c")
    assert (c.state, c.reason) == ("unfinished", "no place for 8 GPUs on the nodes that were left for good")


@pytest.mark.parametrize("until_s", [None, 0.0, 50.0])
@pytest.mark.parametrize("jobs", [[], [rigid("late", 700.0, 1, 5)]])
def test_nodes_that_came_and_went_between_two_decisions(
    jobs: list[Job], until_s: float | None, tmp_path: Any
) -> None:
    config = RunConfig.make(
        policy="fifo", cluster="n2g4", calendar=[{"at_s": 900.0, "add": 1}], until_s=until_s
    )
    run = clustersim.run(jobs, config=config, out=tmp_path)
    assert run.snapshots[0].down == 4
    assert [finding.violations for finding in check_run_folder(tmp_path) if finding.violations] == []


def test_a_policy_is_told_of_nodes_and_what_they_took() -> None:
    seen: list[tuple[float, list[tuple[str, str | None, int | None]], int]] = []

    def act(state: State, proposal: Proposal) -> None:
        events = [(event.kind, event.job.id if event.job else None, event.node) for event in state.events]
        seen.append((state.now, events, state.in_service))
        for job in state.pending:
            proposal.start(job)

    calendar = [{"at_s": 30, "maintenance": 1, "for_s": 5}]
    jobs = [rigid("a", 0, 4, 40), rigid("b", 0, 4, 40)]
    with failing({0: [(20, 5)]}):
        simulate(jobs, Acts(act), "n2g4", failures=Failures(), calendar=calendar)
    assert seen == [
        (0, [("submitted", "a", None), ("submitted", "b", None)], 8),
        (20, [("node_down", None, 0), ("interrupted", "a", 0)], 4),
        (25, [("node_up", None, 0)], 8),
        (30, [("node_down", None, 1), ("stopped", "b", 1)], 4),
        (35, [("node_up", None, 1)], 8),
        (45, [("finished", "a", None), ("finished", "b", None)], 8),
    ]


# Jobs that end by themselves


def test_drawn_fates_have_their_shares_and_do_not_depend_on_the_others() -> None:
    failures = Failures(mtbf_gpu_h=None, job_failed_share=0.4, job_cancelled_share=0.1)
    jobs = [rigid(str(i), 0, 1, 100) for i in range(1500)]
    outcome = simulate(jobs, Fifo(), "n1g64", failures=failures)
    reasons = [outcome.of(job.job_id).reason for job in jobs]
    assert abs(reasons.count("failed, as drawn") / 1500 - 0.4) < 0.04
    assert abs(reasons.count("cancelled, as drawn") / 1500 - 0.1) < 0.025
    alone = simulate(jobs[7:8], Fifo(), "n1g64", failures=failures)
    assert alone.of("7").reason == reasons[7]
    failed = [outcome.of(job.job_id) for job in jobs if outcome.of(job.job_id).state == "failed"]
    assert 0.45 < fsum(record.gpu_seconds for record in failed) / (100 * len(failed)) < 0.55


# Laws


def test_two_policies_meet_the_same_failures() -> None:
    jobs = [rigid(str(i), 100.0 * i, 1 << i % 3, 2000.0 - 90 * i) for i in range(12)]
    seen = []
    for policy in (Fifo(), Srtf()):
        outcome = simulate(jobs, policy, "n3g4", failures=Failures(mtbf_gpu_h=2.0, repair_scale=0.02), seed=4)
        seen.append([(e.time_s, e.event, e.placement) for e in outcome.events if e.event.startswith("node_")])
    shortest = min(map(len, seen))
    assert shortest > 5
    assert seen[0][:shortest] == seen[1][:shortest]


# Laws that hold under every policy


TABLE = {("m", 8): {1: 1.0, 2: 2.0, 4: 3.0}}
PAID_OVERHEADS = Overheads(launch_s=10.0, plain_restart_s=20.0)


@st.composite
def mixed_traces(draw: st.DrawFn) -> list[Job]:
    now, jobs = 0.0, []
    for i in range(draw(st.integers(1, 10))):
        now += draw(st.sampled_from((0.0, 1.0, 7.3, 40.0)))
        gpus, work = draw(st.sampled_from((1, 2, 4))), draw(st.sampled_from((0.5, 3.0, 33.3, 120.0)))
        jobs.append((elastic if draw(st.booleans()) else rigid)(f"j{i}", now, gpus, work))
    return jobs


charges = st.sampled_from((Overheads.none(), PAID_OVERHEADS, Overheads(launch_s=0.1, plain_restart_s=0.0)))


@given(mixed_traces(), st.integers(0, 10**6), charges, st.sampled_from(("pack", "spread", "any")))
@settings(max_examples=examples(150), deadline=None)
def test_every_run_keeps_the_books(jobs: list[Job], seed: int, charged: Overheads, placement: str) -> None:
    """Under a random policy: capacity, gangs, and sums of GPU-seconds, progress and overheads."""
    outcome = simulate(
        jobs, Restless(seed), "n2g4", table=TABLE, overheads=charged, placement=placement, until_s=20_000
    )
    if all(record.state == "finished" for record in outcome.records):
        check_outcome(outcome)
    assert all(record.wait_s >= 0 and record.lost_s >= 0 for record in outcome.records)
    for record in outcome.records:
        assert record.lost_s <= record.gpu_seconds + 1e-9, "at least one GPU is held while overhead is paid"


@given(mixed_traces(), st.integers(0, 10**6), charges)
@settings(max_examples=examples(40), deadline=None)
def test_two_runs_are_the_same(jobs: list[Job], seed: int, charged: Overheads) -> None:
    def once(rows: list[Job]) -> Outcome:
        return simulate(rows, Restless(seed), "n2g4", table=TABLE, overheads=charged, until_s=20_000)

    first, shuffled = once(jobs), list(jobs)
    Random(seed).shuffle(shuffled)
    for other in (once(jobs), once(shuffled)):
        assert first.events == other.events
        assert first.records == other.records


@given(st.floats(0, 1e9), st.floats(0.001, 1e7), st.floats(0.001, 1e7))
@settings(max_examples=examples(200), deadline=None)
def test_times_that_are_not_whole_survive_the_clock(submit_s: float, gap_s: float, run_s: float) -> None:
    """The event queue adds up differences; no job may start before it was submitted, nor finish early."""
    jobs = [rigid("a", submit_s, 1, run_s), rigid("b", submit_s + gap_s, 1, run_s)]
    outcome = simulate(jobs, Fifo(), "n1g1")
    a, b = outcome.of("a"), outcome.of("b")
    assert a.start_s == submit_s
    assert a.finish_s == pytest.approx(submit_s + run_s, rel=1e-15)
    assert b.start_s == pytest.approx(max(submit_s + gap_s, submit_s + run_s), rel=1e-15)
    assert b.start_s >= nextafter(b.submit_s, 0)
