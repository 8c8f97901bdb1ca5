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
from clustersim.scheduler import JobView, Proposal, State
from clustersim.scheduler.look_ahead import Shares
from clustersim.testing import simulate
from tests.builders import Acts, elastic, free_setup, rigid, stated_speed
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
    speed = stated_speed(cluster, {"a": TABLE, "b": FAST} if mixed else TABLE, PARAMETERS)
    jobs = made_jobs(seed, 8)
    foreseen: dict[str, float] = {}
    submitted, asks = 0, ask_at

    def act(state: State, proposal: Proposal) -> None:
        """Follow `erratic`; after the last submission ask when the jobs will end."""
        nonlocal submitted, asks
        submitted += sum(event.kind == "submitted" for event in state.events)
        if submitted == len(jobs) and not foreseen:
            asks -= 1
            if asks < 0:
                foreseen.update(by_id(state.look_ahead(lambda ahead: erratic(seed, ahead))))
        assert not proposal.run(erratic(seed, state), smaller=False)

    setup = free_setup(cluster, Acts(act), speed=speed, overheads=charged)
    ends = {record.job_id: record.finish_s for record in Simulation(submission_order(jobs), setup).run().jobs}
    assert ask_at > 0 or foreseen
    for job_id, end_s in foreseen.items():
        assert ends[job_id] == pytest.approx(end_s, rel=1e-9, abs=1e-6)
    assert list(foreseen.values()) == sorted(foreseen.values())


def in_order(state: State) -> dict[JobView, int]:
    jobs = sorted([*state.running, *state.pending], key=lambda job: job.order)
    return dict.fromkeys(jobs[: state.in_service // 8], 8)


def asked(ask: Callable[[State], Any], *jobs: Job, at_s: float = 50.0) -> Any:
    """What `ask` returns at `at_s`, where jobs run in order of submission on 8 GPUs each. By default on 16
    GPUs `a` (90 iterations at 1.8/s) and `b` (180) have run since 0 s, 10 s of it launch; `c` (90) waits.
    """
    answers: list[Any] = []

    def act(state: State, proposal: Proposal) -> None:
        proposal.run(in_order(state))
        if state.now == at_s:
            answers.append(ask(state))
        elif state.now < at_s:
            proposal.wake_at = at_s

    rows = (("a", 0, 90.0), ("b", 0, 180.0), ("c", 10, 90.0))
    jobs = jobs or tuple(elastic(name, submit_s, 8, work) for name, submit_s, work in rows)
    simulate(jobs, Acts(act), "n4g4", table=TABLE, overheads=Overheads(launch_s=10.0, plain_restart_s=20.0))
    return answers[0]


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
        (lambda ahead: dict.fromkeys(ahead.running, 3), r"look_ahead\(job a, gpus=3\): it cannot run on"),
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

    misstated = elastic("a", 0, 4, 300.0, stated_iterations=36.0)
    assert asked(look, misstated, at_s=0.0) == (pytest.approx(30.0), False)
    assert asked(look, rigid("a", 0, 8, 300.0), at_s=0.0) == (310.0, True)
