"""Triage, the promises that it leaves, and how spare GPUs are shared out beside them."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustersim.records import DECLINED, NOTE
from clustersim.scheduler import Proposal, State
from clustersim.testing import Outcome, check_outcome
from policies.priced_deadlines import PricedDeadlines
from policies.pricing.triage import LATE, TAKEN_BACK
from tests.builders import Bench, elastic
from tests.deadlines import hostile_bench, mixed_bench, random_bench, watch, watch_types
from tests.effort import examples, rotated

EIGHT = {("m", 8): {8: 1.0}}  # runs on 8 GPUs, an iteration a second
MAKERS = (random_bench, hostile_bench, mixed_bench)


def notes(outcome: Outcome) -> list[tuple[str, str]]:
    """The job and the beginning of each note."""
    return [(e.job_id, e.detail.partition(":")[0]) for e in outcome.events if e.event == NOTE]


def met(outcome: Outcome) -> set[str]:
    return {record.job_id for record in outcome.records if record.deadline_met}


def broken_promises(outcome: Outcome) -> list[str]:
    """Jobs that are late although they have a promise. Jobs that cannot run on the cluster have none."""
    last = dict(notes(outcome))
    return [
        record.job_id
        for record in outcome.records
        if record.deadline_met is False
        and record.state != "rejected"
        and last.get(record.job_id, LATE) == LATE
    ]


# Triage


def test_a_job_in_the_way_is_given_up_however_many_larger_ones_are_not() -> None:
    """The 40 others are due after `v`, and `v` needs all the time until then."""
    jobs = [elastic("v", 0, 8, 98, 100), elastic("small", 5, 8, 20, 40)]
    jobs += [elastic(str(i), 1, 8, 100, 100 + 102 * (i + 1)) for i in range(40)]
    outcome = Bench("n1g8", EIGHT).run(jobs, PricedDeadlines())
    assert notes(outcome) == [("v", TAKEN_BACK)]
    assert len(met(outcome)) == 41


@st.composite
def bursts(draw: st.DrawFn) -> list[Any]:
    """Jobs that arrive together, a GPU each, on one GPU."""
    lengths = draw(st.lists(st.tuples(st.integers(2, 30), st.integers(0, 60)), min_size=2, max_size=7))
    return [elastic(str(i), 0, 1, run_s, run_s + slack + 1.5) for i, (run_s, slack) in enumerate(lengths)]


def most_met(jobs: list[Any]) -> int:
    """The most jobs of a burst that one machine can finish in time (by brute force)."""

    def feasible(chosen: tuple[Any, ...]) -> bool:
        now = 0.0
        for job in sorted(chosen, key=lambda job: job.deadline_s):
            now += job.iterations + 1e-3
            if now > job.deadline_s:
                return False
        return True

    return max(n for n in range(len(jobs) + 1) if any(map(feasible, combinations(jobs, n))))


@given(bursts())
@settings(max_examples=examples(60), deadline=None)
def test_of_a_burst_on_one_gpu_as_many_as_possible_are_in_time(jobs: list[Any]) -> None:
    """There one for one, the largest first, is exact: Moore and Hodgson, Management Science 1968."""
    outcome = Bench("n1g1", {("m", 8): {1: 1.0}}).run(jobs, PricedDeadlines(guard_s=1e-3))
    assert len(met(outcome)) == most_met(jobs)


def test_a_due_job_that_waits_is_seated_where_it_cannot_have_more() -> None:
    """It may get more GPUs than it has reserved, and find no place for them; it holds none that it could stay
    on.
    """
    on, jobs = mixed_bench(21, 0, "pack")
    check(on.run(jobs, Watched()))


# The promise


class Watched(PricedDeadlines):
    """Every decision is held to what the proof of ElasticFlow's promise says."""

    def schedule(self, state: State) -> Proposal:
        proposal = super().schedule(state)
        held_to = watch_types if state.cluster.mixed else watch
        held_to(proposal, self.triage(state).admission, state)
        return proposal


def check(outcome: Outcome) -> None:
    check_outcome(outcome)
    assert broken_promises(outcome) == []
    assert DECLINED not in [record.reason for record in outcome.records]


@pytest.mark.parametrize(("maker", "scale"), rotated(MAKERS, [0, 1, 10]))
@given(seed=st.integers(0, 10**9), placement=st.sampled_from(("pack", "any", "spread", "buddy")))
@settings(max_examples=examples(4), deadline=None)
def test_promises_that_are_not_taken_back_are_kept(
    maker: Any, scale: float, seed: int, placement: str
) -> None:
    on, jobs = maker(seed, scale, placement)
    check(on.run(jobs, Watched()))


@pytest.mark.parametrize(("maker", "scale"), rotated(MAKERS, [0, 10]))
@given(seed=st.integers(0, 10**9))
@settings(max_examples=examples(4), deadline=None)
def test_without_giving_up_all_promises_are_kept(maker: Any, scale: float, seed: int) -> None:
    on, jobs = maker(seed, scale, "pack")
    outcome = on.run(jobs, Watched(give_up=False, share=0.3))
    check(outcome)
    assert TAKEN_BACK not in [text for _, text in notes(outcome)]


@pytest.mark.long
@pytest.mark.parametrize("scale", [0, 1, 10])
@pytest.mark.parametrize("maker", MAKERS)
def test_a_campaign(maker: Any, scale: float) -> None:
    """5,400 traces in all."""
    broken = []
    for seed in range(600):
        on, jobs = maker(seed, scale, ("pack", "any", "spread", "buddy")[seed % 4])
        if broken_promises(on.run(jobs, PricedDeadlines())):
            broken.append(seed)
    assert broken == [], broken
