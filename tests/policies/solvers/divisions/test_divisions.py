"""Divisions of GPUs by value: as good as the best of all; and which jobs leave their cells for another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.solvers.divisions import Options, best_division, priced_division
from policies.solvers.divisions.cell_search import Changes, GpuCell
from tests.effort import examples


@st.composite
def some_jobs(draw: st.DrawFn) -> list[Options]:
    jobs: list[Options] = []
    for _ in range(draw(st.integers(0, 5))):
        counts = sorted(draw(st.sets(st.integers(1, 9), max_size=3)))
        values = [draw(st.sampled_from((-100.0, -4.0, 0.0))), *(draw(st.floats(-5, 9)) for _ in counts)]
        jobs.append(((0, *counts), values))
    return jobs


def worth(jobs: list[Options], way: Sequence[int]) -> float:
    return sum(float(values[k]) for (_, values), k in zip(jobs, way, strict=True))


def taken(jobs: list[Options], way: Sequence[int]) -> int:
    return sum(counts[k] for (counts, _), k in zip(jobs, way, strict=True))


@pytest.mark.parametrize("division", [best_division, priced_division])
@settings(max_examples=examples(200), deadline=None)
@given(some_jobs(), st.integers(0, 20))
def test_no_division_is_worth_more(
    division: Callable[[list[Options], int], list[int]], jobs: list[Options], gpus: int
) -> None:
    indices = division(jobs, gpus)
    ways = product(*(range(len(counts)) for counts, _ in jobs))
    assert taken(jobs, indices) <= gpus
    best = max(worth(jobs, way) for way in ways if taken(jobs, way) <= gpus)
    assert worth(jobs, indices) == pytest.approx(best, abs=1e-7)


@pytest.mark.parametrize("seed", range(4))
def test_prices_are_as_good_as_the_program_on_many_jobs(seed: int) -> None:
    """Speedups of 150 jobs, as Pollux states them, some of them alike."""
    rng = np.random.default_rng(seed)
    jobs: list[Options] = []
    for _ in range(150):
        counts = np.array([1 << k for k in range(rng.integers(1, 8))]) * int(rng.choice([1, 8]))
        speedup = rng.choice([0.3, 1.0, rng.random()]) * counts ** rng.choice([0.5, 0.9])
        jobs.append(((0, *counts.tolist()), [-100.0, *(-1 / speedup).tolist()]))
    indices = priced_division(jobs, 256)
    assert taken(jobs, indices) <= 256
    assert worth(jobs, indices) == pytest.approx(worth(jobs, best_division(jobs, 256)), rel=1e-9)


def test_ties_go_to_the_first_job_and_to_the_first_option() -> None:
    assert best_division([((0, 2), (0.0, 1.0)), ((0, 2), (0.0, 1.0))], 2) == [1, 0]
    assert best_division([((2, 0, 1), (1.0, 0.0, 1.0))], 2) == [0]


def test_room_takes_free_gpus_of_another_type_once() -> None:
    """Two jobs would move to the one free GPU of type b; one does, and the other shrinks."""
    big_cell, small_cell, moved_cell = GpuCell("a", 2, 2.0), GpuCell("a", 1, 1.0), GpuCell("b", 1, 1.9)
    search = Changes(
        [(name, i, big_cell, [small_cell, big_cell, moved_cell]) for i, name in enumerate("xy")], steps=2
    )
    changes = search.room("a", 3, {"a": 0, "b": 1})
    assert changes is not None
    assert [(change.job, change.cell) for change in changes] == [("x", moved_cell), ("y", small_cell)]
    assert search.room("a", 4, {"a": 0, "b": 1}) is None
