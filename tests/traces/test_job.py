from __future__ import annotations

import dataclasses
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traces import Job, submission_order


def test_kind_is_iterations_only_if_all_three_are_stated_and_nothing_changes() -> None:
    rigid = Job("a", 0.0, gpus=8, duration_s=60.0)
    assert rigid.kind == "duration"
    assert dataclasses.replace(rigid, model="gpt3-13b", global_batch=8).kind == "duration"
    both = dataclasses.replace(rigid, model="gpt3-13b", global_batch=8, iterations=5.0)
    assert both.kind == "iterations"
    assert both.duration_s == 60.0
    with pytest.raises(dataclasses.FrozenInstanceError):
        rigid.gpus = 4  # type: ignore[misc]


def test_ties_are_ordered_by_number_then_by_text() -> None:
    ids = ["10", "9", "a10", "a9", "007", "7", "²", "", "9" * 5000]
    ordered = [job.job_id for job in submission_order(Job(i, 5.0) for i in ids)]
    assert ordered == ["007", "7", "9", "10", "9" * 5000, "", "a10", "a9", "²"]
    by_time = submission_order([Job("1", 2.0), Job("2", 1.0)])
    assert [job.job_id for job in by_time] == ["2", "1"], "time comes first"


@given(
    st.lists(st.tuples(st.text(max_size=4), st.sampled_from([0.0, 1.0])), unique_by=lambda job: job[0]),
    st.randoms(use_true_random=False),
)
def test_the_order_of_rows_does_not_matter(pairs: list[tuple[str, float]], shuffler: random.Random) -> None:
    jobs = [Job(*pair) for pair in pairs]
    ordered = submission_order(jobs)
    shuffler.shuffle(jobs)
    assert submission_order(jobs) == ordered
