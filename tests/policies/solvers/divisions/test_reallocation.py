"""The dynamic program of Unicron against all divisions."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.solvers.divisions.reallocation import Options, best_division
from tests.effort import examples

values = st.floats(-5, 20).map(lambda x: round(x, 3))
job = st.dictionaries(st.integers(1, 6), values, max_size=4).map(
    lambda worth: ((0, *worth), (0.0, *worth.values()))
)


@given(st.lists(job, max_size=4), st.integers(0, 14))
@settings(max_examples=examples(200))
def test_no_division_is_worth_more(jobs: list[Options], gpus: int) -> None:
    options = [list(zip(*job, strict=True)) for job in jobs]
    chosen = [options[i][k] for i, k in enumerate(best_division(jobs, gpus))]
    assert sum(n for n, _ in chosen) <= gpus
    worth = [sum(v for _, v in some) for some in product(*options) if sum(n for n, _ in some) <= gpus]
    assert sum(v for _, v in chosen) == pytest.approx(max(worth))


def test_ties_go_to_the_first_job_and_to_the_first_option() -> None:
    assert best_division([((0, 2), (0.0, 1.0)), ((0, 2), (0.0, 1.0))], 2) == [1, 0]
    assert best_division([((2, 0, 1), (1.0, 0.0, 1.0))], 2) == [0]
