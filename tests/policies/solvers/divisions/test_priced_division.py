"""Divisions by price: as good as the best of all, and as the dynamic program alone."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.solvers.divisions import Options, best_division, priced_division
from tests.effort import examples


@st.composite
def some_jobs(draw: st.DrawFn) -> list[Options]:
    jobs: list[Options] = []
    for _ in range(draw(st.integers(0, 5))):
        counts = sorted(draw(st.sets(st.integers(1, 9), max_size=3)))
        values = [draw(st.sampled_from((-100.0, -4.0, 0.0))), *(draw(st.floats(-5, 9)) for _ in counts)]
        jobs.append(((0, *counts), values))
    return jobs


def worth(jobs: list[Options], chosen: list[int]) -> float:
    return sum(float(values[k]) for (_, values), k in zip(jobs, chosen, strict=True))


def taken(jobs: list[Options], chosen: list[int]) -> int:
    return sum(counts[k] for (counts, _), k in zip(jobs, chosen, strict=True))


@settings(max_examples=examples(150), deadline=None)
@given(some_jobs(), st.integers(0, 20))
def test_no_division_is_worth_more(jobs: list[Options], gpus: int) -> None:
    found = priced_division(jobs, gpus)
    ways = product(*(range(len(counts)) for counts, _ in jobs))
    best = max(worth(jobs, list(way)) for way in ways if taken(jobs, list(way)) <= gpus)
    assert taken(jobs, found) <= gpus
    assert worth(jobs, found) == pytest.approx(best, abs=1e-7)


@pytest.mark.parametrize("seed", range(4))
def test_as_good_as_the_program_on_many_jobs(seed: int) -> None:
    """Speedups of 150 jobs, as the policy states them, some of them alike."""
    rng = np.random.default_rng(seed)
    jobs: list[Options] = []
    for _ in range(150):
        counts = np.array([1 << k for k in range(rng.integers(1, 8))]) * int(rng.choice([1, 8]))
        speedup = rng.choice([0.3, 1.0, rng.random()]) * counts ** rng.choice([0.5, 0.9])
        jobs.append(((0, *counts.tolist()), [-100.0, *(-1 / speedup).tolist()]))
    found = priced_division(jobs, 256)
    assert taken(jobs, found) <= 256
    assert worth(jobs, found) == pytest.approx(worth(jobs, best_division(jobs, 256)), rel=1e-9)
