"""Services as instances that come and go."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traces.synthetic import Diurnal, Need, instances_of


def test_the_last_to_begin_is_the_first_to_end() -> None:
    needs = [Need("s", 0.0, 2), Need("s", 10.0, 4), Need("s", 25.0, 1), Need("s", 40.0, 0)]
    spans = sorted((job.submit_s, job.submit_s + (job.duration_s or 0.0)) for job in instances_of(needs))
    assert spans == [(0.0, 25.0), (0.0, 40.0), (10.0, 25.0), (10.0, 25.0)]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=12), st.integers(1, 3))
def test_there_are_always_as_many_as_are_needed(levels: list[int], each: int) -> None:
    needs = [Need("s", 5.0 * i, gpus) for i, gpus in enumerate([*levels, 0])]
    jobs = instances_of(needs, each)
    for need in needs:
        now = need.time_s + 1.0
        there = [job for job in jobs if job.submit_s <= now < job.submit_s + (job.duration_s or 0.0)]
        assert sum(job.gpus or 0 for job in there) == each * -(-need.gpus // each)


def test_the_day_moves_the_need_around_its_mean() -> None:
    needs = Diurnal(mean_gpus=100.0, swing=0.5, sigma=0.0).needs(seed=1)
    levels = [need.gpus for need in needs[:-1]]
    assert (min(levels), max(levels), sum(levels) / len(levels)) == (50, 150, pytest.approx(100, abs=0.1))
    assert next(need.gpus for need in needs if need.time_s == 14 * 3600) == 150
    assert needs[-1].gpus == 0


def test_a_seed_gives_the_same_need_and_another_seed_another() -> None:
    first, again, other = (Diurnal(mean_gpus=50.0).needs(seed) for seed in (1, 1, 2))
    assert first == again != other
