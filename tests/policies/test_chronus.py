"""Chronus: leases by hand, promises that are kept, and what is declined."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

import clustersim
from clustersim.testing import simulate
from policies.chronus import Chronus
from tests.builders import Bench, rigid, states, times
from tests.effort import rotated
from traces.job import Job

SCALES = (0.0, 1.0, 10.0)


def mixed(seed: int, count: int = 60, gpus: tuple[int, ...] = (1, 2, 4, 8)) -> list[Job]:
    """Jobs of two users, two of three with a deadline, too many for the cluster."""
    random, now, jobs = Random(seed), 0.0, []
    for i in range(count):
        now += random.expovariate(1 / 200)
        run_s = random.uniform(100, 4000)
        deadline_s = now + run_s * random.uniform(1.0, 3.0) + 600 if i % 3 else None
        jobs.append(rigid(f"j{i}", now, random.choice(gpus), run_s, deadline_s))
    return jobs


def test_leases_by_hand() -> None:
    """4 GPUs, terms of 100 s, no overheads. `best` starts and `slo`, of 150 s by 250, takes all GPUs from it
    at 10, with terms 0 and 1. `late`, of 100 s by 200, finds no term. `next`, of 90 s by 300, gets term 2.
    `best` goes on when `slo` is done, at 160, until `next` has its lease, and then after it.
    """
    jobs = [
        rigid("best", 0, 4, 100),
        rigid("slo", 10, 4, 150, 250),
        rigid("late", 20, 4, 100, 200),
        rigid("next", 30, 4, 90, 300),
    ]
    outcome = simulate(jobs, Chronus(lease_s=100), "n1g4")
    assert states(outcome) == {"best": "finished", "slo": "finished", "late": "rejected", "next": "finished"}
    found = times(outcome)
    assert found["slo"] == pytest.approx((10, 160))
    assert found["next"][1] <= 300
    assert outcome.of("best").finish_s == pytest.approx(10 + 150 + 90 + 90)


def test_leases_move_for_an_urgent_job() -> None:
    """Terms of 100 s. `patient`, of 90 s by 400, gets term 1 and gives it up for `urgent`, of 90 s by 200."""
    jobs = [
        rigid("now", 0, 4, 95, 100),
        rigid("patient", 10, 4, 90, 400),
        rigid("urgent", 20, 4, 90, 200),
    ]
    assert states(simulate(jobs, Chronus(lease_s=100, movable=0), "n1g4"))["urgent"] == "rejected"
    outcome = simulate(jobs, Chronus(lease_s=100), "n1g4")
    assert states(outcome) == {"now": "finished", "patient": "finished", "urgent": "finished"}
    assert outcome.of("urgent").deadline_met
    assert outcome.of("patient").deadline_met


def test_a_soft_deadline_is_promised_later_or_not_at_all() -> None:
    """`b` cannot have a term before 200, but one before 1.5 times its time; `c` runs as best effort."""
    jobs = [
        rigid("a", 0, 4, 195, 200),
        rigid("b", 0, 4, 90, 200),
        rigid("c", 0, 4, 90, 150),
        rigid("d", 10, 4, 50),
    ]
    hard = simulate(jobs, Chronus(lease_s=100), "n1g4")
    assert states(hard) == {"a": "finished", "b": "rejected", "c": "rejected", "d": "finished"}
    soft = simulate(jobs, Chronus(lease_s=100, soft_factors=[1.5]), "n1g4")
    assert set(states(soft).values()) == {"finished"}
    assert soft.of("b").finish_s <= 300
    assert soft.of("a").deadline_met
    assert soft.of("c").finish_s > soft.of("b").finish_s


@pytest.mark.parametrize(("seed", "scale"), rotated(range(4), SCALES))
def test_no_promised_job_is_late(seed: int, scale: float) -> None:
    """On any free GPUs, and with what starts and restarts cost."""
    jobs = mixed(seed)
    run = clustersim.run(
        jobs, "chronus", cluster="n2g8", placement="any", bound="none",
        overheads={"scale": scale} if scale else None, params={"lease_s": 600},
    )  # fmt: skip
    late = [r.job_id for r in run.jobs if r.deadline_met is False and r.state != "rejected"]
    assert not late
    promised = [r for r in run.jobs if r.deadline_met]
    assert len(promised) > 5
    assert any(r.state == "rejected" for r in run.jobs)
    assert run.manifest["oracle_used"]


@pytest.mark.parametrize("seed", range(2))
def test_no_promised_job_of_whole_nodes_is_late_where_jobs_are_packed(seed: int) -> None:
    run = clustersim.run(mixed(seed, gpus=(8, 16)), "chronus", cluster="n4g8", bound="none")
    assert not [r for r in run.jobs if r.deadline_met is False and r.state != "rejected"]


def test_more_promises_with_leases_that_move() -> None:
    """What the program adds to the first free terms, in all and never fewer by much."""
    met = {0: 0, 8: 0}
    for movable in met:
        for seed in range(3):
            outcome = simulate(mixed(seed), Chronus(lease_s=600, movable=movable), "n2g8", placement="any")
            met[movable] += sum(record.deadline_met is True for record in outcome.records)
    assert met[8] >= met[0]


def test_best_effort_jobs_run_shortest_first() -> None:
    jobs = [rigid("a", 0, 1, 50), rigid("long", 1, 1, 90), rigid("short", 2, 1, 10)]
    assert times(simulate(jobs, Chronus(), "n1g1")) == {"a": (0, 50), "short": (50, 60), "long": (60, 150)}


def test_a_job_that_does_more_than_it_states_makes_no_other_late() -> None:
    table = {("m", 8): {4: 1.0}}
    jobs = [
        Job("a", 0, model="m", global_batch=8, gpus=4, iterations=400, stated_iterations=90, deadline_s=100),
        Job("b", 10, model="m", global_batch=8, gpus=4, iterations=90, deadline_s=200),
    ]
    outcome = Bench("n1g4", table).run(jobs, Chronus(lease_s=100))
    assert outcome.of("b").deadline_met
    assert states(outcome)["a"] == "finished"


def test_a_removed_node_is_no_end_of_other_promises() -> None:
    jobs = [replace(job, gpus=8) for job in mixed(0, 20)]
    run = clustersim.run(
        jobs, "chronus", cluster="n4g8", bound="none", calendar=[{"at_s": 2000, "remove": "1"}]
    )
    assert {record.state for record in run.jobs} <= {"finished", "rejected"}


@pytest.mark.parametrize(
    ("params", "match"),
    [
        ({"lease_s": 0}, "lease_s=0"),
        ({"window": 0}, "window=0"),
        ({"movable": 1.5}, "movable=1.5"),
        ({"soft_factors": [0.5]}, "soft_factors=0.5"),
        ({"soft_factors": [3, 2]}, "soft_factors"),
    ],
)
def test_bad_parameters_are_named(params: dict[str, object], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        Chronus(**params)  # type: ignore[arg-type]
