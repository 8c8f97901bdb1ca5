"""Packs and strata of samples, and dealing them: published efficiencies and counts, and nothing lost."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from itertime.costs.balance.drawn_work import rows_of
from itertime.costs.balance.hulls import stacked, upper_hull
from itertime.costs.balance.imbalance import exchange_bytes
from itertime.costs.balance.packing import packs_of
from itertime.costs.balance.sampling import deal, draw
from itertime.costs.balance.strata import apportioned, bin_edges, stratified_counts
from itertime.spec import Lengths, load_lengths
from tests.itertime.tables import table_rows


@pytest.mark.parametrize(("most", "efficiency", "factor"), table_rows("efficiency of packs"))
def test_published_efficiency(most: int, efficiency: float, factor: float, histogram: Lengths) -> None:
    packs = packs_of(histogram, 512, most)
    assert 100 * packs.efficiency == pytest.approx(efficiency, abs=0.06)
    assert packs.samples == pytest.approx(factor, abs=0.006)
    shipped = packs_of(load_lengths("wikipedia-512"), 512, most)
    assert 100 * shipped.efficiency == pytest.approx(efficiency, abs=0.2)


@given(st.dictionaries(st.integers(1, 64), st.integers(1, 1000), min_size=1, max_size=20), st.integers(1, 6))
def test_every_sequence_is_packed_once(counts: dict[int, int], most: int) -> None:
    total = sum(counts.values())
    lengths = Lengths("t", "t", tuple(sorted(counts)), tuple(counts[t] / total for t in sorted(counts)))
    packs = packs_of(lengths, 64, most)
    rows = total / packs.samples
    packed = dict.fromkeys(counts, 0.0)
    for pack, share in zip(packs.packs, packs.shares, strict=True):
        assert sum(pack) <= 64
        assert 1 <= len(pack) <= most
        for tokens in pack:
            packed[tokens] += share * rows
    assert packed == pytest.approx(counts)
    assert packs.squares == tuple(sum(t * t for t in pack) for pack in packs.packs)
    assert 1 / 64 <= packs.efficiency <= 1
    assert packs.efficiency * 64 == pytest.approx(packs.samples * lengths.mean)


def test_by_hand() -> None:
    """Of 7 and 5 in rows of 10 nothing fits together; two 5 are not put together, as they come at once."""
    lengths = Lengths("t", "t", (3, 5, 7), (0.5, 0.25, 0.25))
    packs = packs_of(lengths, 10, 3)
    assert dict(zip(packs.packs, packs.shares, strict=True)) == pytest.approx({(7, 3): 0.5, (5, 3): 0.5})
    assert packs_of(lengths, 10, 1).samples == 1


def test_rows_are_those_of_the_submissions() -> None:
    """NVIDIA's packed runs: 4 samples a GPU in 2 rows (v2.0), 96 in 48, 224 in 112 (v3.0 and v3.1)."""
    lengths = load_lengths("wikipedia-512")
    assert [rows_of(lengths, "packed", samples, 512) for samples in (1, 4, 96, 224)] == [1, 2, 48, 112]
    assert rows_of(lengths, "unpadded", 7, 512) == 7


def test_many_lengths_and_long_rows_are_packed_at_once() -> None:
    """The work grows with the lengths, not with the tokens of a row: a billion would take minutes."""
    tokens = tuple(range(1, 20_001))
    lengths = Lengths("many", "an example", tokens, (1 / len(tokens),) * len(tokens))
    started = time.process_time()
    packs = packs_of(lengths, 10**9)
    assert time.process_time() - started < 10
    assert packs.samples == pytest.approx(16)
    assert packs.efficiency == pytest.approx(16 * lengths.mean / 10**9)


SUBMITTED = {16: [6, 3, 2, 5], 12: [4, 2, 2, 4]}
"""Samsung's `--split_batch_cnt`, by samples of a GPU."""


@pytest.mark.parametrize("samples", SUBMITTED)
def test_counts_are_those_submitted(samples: int, histogram: Lengths) -> None:
    assert bin_edges(512) == [128, 256, 384, 512]
    for lengths in (load_lengths("wikipedia-512"), histogram):
        assert stratified_counts(lengths, samples, 512) == SUBMITTED[samples]


@given(st.lists(st.integers(1, 1000), min_size=2, max_size=4), st.integers(0, 12))
def test_no_move_of_a_sample_makes_two_bins_more_equal(weights: list[int], more: int) -> None:
    """Huntington's test of pairs: of two ways to split, the one taken has the least relative difference."""
    seats = len(weights) + more
    counts = apportioned([weight / sum(weights) for weight in weights], seats)
    assert sum(counts) == seats
    assert min(counts) >= 1

    def difference(a: float, b: float) -> float:
        return max(a, b) / min(a, b)

    for one, other in itertools.permutations(range(len(weights)), 2):
        if counts[one] > 1:
            now = difference(weights[one] / counts[one], weights[other] / counts[other])
            moved = difference(weights[one] / (counts[one] - 1), weights[other] / (counts[other] + 1))
            assert now <= moved * (1 + 1e-9)


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
