"""Linear and integer programs, matchings, tickets and trades: closed forms, optima, all of small cases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations, islice, permutations, product
from math import inf
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment, linprog

from policies.solvers import Bid, LeaseDemand, assign, falling, lease_terms, rounds_of_window
from policies.solvers.finish_time import isolated_shares, least_ratio
from policies.solvers.packed_shares import Partners, packed_each, packed_grouped
from policies.solvers.pairing import best_pairs
from policies.solvers.positions import lanes, positions
from policies.solvers.time_shares import (
    Problem,
    each,
    grouped,
    in_turn,
    largest_level,
    most_throughput,
    water_filling,
)
from policies.solvers.trading import TenantDemand, filled, ticket_shares, trade
from tests.effort import examples

Array = NDArray[np.float64]


def throughput(problem: Problem, shares: Array) -> Array:
    return (problem.rates * shares).sum(axis=-1)


def check_feasible(problem: Problem, shares: Array) -> None:
    assert (shares >= 0).all()
    assert (shares.sum(axis=1) <= 1 + 1e-6).all()
    load = (problem.gpus * problem.copies) @ shares
    assert (load <= problem.capacity * (1 + 1e-6)).all()


# Published


def test_gavels_example() -> None:
    """Gavel (OSDI 2020, section 4.1): three jobs, one V100 and one K80; rates and X as printed there, X to
    two digits. That each job makes 12/11 of its progress on a third of each GPU is worked out from the rates.
    """
    rates = np.array([[40.0, 10.0], [12.0, 4.0], [100.0, 50.0]])
    problem = each(rates, [1, 1, 1], [1, 1])
    isolated = problem.rates @ np.array([1 / 3, 1 / 3])
    shares = water_filling(problem, isolated)
    assert np.abs(shares - [[0.45, 0.0], [0.45, 0.09], [0.09, 0.91]]).max() < 0.005
    assert throughput(problem, shares) / isolated == pytest.approx([12 / 11] * 3)


# Closed forms


@given(st.lists(st.tuples(st.integers(1, 8), st.floats(1, 1e4)), min_size=1, max_size=12))
@settings(deadline=None)
def test_makespan_on_one_type(jobs: list[tuple[int, float]]) -> None:
    """As for malleable jobs (McNaughton 1959): the longest job, or all GPU time over all GPUs."""
    gpus, work = [n for n, _ in jobs], np.array([s for _, s in jobs])
    problem = each(np.ones((len(jobs), 1)), gpus, [8])
    best = largest_level(problem, work)
    check_feasible(problem, best.shares)
    assert 1 / best.level == pytest.approx(max(work.max(), float(work @ gpus) / 8), rel=1e-5)


rows_on_one_type = st.lists(
    st.tuples(st.integers(1, 8), st.integers(1, 3), st.sampled_from([0.0, 0.5, 1.0, 2.0, 7.0])),
    min_size=1,
    max_size=8,
).filter(lambda rows: any(required for _, _, required in rows))


@given(rows_on_one_type, st.integers(8, 40), st.floats(0, 0.2))
@settings(deadline=None)
def test_closed_forms_on_one_type_are_optima_of_the_programs(
    rows: list[tuple[int, int, float]], capacity: int, floor: float
) -> None:
    """As the solver finds them; the shares of a largest sum may be others, their sum may not."""
    gpus, copies, required = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
    problem = Problem(np.ones((len(rows), 1)), gpus, copies, np.array([float(capacity)]), np.ones(len(rows)))
    load, weights = gpus * copies, np.linspace(1.0, 2.0, len(rows))
    floors = np.where(required > 0, 0.0, min(floor, capacity / load.sum()))
    mine, full = largest_level(problem, required, floors), most_throughput(problem, weights, floors)
    with patch.object(Problem, "alike", lambda problem: False):
        theirs, other = largest_level(problem, required, floors), most_throughput(problem, weights, floors)
    assert mine.level == pytest.approx(theirs.level, rel=1e-5)
    assert (weights * copies) @ full == pytest.approx((weights * copies) @ other, rel=1e-5)
    for shares in (mine.shares, full):
        check_feasible(problem, shares)
        assert (shares[:, 0] >= floors - 1e-6).all()
    assert (mine.shares[:, 0] >= mine.level * required - 1e-6).all()
    assert mine.prices @ required <= 1 + 1e-9  # as of every dual solution: a unit of the level costs one


def test_isolated_shares_are_one_nth() -> None:
    """Four jobs on 16 + 16 GPUs: 4 of each for a job of 8 is half its time on each, one of 2 has all its
    time.
    """
    problem = each(np.ones((2, 2)), [8, 2], [16, 16])
    assert isolated_shares(problem, 4).tolist() == [[0.5, 0.5], [0.5, 0.5]]
    assert isolated_shares(problem, 8).tolist() == [[0.25, 0.25], [0.5, 0.5]]


# Rows


def test_shares_do_not_depend_on_the_order_of_jobs() -> None:
    kinds = [(1, 1.0), (1, 1.0), (2, 0.5), (2, 0.5), (4, 0.2), (4, 0.3)]
    share_sets = set()
    for order in islice(permutations(kinds), 0, None, 71):
        rates = np.array([[1.0, slow] for _, slow in order])
        problem, row_of = grouped(rates, [n for n, _ in order], [4, 4])
        shares = water_filling(problem, problem.rates.mean(axis=1))[row_of]
        share_sets.add(
            tuple(sorted({(kind, *share) for kind, share in zip(order, shares.tolist(), strict=True)}))
        )
    assert len(share_sets) == 1


def test_jobs_alike_share_a_row() -> None:
    problem, row_of = grouped(np.array([[2.0], [8.0], [3.0]]), [4, 4, 2], [8])
    assert row_of == [1, 1, 0]
    assert problem.copies.tolist() == [1, 2]


def test_in_turn_serves_the_first_of_a_row_first() -> None:
    shares = np.array([[0.5, 0.25], [1.0, 0.0]])
    assert in_turn(shares, [0, 1, 0, 0]).tolist() == [[1.0, 0.0], [1.0, 0.0], [0.5, 0.5], [0.0, 0.25]]


# With space sharing


@dataclass
class Case:
    """`rates` (jobs, types) relative to the best, GPUs and kind by job, GPUs by type, speed (kinds, kinds)
    beside another kind.
    """

    rates: Array
    gpus: NDArray[np.int64]
    kind: NDArray[np.int64]
    capacity: NDArray[np.int64]
    speed: Array

    @classmethod
    def drawn(cls, seed: int, slowest: float = 0.2) -> Case:
        random = np.random.default_rng(seed)
        jobs, types, kinds = random.integers(2, 8), random.integers(1, 4), random.integers(1, 4)
        capacity = random.integers(1, 6, types)
        capacity[0] = 5
        kind = random.integers(0, kinds, jobs)
        gpus = random.integers(1, 6, kinds)[kind]
        rates = random.uniform(0.1, 2.0, (jobs, types))
        rates[random.random(rates.shape) < 0.15] = 0.0
        rates[:, 0] = np.maximum(rates[:, 0], 0.05)
        speed = random.uniform(slowest, 1.0, (kinds, kinds))
        return cls(rates / rates.max(axis=1, keepdims=True), gpus, kind, capacity, speed)

    def partners(self) -> Partners | None:
        """Only pairs that gain, of jobs of as many GPUs."""
        size = np.array([self.gpus[self.kind == k][:1].sum() for k in range(len(self.speed))])
        gains = (self.speed + self.speed.T > 1) & (size[:, None] == size[None, :])
        return Partners(self.kind.tolist(), np.where(gains, self.speed, 0.0)) if gains.any() else None

    def each(self) -> Problem:
        return packed_each(self.rates, self.gpus.tolist(), self.capacity.tolist(), self.partners())

    def paper(self, level: Array | None, worth: Array | None = None) -> float:
        """Section 3.1 word for word: a variable for each job and each pair on each type, also for pairs that
        gain nothing. The largest common level, or the largest sum of worth x throughput.
        """
        jobs, types = self.rates.shape
        pairs = [pair for pair in combinations(range(jobs), 2) if self.gpus[pair[0]] == self.gpus[pair[1]]]
        combos: list[tuple[int, ...]] = [*((job,) for job in range(jobs)), *pairs]
        size = len(combos) * types
        throughput, time, used = np.zeros((jobs, size)), np.zeros((jobs, size)), np.zeros((types, size))
        bounds = []
        for v, (combo, j) in enumerate((combo, j) for combo in combos for j in range(types)):
            used[j, v] = self.gpus[combo[0]]
            fits = all(self.rates[job, j] > 0 for job in combo) and used[j, v] <= self.capacity[j]
            bounds.append((0.0, 1.0 if fits else 0.0))
            for job in combo:
                other = [x for x in combo if x != job]
                beside = self.speed[self.kind[job], self.kind[other[0]]] if other else 1.0
                throughput[job, v], time[job, v] = self.rates[job, j] * beside, 1.0
        limits = np.concatenate([np.ones(jobs), self.capacity])
        if level is None:
            return -self._solved(-worth @ throughput, np.vstack([time, used]), limits, bounds)
        rows = np.vstack([time, used, -throughput])
        column = np.concatenate([np.zeros(jobs + types), level])[:, None]
        minimise = np.append(np.zeros(size), -1.0)
        limits = np.concatenate([limits, np.zeros(jobs)])
        return -self._solved(minimise, np.hstack([rows, column]), limits, [*bounds, (0.0, None)])

    @staticmethod
    def _solved(minimise: Any, rows: Array, limits: Array, bounds: Any) -> float:
        result = linprog(minimise, A_ub=rows, b_ub=limits, bounds=bounds)
        assert result.x is not None
        return float(result.fun)


@pytest.mark.parametrize("seed", range(40))
def test_the_largest_level_and_sum_are_those_of_the_paper(seed: int) -> None:
    case = Case.drawn(seed)
    random = np.random.default_rng(1000 + seed)
    jobs = len(case.gpus)
    level, worth = random.uniform(0.1, 1.0, (2, jobs))
    problem = case.each()
    assert largest_level(problem, level).level == pytest.approx(case.paper(level), rel=1e-6)
    shares = most_throughput(problem, worth)
    assert float(worth @ (problem.rates * shares).sum(axis=1)) == pytest.approx(
        case.paper(None, worth), rel=1e-6
    )
    rows, _ = packed_grouped(case.rates, case.gpus.tolist(), case.capacity.tolist(), None, case.partners())
    ones = np.ones(len(rows.gpus))
    assert largest_level(rows, ones).level == pytest.approx(case.paper(np.ones(jobs)), rel=1e-6)
    worst = (rows.rates * water_filling(rows, ones)).sum(axis=1).min()
    assert worst == pytest.approx(case.paper(np.ones(jobs)), rel=1e-5)


@pytest.mark.parametrize("seed", range(10))
def test_the_least_finish_time_ratio_is_where_the_papers_level_is_one(seed: int) -> None:
    case = Case.drawn(seed)
    random = np.random.default_rng(2000 + seed)
    jobs = len(case.gpus)
    elapsed, remaining = random.uniform(0, 100, jobs), random.uniform(50, 500, jobs)
    isolated = elapsed + remaining * random.uniform(1, 5, jobs)
    ratio, need = least_ratio(case.each(), elapsed, remaining, isolated)
    assert need == pytest.approx(remaining / (ratio * isolated - elapsed), rel=1e-6)
    assert case.paper(need) >= 1 - 1e-5
    tighter = remaining / (0.999 * ratio * isolated - elapsed)
    hindered = case.paper(tighter) < 1
    assert hindered or ratio == pytest.approx(((elapsed + remaining) / isolated).max())


@pytest.mark.parametrize("seed", range(10))
def test_without_a_pair_that_gains_the_problem_is_that_without_sharing(seed: int) -> None:
    case = Case.drawn(seed)
    case.speed /= 2.0
    assert case.partners() is None
    gpus, capacity = case.gpus.tolist(), case.capacity.tolist()
    plain, level = each(case.rates, gpus, capacity), np.ones(len(gpus))
    assert largest_level(plain, level).level == pytest.approx(case.paper(level), rel=1e-6)
    packed, rows = packed_grouped(case.rates, gpus, capacity, None, None)
    expected, expected_rows = grouped(case.rates, gpus, capacity)
    assert rows == expected_rows
    assert np.array_equal(packed.rates, expected.rates)


@pytest.mark.parametrize(("jobs", "speed", "level"), [(1, 1.0, 1.0), (2, 0.8, 0.8), (3, 0.9, 2 / 3 * 0.9)])
def test_equal_jobs_on_one_gpu(jobs: int, speed: float, level: float) -> None:
    """By hand: two do 0.8 each at 80 % of their speed beside each other. Each of three runs two thirds of its
    time, beside either of the others. One of a kind has no pair, however well the kind would share.
    """
    problem = packed_each(np.ones((jobs, 1)), [1] * jobs, [1], Partners([0] * jobs, np.array([[speed]])))
    best = largest_level(problem, np.ones(jobs))
    assert best.level == pytest.approx(level)
    if jobs < 3:
        assert best.shares == pytest.approx(np.array([[2.0 - jobs, jobs - 1.0]] * jobs))


seeds = st.integers(0, 10**6)


def drawn(seed: int, types: int | None = None) -> tuple[Array, Array, TenantDemand]:
    """Capacity, tickets and demand; some tenants can hold few GPUs, or none of a type."""
    random = np.random.default_rng(seed)
    tenants, types = int(random.integers(1, 6)), types or int(random.integers(1, 4))
    capacity = random.integers(1, 20, types).astype(float)
    tickets = random.choice([0.5, 1.0, 1.0, 3.0], tenants)
    speeds = random.uniform(0.1, 1.0, (tenants, types))
    speeds[random.random(speeds.shape) < 0.15] = 0.0
    speeds[np.arange(tenants), random.integers(0, types, tenants)] = 1.0
    total = random.integers(1, 30, tenants).astype(float)
    most = np.where(speeds > 0, total[:, None] * random.choice([0.5, 1.0, 1.0], speeds.shape), 0.0)
    return capacity, tickets, TenantDemand(speeds, most, np.minimum(total, most.sum(axis=1)))


def check_held(held: Array, capacity: Array, demand: TenantDemand) -> None:
    assert (held >= -1e-9).all()
    assert (held.sum(axis=0) <= capacity + 1e-9).all()
    assert (held <= demand.most + 1e-6).all()
    assert (held.sum(axis=1) <= demand.total + 1e-6).all()


@given(seeds)
@settings(deadline=None, max_examples=examples(200))
def test_a_tenant_has_what_its_part_of_the_cluster_is_worth(seed: int) -> None:
    """Of its tickets' part of every type the best use that its jobs can make, by a linear program."""
    capacity, tickets, demand = drawn(seed)
    held = ticket_shares(capacity, tickets, demand)
    check_held(held, capacity, demand)
    for u, worth in enumerate(demand.worth(held)):
        part = np.minimum(capacity * tickets[u] / tickets.sum(), demand.most[u])
        best = linprog(
            -demand.speeds[u], A_ub=np.ones((1, len(capacity))), b_ub=[demand.total[u]],
            bounds=[(0.0, float(x)) for x in part],
        )  # fmt: skip
        assert worth >= -best.fun - 1e-6


@given(seeds)
@settings(deadline=None, max_examples=examples(200))
def test_no_trade_makes_a_tenant_worse_off(seed: int) -> None:
    capacity, tickets, demand = drawn(seed)
    before = ticket_shares(capacity, tickets, demand)
    after, trades = trade(before, demand, 0.05)
    check_held(after, capacity, demand)
    assert after.sum(axis=0) == pytest.approx(before.sum(axis=0))
    assert (demand.worth(after) >= demand.worth(before) - 1e-6).all()
    for one in trades:
        ratio = demand.speeds[:, one.fast] / np.maximum(demand.speeds[:, one.slow], 1e-12)
        assert ratio[one.seller] <= one.price * (1 + 1e-9)
        assert one.price <= ratio[one.buyer] * (1 + 1e-9)
    if trades:
        assert demand.worth(after).sum() > demand.worth(before).sum()


@given(seeds)
@settings(deadline=None, max_examples=examples(100))
def test_no_gpu_is_left_over_that_a_tenant_can_use(seed: int) -> None:
    """A tenant with room for more has room on no type that has GPUs left."""
    capacity, tickets, demand = drawn(seed)
    held = ticket_shares(capacity, tickets, demand)
    left = capacity - held.sum(axis=0)
    room = demand.total - held.sum(axis=1)
    for u in np.flatnonzero(room > 1e-6):
        for j in np.flatnonzero(left > 1e-6):
            assert held[u, j] >= demand.most[u, j] - 1e-6


def small_trades(held: Array, demand: TenantDemand, margin: float, step: float) -> Array:
    """Two types, the first faster for all: `step` fast GPUs at a time between the tenants with the largest
    and the smallest speed-up that can still trade; the price is the second largest of those that have not
    bought all they can.
    """
    held, ratio = held.copy(), demand.speeds[:, 0] / demand.speeds[:, 1]
    order = sorted(range(len(ratio)), key=lambda u: (-ratio[u], u))
    while True:
        found = False
        for place, buyer in enumerate(order[:-1]):
            price = ratio[order[place + 1]]
            for seller in reversed(order[place + 1 :]):
                after = held.copy()
                after[buyer] += [step, -price * step]
                after[seller] += [-step, price * step]
                fine = (
                    (after >= 0).all()
                    and (after <= demand.most).all()
                    and (after.sum(axis=1) <= demand.total).all()
                )
                if fine and ratio[buyer] > ratio[seller] * (1 + margin):
                    held, found = after, True
                    break
            if found:
                break
        if not found:
            return held


@pytest.mark.parametrize("seed", range(12))
def test_trades_are_those_of_a_market_in_small_steps(seed: int) -> None:
    random = np.random.default_rng(seed)
    tenants = int(random.integers(2, 5))
    speeds = np.column_stack([np.ones(tenants), 1 / random.uniform(1.0, 6.0, tenants)])
    total = random.integers(4, 40, tenants).astype(float)
    demand = TenantDemand(speeds, np.repeat(total[:, None], 2, axis=1), total)
    before = ticket_shares(random.integers(4, 12, 2).astype(float), np.ones(tenants), demand)
    after, _ = trade(before, demand, 0.1)
    assert after == pytest.approx(small_trades(before, demand, 0.1, 0.002), abs=0.1)


def test_the_price_is_the_second_largest_speed_up() -> None:
    """Speed-ups of 5, 3 and 1.25, each with 3 fast and 3 slow GPUs. The first buys from the last at 3: its 3
    slow GPUs are worth 1 fast one. The second buys at 1.25, 2 of the last one's 2.
    """
    speeds = np.array([[1.0, 0.2], [1.0, 1 / 3], [1.0, 0.8]])
    demand = TenantDemand(speeds, np.full((3, 2), 99.0), np.full(3, 99.0))
    held, trades = trade(np.full((3, 2), 3.0), demand, 0.1)
    assert [(one.buyer, one.seller, one.gpus, one.price) for one in trades] == [
        (0, 2, pytest.approx(1.0), pytest.approx(3.0)),
        (1, 2, pytest.approx(2.0), pytest.approx(1.25)),
    ]
    assert held == pytest.approx(np.array([[4.0, 0.0], [5.0, 0.5], [0.0, 8.5]]))


def test_like_tenants_do_not_trade() -> None:
    demand = TenantDemand(np.array([[1.0, 0.5], [1.0, 0.48]]), np.full((2, 2), 9.0), np.full(2, 9.0))
    assert trade(np.full((2, 2), 4.0), demand, 0.1)[1] == []


@pytest.mark.parametrize(
    ("speeds", "most", "total", "held"),
    [
        ([[1.0, 0.5], [1.0, 0.5]], [[2.0, 2.0], [99.0, 99.0]], [2.0, 99.0], [[2.0, 0.0], [6.0, 8.0]]),
        ([[1.0, 0.5], [0.0, 1.0]], [[6.0, 6.0], [0.0, 9.0]], [6.0, 9.0], [[6.0, 0.0], [0.0, 8.0]]),
    ],
    ids=["a tenant of few jobs takes fast GPUs first", "idle fast GPUs replace slow ones"],
)
def test_shares_of_two_tenants_by_hand(speeds: object, most: object, total: object, held: object) -> None:
    """Parts are 4 + 4 of 8 fast and 8 slow GPUs."""
    demand = TenantDemand(np.array(speeds), np.array(most), np.array(total))
    assert ticket_shares(np.array([8.0, 8.0]), np.ones(2), demand) == pytest.approx(np.array(held))


def test_division_by_weights_up_to_limits() -> None:
    assert filled(np.array([2.0, 2.0]), np.ones(2), 9.0).tolist() == [2.0, 2.0]
    assert filled(np.array([1.0, 9.0, 9.0]), np.array([1.0, 1.0, 2.0]), 7.0).tolist() == [1.0, 2.0, 4.0]
    assert filled(np.zeros(2), np.ones(2), 5.0).tolist() == [0.0, 0.0]


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


def drawn_leases(random: Random) -> tuple[list[LeaseDemand], list[int]]:
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
        demands, free = drawn_leases(random)
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


@pytest.mark.parametrize("seed", range(5))
def test_one_gpu_type_has_the_optimum_of_the_general_program(seed: int) -> None:
    """Beside a second type that has no GPUs the general program is solved."""
    random = Random(seed)
    kinds = [
        tuple((0, 2**k, -random.uniform(0, 2) * 1.5**k) for k in range(random.randint(1, 5)))
        for _ in range(6)
    ]
    choices, gpus = random.choices(kinds, k=12), random.randint(1, 40)
    costs = []
    for capacity in ([gpus], [gpus, 0]):
        assignments = assign(choices, capacity, gap=0.0, search_nodes=100_000)
        assert assignments is not None
        costs_of = [{(type_, n): cost for type_, n, cost in choice} for choice in choices]
        pairs = [(of[entry], entry[1]) for of, entry in zip(costs_of, assignments, strict=True) if entry]
        assert sum(n for _, n in pairs) <= gpus
        costs.append(sum(cost for cost, _ in pairs))
    assert costs[0] == pytest.approx(costs[1], rel=1e-9)


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
