"""The program of a window against all schedules of small cases, round by round."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.solvers import Bid, falling, rounds_of_window
from tests.effort import examples

ROUND_S = 10.0


def value(bids: list[Bid], counts: list[int], capacity: int, makespan_weight: float) -> float:
    left = [bid.left_s - n * ROUND_S for bid, n in zip(bids, counts, strict=True)]
    whole = sum(bid.gpus * seconds for bid, seconds in zip(bids, left, strict=True)) / capacity
    behind = max(0.0, whole, *left)
    return sum(sum(bid.gains[:n]) for bid, n in zip(bids, counts, strict=True)) - makespan_weight * behind


def best_of_all(bids: list[Bid], capacity: int, rounds: int, makespan_weight: float) -> float:
    """The best of all sets of jobs in each round."""
    sets = [
        chosen
        for chosen in product((0, 1), repeat=len(bids))
        if sum(bid.gpus * one for bid, one in zip(bids, chosen, strict=True)) <= capacity
    ]
    found = -1e99
    for schedule in product(sets, repeat=rounds):
        counts = [sum(column) for column in zip(*schedule, strict=True)]
        if all(n <= len(bid.gains) for n, bid in zip(counts, bids, strict=True)):
            found = max(found, value(bids, counts, capacity, makespan_weight))
    return found


@st.composite
def markets(draw: st.DrawFn) -> list[Bid]:
    bids = []
    for _ in range(draw(st.integers(1, 4))):
        gains = [draw(st.sampled_from((0.0, 0.1, 0.25, 0.5, 1.0))) for _ in range(draw(st.integers(1, 3)))]
        left_s = len(gains) * ROUND_S + draw(st.sampled_from((0.0, 5.0, 40.0)))
        bids.append(Bid(draw(st.sampled_from((1, 2, 4))), tuple(falling(gains)), left_s))
    return bids


@settings(max_examples=examples(60), deadline=None)
@given(markets(), st.integers(1, 3), st.sampled_from((0.0, 0.01, 0.2)))
def test_the_program_finds_the_best_schedule(bids: list[Bid], rounds: int, makespan_weight: float) -> None:
    """Counts leave out which rounds a job gets: no schedule is better, and of equal sizes one is as good."""
    counts = rounds_of_window(bids, 4, rounds, ROUND_S, makespan_weight=makespan_weight, gap=0.0)
    assert counts is not None
    found, best = value(bids, counts, 4, makespan_weight), best_of_all(bids, 4, rounds, makespan_weight)
    assert found >= best - 1e-6
    if len({bid.gpus for bid in bids}) == 1:
        assert found == pytest.approx(best, abs=1e-6)


def test_two_wide_jobs_share_the_rounds() -> None:
    """Both want 3 of 4 GPUs in all of 4 rounds: 16 of 24 GPU-rounds, but never two in a round."""
    bids = [Bid(3, (1.0, 0.9, 0.8, 0.7), 1e3), Bid(3, (1.0, 0.9, 0.8, 0.7), 1e3)]
    assert rounds_of_window(bids, 4, 4, ROUND_S, gap=0.0) == [2, 2]


def test_gains_that_grow_are_averaged() -> None:
    assert falling([0.0, 1.0, 1.0, 0.25]) == pytest.approx([2 / 3, 2 / 3, 2 / 3, 0.25])
    assert falling([3.0, 2.0, 1.0]) == [3.0, 2.0, 1.0]
