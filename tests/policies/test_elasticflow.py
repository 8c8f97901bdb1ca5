"""ElasticFlow's admission, its promise, and how it shares out spare GPUs."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustersim.scheduler import Proposal, State
from clustersim.testing import check_outcome
from policies.elasticflow import ElasticFlow
from policies.vtrain_aware import VTrainAware
from tests.builders import Bench
from tests.deadlines import hostile_bench, late, random_bench, watch
from tests.effort import examples, rotated
from traces.job import Job

# The promise


@pytest.mark.parametrize(("placement", "scale"), rotated(["pack", "any"], [0, 1, 10]))
@given(seed=st.integers(0, 10**9))
@settings(max_examples=examples(30), deadline=None)
def test_no_admitted_job_is_late(scale: float, placement: str, seed: int) -> None:
    on, jobs = random_bench(seed, scale, placement)
    outcome = on.run(jobs, ElasticFlow())
    check_outcome(outcome)
    assert late(outcome) == []


class Watched(ElasticFlow):
    """ElasticFlow, every decision of which is held to what the proof of its promise says."""

    def schedule(self, state: State) -> Proposal:
        proposal = super().schedule(state)
        watch(proposal, self.reservations(state), state)
        return proposal


@pytest.mark.parametrize(("placement", "scale"), rotated(["any", "spread", "buddy", "pack"], [0, 1, 10]))
@given(seed=st.integers(0, 10**9))
@settings(max_examples=examples(20), deadline=None)
def test_odd_counts_keep_the_promise(scale: float, placement: str, seed: int) -> None:
    on, jobs = hostile_bench(seed, scale, placement)
    outcome = on.run(jobs, Watched())
    check_outcome(outcome)
    assert late(outcome) == []


@pytest.mark.long
@pytest.mark.parametrize("scale", [0, 1, 10])
@pytest.mark.parametrize("placement", ["pack", "any", "spread", "buddy", "topology"])
def test_a_campaign_of_odd_counts(scale: float, placement: str) -> None:
    """20,000 traces in all."""
    broken = []
    for seed in range(1334):
        on, jobs = hostile_bench(seed, scale, placement)
        if late(on.run(jobs, ElasticFlow())):
            broken.append(seed)
    assert broken == [], broken


@pytest.mark.parametrize(("guard_s", "late_s"), [(0.0, [("c", 179.2)]), (1e-3, [])])
def test_the_least_guard_outweighs_rounding(guard_s: float, late_s: list[Any]) -> None:
    """With no guard at all the reservation of `c` ends before its last 1e-13 s of work are done, and it waits
    for `b`. Users cannot set that; it shows what the guard is for.
    """
    jobs = [
        Job("a", 0.0, gpus=1, duration_s=73.7, deadline_s=682.0),
        Job("b", 308.3, gpus=1, duration_s=211.9, deadline_s=958.8),
        Job("c", 173.5, gpus=1, duration_s=240.2, deadline_s=779.6),
        Job("d", 0.0, gpus=1, duration_s=10_000.0),
    ]
    policy = ElasticFlow(guard_s=1e-3)
    policy.guard_s = guard_s
    outcome = Bench("n1g1", {}).run(jobs, policy)
    assert [(job, pytest.approx(seconds)) for job, seconds in late(outcome)] == late_s


# Its relatives and its parameters


def test_vtrain_aware_is_the_same_algorithm_under_another_planner() -> None:
    assert issubclass(VTrainAware, ElasticFlow)
    assert (ElasticFlow.planner, VTrainAware.planner) == ("data-parallel", "3d")
    own = {name for name in vars(VTrainAware) if not name.startswith("__")}
    assert own == {"planner"}


def test_on_one_type_the_schedule_is_that_of_identical_gpus() -> None:
    """Regression: the digest was taken before the policy knew GPU types."""
    seen = hashlib.sha256()
    for seed in range(16):
        for maker in (random_bench, hostile_bench):
            for scale, placement in ((0, "pack"), (1, "any"), (10, "spread")):
                on, jobs = maker(seed, scale, placement)
                outcome = on.run(jobs, ElasticFlow(admission=seed % 5 > 0))
                for e in outcome.events:
                    seen.update(f"{e.time_s:.3f} {e.event} {e.job_id} {e.placement}\n".encode())
    assert seen.hexdigest() == "c3673bf57b5036f61898444e6e3c30801c6a4e533684bd9fa241d9391801cfd6"
