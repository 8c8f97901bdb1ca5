"""Samples of each bin of lengths: the numbers of the submissions, and the rule behind them."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from itertime.costs.balance.strata import apportioned, bin_edges, stratified_counts
from itertime.spec import load_lengths

SUBMITTED = {16: [6, 3, 2, 5], 12: [4, 2, 2, 4]}
"""Samsung's `--split_batch_cnt`, by samples of a GPU."""


@pytest.mark.parametrize("samples", SUBMITTED)
def test_counts_are_those_submitted(samples: int) -> None:
    assert bin_edges(512) == [128, 256, 384, 512]
    assert stratified_counts(load_lengths("wikipedia-512"), samples, 512) == SUBMITTED[samples]


@pytest.mark.parametrize("samples", SUBMITTED)
def test_counts_follow_from_the_histogram(samples: int, shared_dir: Path) -> None:
    path = shared_dir / "data" / "mlperf" / "wikipedia_length_histogram_512.csv"
    if not path.is_file():
        pytest.skip(f"no histogram of lengths at {path}")
    assert stratified_counts(load_lengths(str(path)), samples, 512) == SUBMITTED[samples]


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
