"""Integer programs of windows and of leases, against all schedules of small cases."""

from __future__ import annotations

from itertools import combinations, product
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.solvers import Bid, LeaseDemand, falling, lease_terms, rounds_of_window
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


# Terms of leases


def drawn(random: Random) -> tuple[list[LeaseDemand], list[int]]:
    """Up to three jobs and four terms of 100 s, some of them demanding."""
    terms = random.randint(1, 4)
    demands = []
    for _ in range(random.randint(1, 3)):
        last = random.randint(0, terms - 1)
        seconds = [100.0] * last + [random.choice((30.0, 100.0))] + [0.0] * (terms - 1 - last)
        need_s, again_s = random.choice((20.0, 90.0, 150.0, 240.0)), random.choice((0.0, 10.0, 110.0))
        holds = random.random() < 0.4
        keeps = holds and random.random() < 0.5
        demands.append(LeaseDemand(random.choice((1, 2, 4)), need_s, again_s, tuple(seconds), holds, keeps))
    return demands, [random.choice((2, 4)) for _ in range(terms)]


def is_met(demand: LeaseDemand, terms: tuple[int, ...]) -> bool:
    """In plain words: the seconds of the terms, less what each start costs, do the work."""
    done, before = 0.0, 0 if demand.holds else None
    for term in terms:
        if before != term:
            done -= demand.again_s
        done += demand.seconds[term]
        before = term + 1
    wrong = any(demand.seconds[term] == 0 for term in terms) or (demand.keeps and 0 not in terms)
    return done >= demand.need_s and not wrong


def is_possible(demands: list[LeaseDemand], free: list[int]) -> bool:
    """Whether any of all assignments meets all demands."""
    every = range(len(free))
    subsets = [subset for size in range(len(free) + 1) for subset in combinations(every, size)]
    choices = [[subset for subset in subsets if is_met(demand, subset)] for demand in demands]
    return any(is_within(demands, chosen, free) for chosen in product(*choices))


def is_within(demands: list[LeaseDemand], chosen: tuple[tuple[int, ...], ...], free: list[int]) -> bool:
    return all(
        sum(demand.gpus for demand, terms in zip(demands, chosen, strict=True) if term in terms) <= gpus
        for term, gpus in enumerate(free)
    )


@pytest.mark.parametrize("seed", range(10))
def test_it_finds_leases_exactly_where_there_are_some(seed: int) -> None:
    random, possible = Random(seed), 0
    for _ in range(15):
        demands, free = drawn(random)
        found = lease_terms(demands, free, search_nodes=1000)
        assert (found is not None) == is_possible(demands, free)
        if found is not None:
            possible += 1
            assert all(is_met(demand, terms) for demand, terms in zip(demands, found, strict=True))
            assert is_within(demands, tuple(found), free)
    assert 0 < possible < 15


def test_leases_by_hand() -> None:
    """A job moves to later terms for an urgent one, unless its lease is kept. Two terms together do 195 s of
    work; with a gap they do 190, and 195 are needed.
    """
    patient = LeaseDemand(4, 90.0, 5.0, (100.0, 100.0, 100.0))
    urgent = LeaseDemand(4, 90.0, 5.0, (100.0, 0.0, 0.0))
    assert lease_terms([patient, urgent], [4, 4, 4], search_nodes=10) == [(1,), (0,)]
    kept_lease = patient._replace(holds=True, keeps=True)
    assert lease_terms([kept_lease, urgent], [4, 4, 4], search_nodes=10) is None
    demand = LeaseDemand(1, 195.0, 5.0, (100.0, 100.0, 100.0))
    assert lease_terms([demand], [1, 1, 0], search_nodes=10) == [(0, 1)]
    assert lease_terms([demand], [1, 0, 1], search_nodes=10) is None
    assert lease_terms([], [1], search_nodes=1) == []
