"""Themis: finish-time fairness by hand, its auction. Shockwave: rounds by hand, fairness to old jobs."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from math import exp, log

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustersim.scheduler import JobView, Proposal, State
from clustersim.testing import simulate
from policies.shockwave import Shockwave
from policies.solvers.partial_allocation import auction
from policies.themis import Themis
from policies.toolkit import WorkCourse, course_of, predicted_shares
from tests.builders import Script, elastic, finishes, rigid, times

# rho, from its definition (Themis, NSDI 2020, section 3): the time from submission to finish over the time
# alone x the mean number of jobs. The jobs and the numbers worked out for them are ours, not the paper's.


class Watched(Themis):
    """Notes the rho of every job at every decision."""

    def __init__(self) -> None:
        super().__init__(lease_s=100.0)
        self.seen: dict[tuple[float, str, int], float] = {}

    def schedule(self, state: State) -> Proposal:
        proposal = super().schedule(state)
        for view in [*state.running, *state.pending]:
            for gpus in (0, view.requested):
                self.seen[state.now, view.id, gpus] = self.ratio(view, gpus, state.now)
        return proposal


def test_ratios_by_hand() -> None:
    """Two jobs of 300 and 600 s that need the whole node, and a third of 200 s at 150 s.

    At 0, with half a cluster of their own, they would take 600 and 1200 s: rho is 1/2 with GPUs; without, a
    lease later, 400/600 and 700/1200. So `a` runs first; at 100 both would come to 400/600 and 800/1200. At
    200 the mean number of jobs since 0 is (150 x 2 + 50 x 3) / 200 = 2.25, `b` is worst off with 900/1350;
    `c`, for which there were always three, with 350/600.
    """
    policy = Watched()
    outcome = simulate(
        [rigid("a", 0, 8, 300), rigid("b", 0, 8, 600), rigid("c", 150, 8, 200)], policy, "n1g8"
    )
    rho = {key: round(value, 6) for key, value in policy.seen.items()}
    assert rho[0, "a", 8] == rho[0, "b", 8] == 0.5
    assert rho[0, "a", 0] == round(400 / 600, 6)
    assert rho[0, "b", 0] == round(700 / 1200, 6)
    assert rho[100, "a", 8] == 0.5
    assert rho[100, "b", 8] == round(700 / 1200, 6)
    assert rho[150, "c", 8] == round(200 / (3 * 200), 6)
    assert rho[100, "a", 0] == rho[100, "b", 0] == round(2 / 3, 6)
    assert outcome.of("b").start_s == 200
    assert rho[200, "b", 8] == round((200 + 600) / (600 * 2.25), 6)
    assert rho[200, "a", 0] == round((200 + 100 + 100) / (300 * 2.25), 6)
    assert rho[200, "b", 0] == round(900 / 1350, 6)
    assert rho[200, "c", 0] == round(350 / 600, 6)


def test_the_worst_off_always_gets_a_lease() -> None:
    """However many small jobs would raise the product of values more, the one that fares worst runs."""
    jobs = [rigid("wide", 0, 8, 1000), *(rigid(f"s{i}", 1 + i / 10, 1, 500) for i in range(40))]
    outcome = simulate(jobs, Themis(fairness=0.0, lease_s=100.0), "n1g8")
    assert outcome.of("wide").start_s == 0
    assert finishes(outcome)["wide"] < 4000  # type: ignore[operator]


# The auction


bid = st.dictionaries(st.integers(1, 6), st.floats(0, 3), max_size=4).map(
    lambda gains: {0: 0.0} | dict(zip(sorted(gains), sorted(gains.values()), strict=True))
)


@given(st.lists(bid, min_size=1, max_size=4), st.integers(0, 10))
@settings(deadline=None)
def test_awards_have_the_largest_product_of_values(bids: list[dict[int, float]], gpus: int) -> None:
    awards = auction(bids, gpus)
    assert sum(award.gpus for award in awards) <= gpus
    mine = sum(bid[award.gpus] for bid, award in zip(bids, awards, strict=True))
    assert mine == pytest.approx(_best(bids, gpus), abs=1e-8)
    for i, award in enumerate(awards):
        beside = mine - bids[i][award.gpus]
        without = _best(bids[:i] + bids[i + 1 :], gpus)
        assert award.kept == pytest.approx(min(1.0, exp(beside - without)))


def _best(bids: list[dict[int, float]], gpus: int) -> float:
    choices = [counts for counts in product(*bids) if sum(counts) <= gpus]
    return max(sum(bid[n] for bid, n in zip(bids, counts, strict=True)) for counts in choices)


@pytest.mark.parametrize("bidders", [2, 3, 5])
def test_payment_of_equal_bidders(bidders: int) -> None:
    """Values proportional to GPUs: every job wins an equal part, and keeps ((N - 1) / N)^(N - 1) of it, more
    than 1/e (Cole et al. 2013).
    """
    gpus = bidders * (bidders - 1) * 2
    values = {0: -100.0} | {n: log(n) for n in range(1, gpus + 1)}
    awards = auction([values] * bidders, gpus)
    assert [award.gpus for award in awards] == [gpus // bidders] * bidders
    assert [award.kept for award in awards] == pytest.approx(
        [((bidders - 1) / bidders) ** (bidders - 1)] * bidders
    )


def test_a_winner_that_delays_no_job_pays_nothing() -> None:
    assert [award.kept for award in auction([{0: 0.0, 4: 1.0}, {0: 0.0, 2: 1.0}], 6)] == [1.0, 1.0]
    assert auction([], 8) == []


# Shockwave


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
