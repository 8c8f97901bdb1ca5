"""Shockwave: rounds by hand, predictions of phases, and fairness to old jobs."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from clustersim.scheduler import JobView, Proposal
from clustersim.testing import simulate
from policies.shockwave import Shockwave
from policies.toolkit import WorkCourse, course_of, predicted_shares
from tests.builders import Script, elastic, rigid, times

TABLE = {("m", 8): {1: 1.0}, ("m", 32): {1: 1.0}}


def test_the_course_of_a_job_goes_through_its_predicted_phases() -> None:
    """Of four phases none is over: a quarter of the work at 1 unit/s, the rest at 4. The speed of the first
    alone would say 1,000 s.
    """
    seen: list[WorkCourse] = []

    def look(proposal: Proposal, jobs: Mapping[str, JobView]) -> None:
        seen.extend([course_of(jobs["a"]), course_of(jobs["a"], predicts=False)])
        proposal.start(jobs["a"])

    job = elastic("a", 0, 1, 1000, phases="0.01:8 0.33:32 0.33:32 0.33:32")
    simulate([job], Script({0.0: look}), "n1g1", table=TABLE)
    predicted, present = seen
    assert (predicted.left_s, present.left_s) == pytest.approx((250 + 750 / 4, 1000))
    assert predicted.share_after(250 + 100) == pytest.approx(0.25 + 0.4)


@pytest.mark.parametrize(
    ("past", "phases", "done", "due"),
    [
        ([], 4, 0.0, [0.25, 0.25, 0.25, 0.25]),
        ([0.4], 3, 0.45, [0.4, 0.3, 0.3]),
        ([0.1], 3, 0.8, [0.1, 0.7, 0.2]),
        ([0.5, 0.2], 3, 0.9, [0.5, 0.2, 0.3]),
    ],
)
def test_the_work_that_past_phases_leave_is_divided_evenly(
    past: list[float], phases: int, done: float, due: list[float]
) -> None:
    assert predicted_shares(past, phases, done) == pytest.approx(due)


def test_a_long_job_gets_its_turn_among_short_ones() -> None:
    """Short jobs arrive faster than they can be served, and gain more per round. Without its weight, which
    grows with its age, the long job waits until they have ended.
    """
    jobs = [rigid("long", 10, 4, 600.0)] + [rigid(f"s{i}", 27.0 * i, 4, 30.0) for i in range(200)]
    fair = simulate(jobs, Shockwave(round_s=30), "n1g4")
    unfair = simulate(jobs, Shockwave(round_s=30, fairness_power=0.0), "n1g4")
    assert times(unfair)["long"][0] == 6000.0
    assert times(fair)["long"][0] < 4000.0
