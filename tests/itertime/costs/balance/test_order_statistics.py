"""The largest of several sums, against trying all of them and against known distributions."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from itertime.costs.balance.order_statistics import Part, sum_distribution
from itertime.costs.balance.slowest import IndependentRanks, UnitPart
from tests.effort import examples

WORKS = st.dictionaries(st.integers(0, 20), st.integers(1, 9), min_size=1, max_size=4)


def part(counts: dict[int, int], number: int) -> Part:
    return Part(
        np.array(sorted(counts), dtype=float),
        np.array([counts[w] for w in sorted(counts)], dtype=float),
        number,
    )


@settings(max_examples=examples(60))
@given(WORKS, WORKS, st.integers(1, 2), st.integers(1, 2), st.integers(1, 3))
def test_whole_numbers_are_exact(
    one: dict[int, int], other: dict[int, int], first: int, second: int, ranks: int
) -> None:
    """Two kinds of parts; every outcome of every rank is tried."""
    sums: dict[int, float] = {}
    draws = [one] * first + [other] * second
    for drawn in itertools.product(*draws):
        probability = math.prod(c[w] / sum(c.values()) for c, w in zip(draws, drawn, strict=True))
        sums[sum(drawn)] = sums.get(sum(drawn), 0.0) + probability
    distribution = sum_distribution([part(one, first), part(other, second)], step=1.0)
    assert distribution.mean == pytest.approx(sum(w * p for w, p in sums.items()), abs=1e-9)
    outcomes = [
        (max(each), math.prod(sums[w] for w in each)) for each in itertools.product(sums, repeat=ranks)
    ]
    found = distribution.maximum(ranks)
    assert found.mean == pytest.approx(sum(w * p for w, p in outcomes), abs=1e-9)
    for quantile, q in ((found.low, 0.05), (found.high, 0.95)):
        assert sum(p for w, p in outcomes if w <= quantile + 0.5) >= q - 1e-9
        assert sum(p for w, p in outcomes if w < quantile - 0.5) <= q + 1e-9


@settings(max_examples=examples(40))
@given(WORKS, st.integers(1, 30), st.integers(1, 500), st.randoms())
def test_a_grid_changes_little_and_order_nothing(
    counts: dict[int, int], number: int, ranks: int, order
) -> None:  # type: ignore[no-untyped-def]
    exact = sum_distribution([part(counts, number)], step=1.0).maximum(ranks)
    works = sorted(counts)
    order.shuffle(works)
    shuffled = Part(np.array(works, dtype=float), np.array([counts[w] for w in works], dtype=float), number)
    found = sum_distribution([shuffled]).maximum(ranks)
    span = number * (max(works) - min(works))
    assert found.mean == pytest.approx(exact.mean, abs=1e-3 * span + 1e-9)


@pytest.mark.parametrize("number", [1_000, 30_000, 1_000_000])
def test_large_sums_are_normal(number: int) -> None:
    """The largest of n sums of many draws is that of n normal ones: half the mean range of n, which is 3.0775
    standard deviations for n = 10 and 6.4829 for n = 1000 (Tippett 1925).
    """
    works, shares = np.array([0.0, 1.0, 2.0]), np.array([0.25, 0.5, 0.25])
    distribution = sum_distribution([Part(works, shares, number)])
    assert len(distribution.probabilities) < 2**18
    assert distribution.mean == pytest.approx(number, rel=1e-9)
    for ranks, deviations in ((10, 3.0775 / 2), (1000, 6.4829 / 2)):
        above = distribution.maximum(ranks).mean - number
        assert above / math.sqrt(number / 2) == pytest.approx(deviations, rel=0.01)


def test_sums_of_any_number_take_little_memory() -> None:
    works, shares = np.array([0.0, 2.0]), np.array([0.5, 0.5])
    for number in (10**8, 10**9):
        distribution = sum_distribution([Part(works, shares, number)])
        assert len(distribution.probabilities) <= 2**20
        above = distribution.maximum(1000).mean - number
        assert above / math.sqrt(number) == pytest.approx(6.4829 / 2, rel=0.2)


def test_rare_long_parts_are_not_cut_off() -> None:
    works, shares = np.array([1.0, 1000.0]), np.array([0.9999, 0.0001])
    for number in (1, 100, 10_000):
        found = sum_distribution([Part(works, shares, number)]).maximum(1000).mean
        exact = sum_distribution([Part(works, shares, number)], step=999.0).maximum(1000).mean
        assert found == pytest.approx(exact, rel=0.003)


def test_uniform_draws_have_the_known_maximum() -> None:
    """The largest of n uniform draws is n / (n + 1) on average, its quantile q is q^(1/n)."""
    steps = 100_000
    uniform = Part((np.arange(steps) + 0.5) / steps, np.full(steps, 1 / steps), 1)
    for draws in (1, 2, 9, 100):
        found = sum_distribution([uniform]).maximum(draws)
        expected = (draws / (draws + 1), 0.05 ** (1 / draws), 0.95 ** (1 / draws))
        assert np.array(found) == pytest.approx(np.array(expected), abs=1e-4)


@settings(max_examples=examples(40))
@given(
    st.dictionaries(st.integers(1, 512), st.integers(1, 9), min_size=1, max_size=9),
    st.integers(1, 40), st.integers(1, 5000), st.floats(0, 1),
)  # fmt: skip
def test_between_two_ratios_the_maximum_is_nearly_linear(
    counts: dict[int, int], number: int, ranks: int, share: float
) -> None:
    """`IndependentRanks` against the same computation for the very ratio asked for."""
    tokens = np.array(sorted(counts), dtype=float)
    shares = np.array([counts[t] for t in sorted(counts)], dtype=float)
    independent = IndependentRanks.of(
        [UnitPart(np.stack([tokens, tokens**2], axis=1), shares, number)], ranks
    )
    linear, quadratic = (1 - share) / independent.tokens, share / independent.squares
    found = independent.slowest(linear, quadratic)
    work = linear * tokens + quadratic * tokens**2
    direct = sum_distribution([Part(work, shares, number)])
    assert found.average == pytest.approx(1)
    assert found.mean == pytest.approx(direct.maximum(ranks).mean, abs=3e-4)
    assert found.average == pytest.approx(direct.mean)
