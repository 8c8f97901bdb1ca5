"""The ranking of waiting jobs against `sorted`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustersim.ranking import Ranking


@dataclass(eq=False)
class Waiting:
    """As much of a job view as a ranking needs."""

    order: int
    requested: int
    value: int
    calls: list[int] = field(default_factory=list)


def value(job: Any) -> int:
    job.calls.append(1)
    return job.value


def ranking_of(jobs: list[Waiting]) -> Ranking:
    ranking = Ranking(value)
    for job in jobs:
        ranking.add(cast(Any, job))
    return ranking


shapes = st.lists(st.tuples(st.sampled_from((1, 2, 4, 8)), st.integers(0, 4)), max_size=25)


@st.composite
def queues(draw: st.DrawFn) -> tuple[list[Waiting], list[Waiting]]:
    """Jobs in the order in which they join, and those that leave again."""
    jobs = [Waiting(i, *shape) for i, shape in enumerate(draw(shapes))]
    joined = draw(st.permutations(jobs))
    leave = draw(st.lists(st.sampled_from(joined), unique=True)) if joined else []
    return list(joined), leave


@given(queues())
@settings(deadline=None)
def test_order_is_that_of_sorted(queue: tuple[list[Waiting], list[Waiting]]) -> None:
    joined, leave = queue
    ranking = ranking_of(joined)
    for job in leave:
        ranking.remove(cast(Any, job))
    left = [job for job in joined if job not in leave]
    assert list(ranking) == sorted(left, key=lambda job: (job.value, job.order))
    assert len(ranking) == len(left)
    assert all(len(job.calls) == 1 for job in joined), "the key is asked once per wait"


@given(queues(), st.integers(0, 40))
@settings(deadline=None)
def test_walk_passes_over_what_does_not_fit(queue: tuple[list[Waiting], list[Waiting]], room: int) -> None:
    """Room shrinks as jobs are taken, as it does when a policy places them."""
    expected, left = [], room
    for job in sorted(queue[0], key=lambda job: (job.value, job.order)):
        if job.requested <= left:
            expected.append(job)
            left -= job.requested
    taken, rooms = [], [room]
    for view in ranking_of(queue[0]).walk(lambda gpus: gpus <= rooms[-1]):
        taken.append(view)
        rooms.append(rooms[-1] - view.requested)
    assert taken == expected


def test_a_job_may_come_back_with_another_key() -> None:
    first, second = Waiting(0, 1, 5), Waiting(1, 1, 6)
    ranking = ranking_of([first, second])
    ranking.remove(cast(Any, first))
    first.value = 9
    ranking.add(cast(Any, first))
    assert list(ranking) == [second, first]


def test_removing_does_not_ask_for_the_key_again() -> None:
    job = Waiting(0, 1, 5)
    ranking = ranking_of([job, Waiting(1, 1, 7)])
    job.value = 100
    ranking.remove(cast(Any, job))
    assert [view.order for view in ranking] == [1]


def test_a_stranger_cannot_be_removed() -> None:
    with pytest.raises(KeyError):
        ranking_of([]).remove(cast(Any, Waiting(0, 1, 1)))
