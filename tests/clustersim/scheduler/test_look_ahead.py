"""Look-aheads: what the engine then does, where placement does not matter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf, nan
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustersim.cluster import Cluster
from clustersim.cluster.topology import NodeGroup
from clustersim.engine import Simulation
from clustersim.errors import PolicyError
from clustersim.overheads import Overheads
from clustersim.scheduler import JobView, Proposal, Scheduler, State
from clustersim.scheduler.look_ahead import Shares
from clustersim.speed import SpeedByType
from clustersim.testing import simulate
from tests.builders import StatedSpeed, elastic, free_setup, rigid
from tests.clustersim.scheduler.test_change_costs import overheads
from tests.effort import examples
from traces.job import Job, submission_order

NODE = 4
TABLE = {("m", 8): {4: 1.0, 8: 1.8, 16: 3.0}, ("w", 8): {8: 0.5, 16: 0.9, 32: 1.2}}
FAST = {("m", 8): {4: 2.0, 8: 3.9}, ("w", 8): {8: 2.0, 16: 2.5}}
PARAMETERS = {"m": 1e9, "w": 6e9}
PLAIN = Cluster(8, NODE)
MIXED = Cluster.of([NodeGroup("a", 5, 4, gpu_type="a"), NodeGroup("b", 4, 4, gpu_type="b")])


def erratic(seed: int, state: State) -> dict[JobView, tuple[int, str | None]]:
    """Shares that are a function of the jobs in the system alone: whole nodes, different after each end."""
    jobs = sorted([*state.running, *state.pending], key=lambda job: job.order)
    random = Random(f"{seed} {[job.id for job in jobs]} {state.in_service}")
    left, shares = state.in_service_by_type(), {}
    order = list(jobs)
    random.shuffle(order)
    for job in order:
        gpu_type = random.choice(job.gpu_types)
        fitting = [n for n in job.sizes_on(gpu_type) if n <= left[gpu_type]]
        stays = job.gpu_type is not None and random.random() < 0.4 and job.gpus <= left[job.gpu_type]
        if stays:
            assert job.gpu_type is not None
            shares[job] = job.gpus, job.gpu_type
            left[job.gpu_type] -= job.gpus
        elif fitting and random.random() < 0.8:
            shares[job] = random.choice(fitting), gpu_type
            left[gpu_type] -= shares[job][0]
    if jobs and not shares:
        job = min(jobs, key=lambda job: job.sizes[0])
        shares[job] = job.sizes[0], job.gpu_types[0]
    return shares


class Looks(Scheduler):
    """Follows `erratic`; after the last submission it asks when the jobs will end."""

    def __init__(self, seed: int, jobs: int, ask_at: int):
        self.seed, self.jobs, self.ask_at = seed, jobs, ask_at
        self.seen = 0
        self.foreseen: dict[str, float] = {}

    def schedule(self, state: State) -> Proposal:
        self.seen += sum(event.kind == "submitted" for event in state.events)
        if self.seen == self.jobs and not self.foreseen:
            self.ask_at -= 1
            if self.ask_at < 0:
                ends = state.look_ahead(lambda ahead: erratic(self.seed, ahead))
                self.foreseen = {job.id: end_s for job, end_s in ends.items()}
        proposal = state.proposal()
        wanted = erratic(self.seed, state)
        assert not proposal.run(wanted, smaller=False)
        return proposal


def made_jobs(seed: int, count: int) -> list[Job]:
    random, made = Random(seed), []
    for i in range(count):
        at = float(random.choice((0, 0, 20, 45, 130)))
        if random.random() < 0.2:
            made.append(rigid(f"{i}", at, random.choice((4, 8, 16)), random.uniform(20, 200)))
        else:
            made.append(elastic(f"{i}", at, 8, random.uniform(40, 400), model=random.choice("mw")))
    return made


@settings(max_examples=examples(60), deadline=None)
@given(seed=st.integers(0, 10**6), charged=overheads(), mixed=st.booleans(), ask_at=st.integers(0, 4))
def test_jobs_end_when_it_was_foreseen(seed: int, charged: Overheads, mixed: bool, ask_at: int) -> None:
    """Jobs of whole nodes, in any state: never started, paying, running, stopped; on one or two GPU types."""
    charged = replace(charged, storage_shared=False, checkpoint_interval_s="none")
    cluster = MIXED if mixed else PLAIN
    speed: Any = StatedSpeed(cluster, TABLE, PARAMETERS)
    if mixed:
        by_type = {
            pool.gpu_type: StatedSpeed(Cluster(pool.nodes, pool.gpus_per_node), table, PARAMETERS)
            for pool, table in zip(cluster.pools, (TABLE, FAST), strict=True)
        }
        for name, one in by_type.items():
            one.gpu_type = name
        speed = SpeedByType(by_type)
    jobs = made_jobs(seed, 8)
    policy = Looks(seed, len(jobs), ask_at)
    recorder = Simulation(
        submission_order(jobs), free_setup(cluster, policy, speed=speed, overheads=charged)
    ).run()
    ends = {record.job_id: record.finish_s for record in recorder.jobs}
    assert ask_at > 0 or policy.foreseen
    for job_id, end_s in policy.foreseen.items():
        assert ends[job_id] == pytest.approx(end_s, rel=1e-9, abs=1e-6)
    assert list(policy.foreseen.values()) == sorted(policy.foreseen.values())


class Asks(Scheduler):
    """Runs jobs in order of submission on 8 GPUs each, and notes what `ask` returns at `at_s`."""

    def __init__(self, at_s: float, ask: Callable[[State], Any]):
        self.at_s, self.ask, self.found = at_s, ask, list[Any]()

    def schedule(self, state: State) -> Proposal:
        proposal = state.proposal()
        proposal.run(in_order(state))
        if state.now == self.at_s:
            self.found.append(self.ask(state))
        elif state.now < self.at_s:
            proposal.wake_at = self.at_s
        return proposal


def in_order(state: State) -> dict[JobView, int]:
    jobs = sorted([*state.running, *state.pending], key=lambda job: job.order)
    return dict.fromkeys(jobs[: state.in_service // 8], 8)


def asked(ask: Callable[[State], Any], at_s: float = 50.0) -> Any:
    """On 16 GPUs: `a` (90 iterations at 1.8/s) and `b` (180) have run since 0 s, 10 s of it launch; `c` (90)
    waits.
    """
    jobs = [elastic("a", 0, 8, 90.0), elastic("b", 0, 8, 180.0), elastic("c", 10, 8, 90.0)]
    policy = Asks(at_s, ask)
    charged = Overheads(launch_s=10.0, plain_restart_s=20.0)
    simulate(jobs, policy, "n4g4", table=TABLE, overheads=charged)
    return policy.found[0]


def by_id(ends: dict[JobView, float]) -> dict[str, float]:
    return {job.id: end_s for job, end_s in ends.items()}


def test_the_ends_by_hand() -> None:
    ends = asked(lambda state: by_id(state.look_ahead(in_order)))
    assert ends == pytest.approx({"a": 60.0, "b": 110.0, "c": 120.0})
    assert list(ends) == ["a", "b", "c"]


def test_a_rule_that_moves_jobs_pays_for_it() -> None:
    """`b` stops for `c` at once: launch 10 s, work 50 s. At 60 s `a` ends and `b` restarts in 30 s."""

    def last_first(ahead: State) -> Shares:
        jobs = sorted([*ahead.running, *ahead.pending], key=lambda job: (job.id == "b", job.order))
        return dict.fromkeys(jobs[:2], 8)

    ends = asked(lambda state: by_id(state.look_ahead(last_first)))
    assert ends == pytest.approx({"a": 60.0, "c": 110.0, "b": 60.0 + 30.0 + 60.0})


def test_what_the_rule_sees_as_time_passes() -> None:
    seen: list[Any] = []

    def rule(ahead: State) -> Shares:
        ended = [event.job.id for event in ahead.events if event.job is not None]
        left = {job.id: round(job.remaining(8)) for job in [*ahead.running, *ahead.pending]}
        seen.append((round(ahead.now), ended, left, ahead.free, len(ahead.pending)))
        return in_order(ahead)

    asked(lambda state: state.look_ahead(rule, round_s=20.0))
    assert seen == [
        (50, [], {"a": 10, "b": 60, "c": 50}, 0, 1),
        (60, ["a"], {"b": 50, "c": 50}, 8, 1),
        (80, [], {"b": 30, "c": 40}, 0, 0),
        (100, [], {"b": 10, "c": 20}, 0, 0),
        (110, ["b"], {"c": 10}, 8, 0),
    ]


def test_the_end_of_the_look_and_jobs_without_gpus() -> None:
    ends = asked(lambda state: by_id(state.look_ahead(in_order, until_s=110.0)))
    assert ends == pytest.approx({"a": 60.0, "b": 110.0, "c": inf})
    assert asked(lambda state: by_id(state.look_ahead(lambda ahead: {}))) == dict.fromkeys("abc", inf)
    some = asked(lambda state: by_id(state.look_ahead(in_order, [*state.pending])))
    assert some == pytest.approx({"c": 110.0})


def test_reality_is_left_alone() -> None:
    """Jobs, free GPUs and orders are as before, and the run goes on as without the question."""

    def look(state: State) -> Any:
        before = [(job.id, job.gpus, job.attained, job.remaining(8)) for job in state.running]
        ranked = [job.id for job in state.pending_by(first)]
        one = state.look_ahead(in_order)
        assert one == state.look_ahead(in_order), "it is deterministic"
        assert all(job in {*state.running, *state.pending} for job in one)
        assert before == [(job.id, job.gpus, job.attained, job.remaining(8)) for job in state.running]
        return ranked == [job.id for job in state.pending_by(first)]

    assert asked(look) is True


def first(job: JobView) -> int:
    return job.order


def test_shares_may_name_the_jobs_of_the_state() -> None:
    """As a plan that stays the same: jobs of it that have ended need no GPUs."""

    def look(state: State) -> Any:
        plan = in_order(state)
        with pytest.raises(PolicyError, match="look_ahead: job a does not take part"):
            state.look_ahead(lambda ahead: plan, [*state.pending])
        return by_id(state.look_ahead(lambda ahead: plan))

    assert asked(look) == pytest.approx({"a": 60.0, "b": 110.0, "c": inf})


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (lambda ahead: dict.fromkeys(ahead.running, 16), r"32 GPUs of type .* given out of 16"),
        (
            lambda ahead: dict.fromkeys(ahead.running, 3),
            r"look_ahead\(job a, gpus=3\): it cannot run on them",
        ),
        (lambda ahead: ahead.proposal(), "return {job: GPUs} instead of a proposal"),
        (lambda ahead: {ahead.running: 3}, "raised"),
    ],
)
def test_impossible_shares(rule: Any, text: str) -> None:
    with pytest.raises(PolicyError, match=text):
        asked(lambda state: state.look_ahead(rule))


def test_rounds_in_which_nothing_ends_come_to_an_end() -> None:
    """Restarts of 30 s every 5 s: no job makes progress."""

    def turns(ahead: State) -> Shares:
        return {job: 4 if job.gpus == 8 else 8 for job in [*ahead.running, *ahead.pending][:2]}

    with pytest.raises(PolicyError, match="no job has ended in 10,000 rounds; set until_s"):
        asked(lambda state: state.look_ahead(turns, round_s=5.0))


@pytest.mark.parametrize("times", [{"round_s": 0.0}, {"round_s": -1.0}, {"round_s": nan}, {"until_s": nan}])
def test_times_that_are_none_are_refused(times: dict[str, float]) -> None:
    with pytest.raises(PolicyError, match=r"look_ahead\(until_s=.*must be a time and seconds above 0"):
        asked(lambda state: state.look_ahead(in_order, **times))


def test_stated_work_is_what_counts() -> None:
    """`a` states 36 iterations and does 300: 20 s of work after 10 s of launch, as far as a policy knows."""

    def look(state: State) -> Any:
        return by_id(state.look_ahead(in_order))["a"], state._facts.oracle_used

    policy = Asks(0.0, look)
    job = elastic("a", 0, 4, 300.0, stated_iterations=36.0)
    simulate([job], policy, "n4g4", table=TABLE, overheads=Overheads(launch_s=10.0))
    assert policy.found == [(pytest.approx(30.0), False)]
    logged = Asks(0.0, look)
    simulate([rigid("a", 0, 8, 300.0)], logged, "n4g4", overheads=Overheads(launch_s=10.0))
    assert logged.found == [(310.0, True)]
