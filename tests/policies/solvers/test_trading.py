"""Shares by tickets and trades: what each tenant is sure of, and a market that trades in small steps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import linprog

from policies.solvers.trading import TenantDemand, filled, ticket_shares, trade
from tests.effort import examples

Array = NDArray[np.float64]
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
