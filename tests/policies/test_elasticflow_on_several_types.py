"""ElasticFlow on clusters of several GPU types: its promise, and which type a job gets."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustersim.overheads import Overheads
from clustersim.records import RESIZE, RESTART, START
from clustersim.scheduler import Proposal, State
from clustersim.testing import Outcome, check_outcome
from policies.elasticflow import ElasticFlow
from policies.reservation.gpu_types import Values
from tests.builders import MixedBench, elastic, states
from tests.deadlines import late, mixed_bench, watch_types
from tests.effort import examples, rotated
from traces.job import Job

# An iteration a second on a slow GPU, 4 on a fast one.
SLOW_FAST = {"slow": {("m", 8): {8: 8.0, 16: 15.0}}, "fast": {("m", 8): {8: 32.0, 16: 60.0}}}
PLACED = (START, RESIZE, RESTART, "migrate")


def types_of(outcome: Outcome, job_id: str) -> list[str]:
    """The GPU types that a job held, in order."""
    cluster = outcome.case.cluster
    held = [e for e in outcome.events if e.job_id == job_id and e.placement]
    return list(dict.fromkeys(cluster.type_of(e.placement[0][0]) for e in held))


# Which type


def test_alone_a_job_runs_on_the_type_where_it_finishes_first() -> None:
    on = MixedBench([("slow", 2, 8), ("fast", 1, 8)], SLOW_FAST)
    outcome = on.run([elastic("a", 0, 8, 3200, 1000)], ElasticFlow())
    assert types_of(outcome, "a") == ["fast"]
    assert outcome.of("a").finish_s == 100


def test_a_tight_deadline_gets_the_fast_type_from_a_job_that_can_wait() -> None:
    """`loose` is promised the slow node; `tight`, which only the fast one serves in time, is admitted too."""
    on = MixedBench([("slow", 1, 8), ("fast", 1, 8)], SLOW_FAST)
    jobs = [elastic("loose", 0, 8, 3200, 500), elastic("tight", 1, 8, 3200, 102)]
    outcome = on.run(jobs, ElasticFlow())
    assert states(outcome) == {"loose": "finished", "tight": "finished"}
    assert types_of(outcome, "tight") == ["fast"]
    assert late(outcome) == []


def test_a_reservation_moves_to_another_type_where_that_admits_a_job() -> None:
    """`first` may be promised either node; once `late` needs the fast one until 203 s, `first` has to be
    promised the slow one, behind `a`.
    """
    tables = {"slow": {("m", 8): {8: 8.0}}, "fast": {("m", 8): {8: 8.8}, ("n", 8): {8: 10.0}}}
    on = MixedBench([("slow", 1, 8), ("fast", 1, 8)], tables)
    slow, first = elastic("a", 0, 8, 800, 102, gpu_type="slow"), elastic("first", 0, 8, 800, 205)
    late_one = elastic("late", 1, 8, 2000, 203, model="n")
    outcome = on.run([slow, first, late_one], ElasticFlow())
    assert set(states(outcome).values()) == {"finished"}
    assert late(outcome) == []


def test_a_job_that_no_type_serves_in_time_is_declined() -> None:
    on = MixedBench([("slow", 2, 8), ("fast", 1, 8)], SLOW_FAST)
    outcome = on.run([elastic("a", 0, 8, 3200, 90)], ElasticFlow())
    assert outcome.of("a").reason == "declined by the policy"


def test_a_wish_for_a_type_is_kept() -> None:
    on = MixedBench([("slow", 2, 8), ("fast", 1, 8)], SLOW_FAST)
    outcome = on.run([elastic("a", 0, 8, 3200, 1000, gpu_type="slow")], ElasticFlow())
    assert types_of(outcome, "a") == ["slow"]
    assert outcome.of("a").finish_s == pytest.approx(3200 / 15)


def test_each_job_gets_the_type_that_suits_it() -> None:
    """`n` gains nothing from the fast type, `m` four times its speed; both fill a node."""
    tables = {
        "slow": {("m", 8): {8: 8.0}, ("n", 8): {8: 8.0}},
        "fast": {("m", 8): {8: 32.0}, ("n", 8): {8: 8.5}},
    }
    for first, second in (("m", "n"), ("n", "m")):
        on = MixedBench([("slow", 1, 8), ("fast", 1, 8)], tables)
        jobs = [elastic("0", 0, 8, 8000, model=first), elastic("1", 0, 8, 8000, model=second)]
        outcome = on.run(jobs, ElasticFlow())
        m, n = ("0", "1") if first == "m" else ("1", "0")
        assert (types_of(outcome, m)[0], types_of(outcome, n)[0]) == ("fast", "slow")


@pytest.mark.parametrize(("work", "moves"), [(1300.0, False), (30_000.0, True)])
def test_a_job_changes_its_type_only_if_that_pays(work: float, moves: bool) -> None:
    """The fast node is free at 100 s. To go there takes a restart of 60 s."""
    charged = Overheads(launch_s=5.0, plain_restart_s=55.0)
    on = MixedBench([("slow", 1, 8), ("fast", 1, 8)], {**SLOW_FAST}, overheads=charged)
    jobs = [elastic("first", 0, 8, 95 * 32, gpu_type="fast"), elastic("then", 0, 8, work)]
    outcome = on.run(jobs, ElasticFlow())
    assert outcome.of("first").finish_s == 100
    assert types_of(outcome, "then") == (["slow", "fast"] if moves else ["slow"])


# The promise


class Watched(ElasticFlow):
    """ElasticFlow, every decision of which is held to what the proof of its promise says."""

    def schedule(self, state: State) -> Proposal:
        proposal = super().schedule(state)
        watch_types(proposal, self.reservations(state), state)
        return proposal


def check(on: MixedBench, jobs: list[Job], policy: ElasticFlow) -> Outcome:
    outcome = on.run(jobs, policy)
    check_outcome(outcome)
    by_id = {job.job_id: job for job in jobs}
    for event in outcome.events:
        if event.event in PLACED:
            name = on.cluster.type_of(event.placement[0][0])
            assert {on.cluster.type_of(node) for node, _ in event.placement} == {name}, "one type at a time"
            job = by_id[event.job_id]
            assert job.gpu_type in (None, name)
            if job.kind == "iterations":
                assert event.unit_s == 1 / on.tables[name][job.model, 8][event.gpus]
    return outcome


@pytest.mark.parametrize(("placement", "scale"), rotated(["pack", "any", "spread", "buddy"], [0, 1, 10]))
@given(seed=st.integers(0, 10**9))
@settings(max_examples=examples(25), deadline=None)
def test_no_admitted_job_is_late(scale: float, placement: str, seed: int) -> None:
    on, jobs = mixed_bench(seed, scale, placement)
    outcome = check(on, jobs, Watched())
    assert late(outcome) == []
    assert on.run(jobs, ElasticFlow()).events == outcome.events, "deterministic"


@pytest.mark.long
@pytest.mark.parametrize("scale", [0, 1, 10])
@pytest.mark.parametrize("placement", ["pack", "any", "spread", "buddy", "topology"])
def test_a_campaign(scale: float, placement: str) -> None:
    """6,000 traces in all."""
    broken = []
    for seed in range(400):
        on, jobs = mixed_bench(seed, scale, placement)
        if late(on.run(jobs, ElasticFlow())):
            broken.append(seed)
    assert broken == [], broken


def test_values_of_one_type() -> None:
    values = Values([""])
    values.note({"": 3.0})
    assert values.of == {"": 1.0}


def test_the_schedule_is_as_it_was() -> None:
    """Regression: the digest was taken before reservations became a library."""
    seen = hashlib.sha256()
    for seed in range(32):
        for scale, placement in ((0, "pack"), (1, "any"), (10, "spread")):
            on, jobs = mixed_bench(seed, scale, placement)
            for e in on.run(jobs, ElasticFlow(admission=seed % 5 > 0)).events:
                seen.update(f"{e.time_s:.3f} {e.event} {e.job_id} {e.placement}\n".encode())
    assert seen.hexdigest() == "a43c78efd8224613f5498852889f0ee98d8d3cdb95248d6504574dc3e2e07515"
