"""Draws have the probabilities asked for; dealing loses nothing; hulls hold every maximum."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from itertime.costs.balance.hulls import stacked, upper_hull
from itertime.costs.balance.imbalance import exchange_bytes
from itertime.costs.balance.sampling import deal, draw


@given(st.lists(st.floats(1e-6, 1), min_size=1, max_size=40), st.integers(0, 2**32 - 1))
def test_units_are_drawn_with_their_probabilities(weights: list[float], seed: int) -> None:
    count = 20_000
    shares = np.array(weights) / sum(weights)
    drawn = draw(np.random.default_rng(seed), weights, (count,), start=3)
    found = np.bincount(drawn - 3, minlength=len(weights)) / count
    # Six standard deviations, and two units more, as a rare one is not normal.
    assert (abs(found - shares) <= 6 * np.sqrt(shares * (1 - shares) / count) + 2 / count).all()


def test_many_units_need_more_bits() -> None:
    rng = np.random.default_rng(0)
    assert draw(rng, np.ones(100), (3,)).dtype == np.int16
    large = draw(rng, np.ones(40_000), (100_000,))
    assert large.dtype == np.int32
    assert (large.min(), large.max()) == (0, 39_999)


@given(st.integers(1, 4), st.integers(1, 6), st.integers(1, 5), st.randoms(use_true_random=False))
def test_dealing_keeps_all_and_forgets_the_order(pools: int, ranks: int, rounds: int, order) -> None:  # type: ignore[no-untyped-def]
    units = np.array([order.randrange(9) for _ in range(pools * ranks * rounds)], dtype=np.int16)
    units = units.reshape(pools, ranks * rounds)
    dealt = deal(units, ranks)
    assert dealt.shape == (pools, ranks, rounds)
    assert (np.sort(dealt.reshape(pools, -1)) == np.sort(units)).all()
    assert (np.diff(dealt.astype(int), axis=2) <= 0).all()
    shuffled = np.array([order.sample(row, len(row)) for row in units.tolist()], dtype=np.int16)
    assert (deal(shuffled, ranks) == dealt).all()


POINTS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=30)


@given(st.lists(POINTS, min_size=1, max_size=4), st.floats(0, 1e3), st.floats(0, 1e3))
def test_hulls_hold_the_maximum_of_any_work(clouds: list[list[tuple[int, int]]], a: float, b: float) -> None:
    points = [np.array(cloud, dtype=float) for cloud in clouds]
    hulls = [upper_hull(cloud) for cloud in points]
    for cloud, hull in zip(points, hulls, strict=True):
        assert {*map(tuple, hull.tolist())} <= {*map(tuple, cloud.tolist())}
        assert len(hull) == len({*map(tuple, hull.tolist())})
        slopes = np.diff(hull[:, 1]) / np.diff(hull[:, 0])
        assert (np.diff(slopes) > 0).all()  # ever flatter, so no corner is on the line of others
    weights = np.array((a, b))
    best = (stacked(hulls) @ weights).max(axis=1)
    assert best == pytest.approx(np.array([(cloud @ weights).max() for cloud in points]))


def test_an_exchange_gathers_four_arrays_of_two_bytes() -> None:
    assert exchange_bytes("exchanged", 16, 512) == (4 * 2 * 16 * 512, True)
    assert exchange_bytes("stratified-exchanged", 16, 512) == (65_536, True)
    assert exchange_bytes("sorted", 56, 512) == (229_376, False)
    assert exchange_bytes("stratified", 16, 512) == exchange_bytes("drawn", 16, 512) == (0, True)
