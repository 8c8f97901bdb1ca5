"""Bounds from each job alone and from GPU-seconds, against cases that are solved by hand."""

from __future__ import annotations

import pytest

from clustersim.bounds import BoundJob, Instance, Option, bound_of


def fixed(
    name: str, release_s: float, gpus: int, duration_s: float, deadline_s: float | None = None
) -> BoundJob:
    """A job that runs for `duration_s` on exactly `gpus` GPUs, without overheads."""
    return BoundJob(name, release_s, duration_s, (Option(0, (gpus,), (1.0,), (0.0,), (0.0,)),), deadline_s)


def test_one_machine_is_srpt() -> None:
    """Releases 0, 1, 2 with 5, 2 and 1 s: the second runs from 1 to 3, the third to 4, the first to 8."""
    bound = bound_of(Instance((4,), (fixed("a", 0, 4, 5), fixed("b", 1, 4, 2), fixed("c", 2, 4, 1))), "area")
    assert bound.jct_mean_s == pytest.approx((8 + 2 + 2) / 3, rel=1e-8)
    assert bound.makespan_s == pytest.approx(8, rel=1e-8)


def test_no_jobs() -> None:
    bound = bound_of(Instance((4,), ()))
    assert (bound.jct_mean_s, bound.jct_p99_s, bound.makespan_s, bound.deadline_met_ratio) == (None,) * 4


def test_deadlines_that_no_job_meets_alone() -> None:
    jobs = (fixed("a", 0, 1, 5, deadline_s=4), fixed("b", 3, 1, 5, deadline_s=8), fixed("c", 3, 1, 5))
    assert bound_of(Instance((4,), jobs, deadline_jobs=4)).deadline_met_ratio == 0.25


def test_gpus_that_no_jobs_can_hold_together_do_not_count() -> None:
    """Of 4 GPUs, jobs of 3 can hold 3 at a time: the second waits for the first."""
    bound = bound_of(Instance((4,), (fixed("a", 0, 3, 6), fixed("b", 0, 3, 6))), "area")
    assert bound.jct_mean_s == pytest.approx(9, rel=1e-8)
    assert bound.makespan_s == pytest.approx(12, rel=1e-8)
