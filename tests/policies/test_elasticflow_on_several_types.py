"""ElasticFlow on clusters of several GPU types: its promise, and which type a job gets."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustersim.records import RESIZE, RESTART, START
from clustersim.scheduler import Proposal, State
from clustersim.testing import Outcome, check_outcome
from policies.elasticflow import ElasticFlow
from policies.reservation.gpu_types import Values
from tests.builders import MixedBench
from tests.deadlines import late, mixed_bench, watch_types
from tests.effort import examples, rotated
from traces.job import Job

# An iteration a second on a slow GPU, 4 on a fast one.
PLACED = (START, RESIZE, RESTART, "migrate")


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
@settings(max_examples=examples(12), deadline=None)
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
