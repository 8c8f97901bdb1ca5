"""Triage, the promises that it leaves, and how spare GPUs are shared out beside them."""

from __future__ import annotations

from itertools import combinations
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from clustersim.records import NOTE
from clustersim.testing import Outcome
from policies.priced_deadlines import PricedDeadlines
from policies.pricing.triage import TAKEN_BACK
from tests.builders import Bench, elastic
from tests.effort import examples

EIGHT = {("m", 8): {8: 1.0}}  # runs on 8 GPUs, an iteration a second


def notes(outcome: Outcome) -> list[tuple[str, str]]:
    """The job and the beginning of each note."""
    return [(e.job_id, e.detail.partition(":")[0]) for e in outcome.events if e.event == NOTE]


def met(outcome: Outcome) -> set[str]:
    return {record.job_id for record in outcome.records if record.deadline_met}


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


ROOM_FOR_TWO = [elastic(str(i), 0, 1, *job) for i, job in enumerate([(2, 7.5), (3, 4.5), (3, 5.5), (2, 3.5)])]
"""The promise of the second is taken back for the last, and then the third has room, too."""


@example(ROOM_FOR_TWO)
@given(bursts())
@settings(max_examples=examples(60), deadline=None)
def test_of_a_burst_on_one_gpu_as_many_as_possible_are_in_time(jobs: list[Any]) -> None:
    """There one for one, the largest first, is exact: Moore and Hodgson, Management Science 1968."""
    outcome = Bench("n1g1", {("m", 8): {1: 1.0}}).run(jobs, PricedDeadlines(guard_s=1e-3))
    assert len(met(outcome)) == most_met(jobs)
