"""Work left of jobs that do more than they state."""

from __future__ import annotations

from policies.pricing import StatedWork


def test_a_job_that_tells_the_truth_has_what_it_states() -> None:
    work = StatedWork(100.0)
    assert [work.left(left, 100.0 - left, 1.0) for left in (100.0, 11.0, 9.0, 0.5)] == [100.0, 11.0, 9.0, 0.5]


def test_the_last_tenth_is_counted_down_while_the_job_works_and_then_half_is_left() -> None:
    """It does 2 units a GPU-second."""
    work = StatedWork(100.0, again=0.5)
    looks = [(20.0, 40.0), (10.0, 47.0), (10.0, 47.0), (10.0, 50.0), (10.0, 70.0)]
    assert [work.left(left, gpu_s, 2.0) for left, gpu_s in looks] == [20.0, 6.0, 6.0, 50.0, 50.0]


def test_a_job_that_loses_work_states_more_again() -> None:
    work = StatedWork(100.0)
    looks = [(10.0, 90.0), (40.0, 90.0), (10.0, 120.0)]
    assert [work.left(left, gpu_s, 1.0) for left, gpu_s in looks] == [10.0, 40.0, 10.0]
