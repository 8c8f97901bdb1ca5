"""Paired differences: intervals that cover, tests that keep their level, corrections by hand."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from clustersim.analysis import LEAST_PAIRS, holm, paired_difference
from clustersim.analysis.statistics import bootstrap_t_interval, mean_difference, sign_flip_p  # fmt: skip
from tests.effort import examples

finite = st.floats(-1e6, 1e6, allow_nan=False)


def pairs(differences: np.ndarray) -> np.ndarray:
    return np.stack([np.zeros_like(differences), differences], axis=1)


@pytest.mark.parametrize(("draw", "mean", "least"), [("normal", 1.0, 0.88), ("lognormal", 1.6487, 0.84)])
def test_intervals_cover_the_truth_about_as_often_as_they_say(draw: str, mean: float, least: float) -> None:
    """Of intervals from ten pairs each. The bounds are three standard errors below what
    benchmarks/intervals.py measures over more cases, 94 % and 91 %.
    """
    rng = np.random.default_rng(7)
    hits = 0
    for seed in range(160):
        differences = rng.normal(1.0, 1.0, 10) if draw == "normal" else rng.lognormal(0.0, 1.0, 10)
        low, high = bootstrap_t_interval(pairs(differences), mean_difference, seed)
        assert low is not None
        assert high is not None
        hits += low <= mean <= high
    assert least <= hits / 160 <= 0.995


def test_an_interval_is_close_to_students_for_normal_differences() -> None:
    """For many normal differences bootstrap-t and Student's t interval agree (Efron and Tibshirani, 12.5)."""
    differences = np.random.default_rng(3).normal(5.0, 2.0, 60)
    low, high = bootstrap_t_interval(pairs(differences), mean_difference)
    expected = stats.t.interval(0.95, 59, differences.mean(), stats.sem(differences))
    assert (low, high) == pytest.approx(expected, abs=0.12)


def test_the_relative_difference_is_that_of_the_means() -> None:
    base = [10.0, 20.0, 30.0, 40.0, 50.0, 60.0]
    d = paired_difference(base, [0.8 * b for b in base])
    assert d.difference == pytest.approx(-7.0)
    assert d.relative == pytest.approx(-0.2)
    assert d.relative_low == pytest.approx(-0.2)
    assert d.relative_high == pytest.approx(-0.2)
    assert d.low is not None
    assert d.high is not None
    assert d.low < -7.0 < d.high


SKEWED = ([2.97, 25.4, 2.9, 3.1, 42.5, 2.81], [2.96, 2.44, 2.9, 2.9, 3.04, 2.81])
"""Mean JCT in hours under two policies over six traces, two of which hold a job as large as the cluster."""


def test_intervals_of_few_skewed_pairs_stay_within_what_is_possible() -> None:
    """Resamples that hold one pair several times have no spread; they once made this one 60,000 h long."""
    d = paired_difference(*SKEWED)
    assert None not in (d.low, d.high, d.relative_low, d.relative_high)
    assert -80 < d.low < d.difference < d.high < 5  # type: ignore[operator]
    assert -1 <= d.relative_low < d.relative < d.relative_high < 0  # type: ignore[operator]
    shares = paired_difference([0.88, 0.23, 0.9, 0.87, 0.58, 0.92], [1.0] * 6, limit=1.0)
    assert shares.high is not None
    assert shares.high <= 1.0
    some_zero = paired_difference([0.9, 0.3, 0.4, 0.5, 0.8, 0.6], [0.0, 0.1, 0.2, 0.01, 0.001, 0.3])
    assert some_zero.relative_low == -1.0


@settings(deadline=None, max_examples=examples(20))
@given(st.lists(st.tuples(st.floats(0.01, 1e4), st.floats(0.01, 1e4)), min_size=5, max_size=8))
def test_nothing_positive_falls_by_more_than_all_of_it(values: list[tuple[float, float]]) -> None:
    base, variant = zip(*values, strict=True)
    d = paired_difference(base, variant)
    if d.relative_low is not None:
        assert d.relative_low >= -1


def test_the_interval_of_a_ratio_covers_the_truth() -> None:
    """Ten pairs, log-normal baselines, a variant of 0.8 exp(0.3 Z) times as much: 90 % in 500 cases."""
    rng, hits, truth = np.random.default_rng(11), 0, 0.8 * np.exp(0.045) - 1
    for seed in range(160):
        base = rng.lognormal(0.0, 1.0, 10)
        d = paired_difference(base.tolist(), (0.8 * base * rng.lognormal(0.0, 0.3, 10)).tolist(), seed=seed)
        assert d.relative_low is not None
        assert d.relative_high is not None
        hits += d.relative_low <= truth <= d.relative_high
    assert 0.82 <= hits / 160 <= 0.995


def test_what_is_undefined_is_none() -> None:
    few = paired_difference([1.0] * 4, [2.0, 3.0, 4.0, 5.0])
    assert (few.pairs, few.low, few.p, few.relative) == (4, None, None, 2.5)
    assert few.pairs < LEAST_PAIRS
    zero = paired_difference([0.0] * 6, [1.0, 2.0, 1.0, 2.0, 1.0, 2.0])
    assert (zero.relative, zero.relative_low) == (None, None)
    assert zero.difference == pytest.approx(1.5)
    partly = paired_difference([1.0, None, 3.0], [2.0, 2.0, None])
    assert (partly.pairs, partly.left_out, partly.difference) == (1, 2, 1.0)
    nothing = paired_difference([None], [1.0])
    assert (nothing.pairs, nothing.left_out, nothing.difference, nothing.p) == (0, 1, None, None)
    alike = paired_difference([1.0] * 6, [1.5] * 6)
    assert (alike.low, alike.p, alike.difference) == (None, None, 0.5), "seeds changed nothing"


def test_a_difference_in_one_pair_of_many_gives_no_interval() -> None:
    """36 % of resamples do not hold the one pair that differs: their error has no scale."""
    one = paired_difference([1.0] * 20, [1.0] * 19 + [2.0])
    assert (one.low, one.high, one.relative_low, one.relative_high) == (None, None, None, None)
    assert one.difference == pytest.approx(0.05)
    assert one.p == 1.0


@settings(deadline=None, max_examples=examples(30))
@given(st.lists(st.tuples(finite, finite), min_size=1, max_size=8))
def test_exchanging_the_two_sides_changes_signs_alone(values: list[tuple[float, float]]) -> None:
    a, b = zip(*values, strict=True)
    forth, back = paired_difference(a, b), paired_difference(b, a)
    assert forth.difference == pytest.approx(-back.difference, abs=1e-6)  # type: ignore[operator]
    assert forth.p == back.p
    if forth.low is not None and forth.high is not None and forth.difference is not None:
        slack = 1e-9 * max(map(abs, (*a, *b)))
        assert forth.low - slack <= forth.difference <= forth.high + slack


# Tests


def test_the_sign_flip_test_by_hand() -> None:
    """Of the 8 sign patterns of (1, 2, 4) only +++ and --- reach a sum of 7; four reach 5 or more."""
    assert sign_flip_p(np.array([1.0, 2.0, 4.0])) == 2 / 8
    assert sign_flip_p(np.array([-1.0, 2.0, 4.0])) == 4 / 8
    assert sign_flip_p(np.zeros(5)) == 1.0
    assert sign_flip_p(np.arange(1.0, 11.0)) == 2 / 2**10


@pytest.mark.parametrize("n", [8, 20])
def test_the_sign_flip_test_keeps_its_level(n: int) -> None:
    """Without a difference p <= 0.05 in at most 5 % of cases; 300 cases scatter by 1.3 %."""
    rng = np.random.default_rng(n)
    rejected = np.mean([sign_flip_p(rng.normal(size=n), seed) <= 0.05 for seed in range(300)])
    assert rejected <= 0.05 + 3 * 0.0126


def test_drawn_flips_agree_with_all_of_them() -> None:
    differences = np.random.default_rng(5).normal(0.4, 1.0, 15)
    flips = np.array(list(product((1, -1), repeat=15)))
    exact = np.mean(np.abs(flips @ differences) >= abs(differences.sum()) - 1e-9)
    assert sign_flip_p(differences) == pytest.approx(exact, abs=4 * 0.5 / 100)


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.02, 0.03, 0.5]) == pytest.approx([0.04, 0.06, 0.06, 0.5])
    assert holm([0.6, 0.6]) == [1.0, 1.0]
    assert holm([None, 0.2]) == [None, 0.2]
    assert holm([]) == []


@settings(deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_holm_lies_between_no_correction_and_bonferroni(p_values: list[float]) -> None:
    adjusted = holm(p_values)
    for p, q in zip(p_values, adjusted, strict=True):
        assert q is not None
        assert p <= q <= min(1.0, p * len(p_values)) + 1e-12
    order = np.argsort(p_values, kind="stable")
    assert np.all(np.diff(np.array(adjusted, dtype=float)[order]) >= 0)
