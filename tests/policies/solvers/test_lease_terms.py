"""Leases by the integer program, beside all assignments of terms to jobs."""

from __future__ import annotations

from itertools import combinations, product
from random import Random

import pytest

from policies.solvers import LeaseDemand, lease_terms


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
