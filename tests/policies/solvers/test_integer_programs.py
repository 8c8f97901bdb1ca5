"""Integer programs of windows and leases, and matchings, against all of small cases."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import combinations, permutations, product
from math import inf
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from policies.solvers import Bid, LeaseDemand, falling, lease_terms, rounds_of_window
from policies.solvers.pairing import best_pairs
from policies.solvers.positions import lanes, positions
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


Array = NDArray[np.float64]


def total_s(run_s: Array, machines: Sequence[Array], places: Sequence[tuple[int, float]]) -> float:
    """The sum of completion times. Also: no two jobs overlap on one machine, and none starts too early."""
    ends: dict[int, list[float]] = {}
    for t, free in enumerate(machines):
        mine = sorted((start, row) for row, (type_, start) in enumerate(places) if type_ == t)
        ends[t] = free.tolist()
        for start, row in mine:
            usable = [end for end in ends[t] if end <= start + 1e-9]
            assert usable, "a job starts while all machines of its type are taken"
            ends[t].remove(max(usable))
            ends[t].append(start + run_s[row, t])
    return sum(start + run_s[row, type_] for row, (type_, start) in enumerate(places))


def least_total_s(run_s: Array, machines: Sequence[Array]) -> float:
    """Over all orders of the jobs and all machines for each, appended in that order."""
    every = [(t, float(r)) for t, free in enumerate(machines) for r in free]
    best = inf
    for order in permutations(range(len(run_s))):
        for chosen in product(range(len(every)), repeat=len(run_s)):
            clocks, total = [release for _, release in every], 0.0
            for row, machine in zip(order, chosen, strict=True):
                clocks[machine] += run_s[row, every[machine][0]]
                total += clocks[machine]
            best = min(best, total)
    return best


@pytest.mark.parametrize("seed", range(12))
def test_no_schedule_has_a_smaller_sum_of_completion_times(seed: int) -> None:
    """Up to four jobs on up to three machines of two types, some busy at first, some types unusable."""
    random = np.random.default_rng(seed)
    jobs = int(random.integers(1, 5))
    machines = [np.sort(random.choice([0.0, 0.0, 5.0, 20.0], n)) for n in ((1, 2), (2, 1), (1, 1))[seed % 3]]
    run_s = random.integers(1, 30, (jobs, 2)).astype(float)
    run_s[random.random(jobs) < 0.3, int(random.integers(2))] = inf
    places = positions(run_s, np.ones(jobs), machines)
    assert total_s(run_s, machines, places) == pytest.approx(least_total_s(run_s, machines))


@given(st.integers(0, 10**6), st.integers(1, 14), st.booleans())
@settings(deadline=None, max_examples=examples(100))
def test_pairs_left_out_do_not_matter(seed: int, jobs: int, gangs: bool) -> None:
    """The whole table has every position of every machine."""
    random = np.random.default_rng(seed)
    machines = [
        np.sort(random.choice([0.0, 1.0, 7.0, 40.0], int(random.integers(1, 9))))
        for _ in range(int(random.integers(1, 4)))
    ]
    run_s = random.choice([1.0, 2.0, 3.5, 8.0, 20.0], (jobs, len(machines)))
    share = random.choice([0.5, 1.0, 3.0], jobs) if gangs else np.ones(jobs)
    behind = float(random.choice([0.0, 0.7, 5.0]))
    columns = [
        run_s[:, t] * (1 + (k - 1 + behind) * share) + r
        for t, free in enumerate(machines)
        for r in free
        for k in range(1, jobs + 1)
    ]
    table = np.array(columns).T
    best = table[linear_sum_assignment(table)].sum()
    places = positions(run_s, share, machines, behind)
    mine = [start + (1 + behind * share[row]) * run_s[row, t] for row, (t, start) in enumerate(places)]
    assert sum(mine) == pytest.approx(best)


def test_alike_jobs_start_in_their_order() -> None:
    places = positions(np.full((6, 1), 10.0), np.ones(6), [np.array([0.0, 4.0])])
    starts = [start for _, start in places]
    assert starts == sorted(starts) == [0.0, 4.0, 10.0, 14.0, 20.0, 24.0]


def test_a_wide_job_lets_small_ones_go_first() -> None:
    """Two jobs of 10 s on one machine; the first has 1.6 times the mean GPUs, the second 0.4."""
    places = positions(np.full((2, 1), 10.0), np.array([1.6, 0.4]), [np.zeros(1)])
    assert places == [(0, 4.0), (0, 0.0)]


def test_machines_of_several_gpus() -> None:
    releases = np.array([0.0, 30.0, 0.0, 10.0, 20.0])
    assert lanes(releases, 1.0).tolist() == [0.0, 0.0, 10.0, 20.0, 30.0]
    assert lanes(releases, 5 / 3).tolist() == [0.0, 20.0, 30.0]
    assert lanes(releases, 8.0).tolist() == [30.0]
    assert lanes(np.zeros(0), 2.0).tolist() == []


# Pairs


def most(counts: tuple[int, ...], weights: list[list[float]]) -> float:
    """The greatest total weight, by trying all partners of the first thing that is left."""

    @cache
    def of(left: tuple[int, ...]) -> float:
        first = next((kind for kind, n in enumerate(left) if n), None)
        if first is None:
            return 0.0
        rest = [n - (kind == first) for kind, n in enumerate(left)]
        best = of(tuple(rest))
        for other, n in enumerate(rest):
            if n:
                after = tuple(m - (kind == other) for kind, m in enumerate(rest))
                best = max(best, weights[first][other] + of(after))
        return best

    return of(counts)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=4), st.data())
def test_no_matching_weighs_more(counts: list[int], data: st.DataObject) -> None:
    kinds = range(len(counts))
    drawn = {(a, b): data.draw(st.integers(-3, 9)) / 8 for a in kinds for b in kinds if a <= b}
    weights = [[drawn[min(a, b), max(a, b)] for b in kinds] for a in kinds]
    made = best_pairs(counts, weights)
    for kind, n in enumerate(counts):
        assert sum(m * ((a == kind) + (b == kind)) for (a, b), m in made.items()) <= n
    assert all(weights[a][b] > 0 for a, b in made)
    total = sum(weights[a][b] * n for (a, b), n in made.items())
    assert total == pytest.approx(most(tuple(counts), weights))


def test_odd_circles_need_more_than_a_bipartite_program() -> None:
    """Three things of three kinds: half a pair each would weigh 1.5, but only one pair can be made."""
    weights = [[0.0 if a == b else 1.0 for b in range(3)] for a in range(3)]
    assert sum(best_pairs([1, 1, 1], weights).values()) == 1
    assert sum(best_pairs([1000, 1000, 1000], weights).values()) == 1500
    assert best_pairs([], []) == {}
    assert best_pairs([1, 0], [[5.0, 5.0], [5.0, 5.0]]) == {}
    assert best_pairs([4], [[-1.0]]) == {}
