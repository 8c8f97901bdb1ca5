"""Policies that divide the GPUs among elastic jobs: each rule against its definition or all alternatives."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from clustersim.overheads import Overheads
from clustersim.scheduler import Scheduler
from policies.afs import Afs, apathetic_shares
from policies.gavel_ftf import GavelFtf
from policies.gavel_makespan import GavelMakespan
from policies.gavel_max_min import GavelMaxMin
from policies.hesrpt import HeSrpt, fractions
from policies.max_min import MaxMin
from policies.optimus import Optimus, loss_per_gpu
from policies.sia import Sia
from policies.themis import Themis
from policies.toolkit.stepwise import Walk, allocate_stepwise
from tests.builders import Bench, elastic
from tests.effort import examples

ELASTIC = [Afs, HeSrpt, MaxMin, Optimus]


@dataclass(eq=False)
class Stub:
    """A job as these rules see it: `work` units left, `rates` units/s by GPU count."""

    work: float
    rates: dict[int, float]
    order: int = 0

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(self.rates)

    def rate(self, gpus: int) -> float:
        return self.rates[gpus]

    def oracle_remaining(self, gpus: int) -> float:
        return self.work / self.rates[gpus]


def power(work: float, exponent: float, most: int) -> Any:
    return Stub(work, {n: n**exponent for n in range(1, most + 1)})


def line(jobs: list[Any]) -> Walk:
    """The jobs in the order of their run times on the smallest sizes, submitted as they are listed."""
    for i, job in enumerate(jobs):
        job.order = i
    by_length = sorted(jobs, key=lambda job: (job.oracle_remaining(job.sizes[0]), job.order))
    return lambda fits: iter(by_length)


def submitted(jobs: list[Any]) -> Walk:
    """The jobs as they are listed, which is also the order of their smallest sizes."""
    line(jobs)
    return lambda fits: iter(jobs)


curves = st.builds(power, st.floats(1, 1000), st.floats(0.1, 0.95), st.integers(2, 6))


# Optimus


@given(st.lists(curves, min_size=1, max_size=3), st.integers(3, 8))
@settings(deadline=None, max_examples=examples(60))
def test_optimus_has_the_smallest_remaining_time_in_all(jobs: list[Any], gpus: int) -> None:
    """With concave speeds and steps of one GPU the greedy rule is optimal: no division that gives every job
    a GPU has a smaller sum of remaining times.
    """
    shares = allocate_stepwise(submitted(jobs), gpus, loss_per_gpu)
    assert len(shares) == len(jobs)
    mine = sum(job.oracle_remaining(n) for job, n in shares.items())
    for counts in product(*(job.sizes for job in jobs)):
        if sum(counts) <= gpus:
            other = sum(job.oracle_remaining(n) for job, n in zip(jobs, counts, strict=True))
            assert mine <= other * (1 + 1e-9)


# AFS


def two(work_a: float, gain_a: float, work_b: float, gain_b: float) -> tuple[Any, Any]:
    """Two jobs that run at 1 unit/s on a GPU, and at 1 + gain on two."""
    return Stub(work_a, {1: 1.0, 2: 1 + gain_a}), Stub(work_b, {1: 1.0, 2: 1 + gain_b})


@given(st.floats(1, 100), st.floats(0.01, 0.99), st.floats(1, 100), st.floats(0.01, 0.99))
@settings(deadline=None)
def test_afs_minimises_the_mean_of_two(work_a: float, gain_a: float, work_b: float, gain_b: float) -> None:
    """`a` ends first with a GPU each, and still does if `b` gets the third. If `a` gets it, `b` takes it over
    when `a` is done. Whichever sums to less is right (the derivation of the paper's inequality).
    """
    assume(work_a < work_b / (1 + gain_b))
    end_a = work_a / (1 + gain_a)
    to_a = end_a + end_a + (work_b - end_a) / (1 + gain_b)
    to_b = work_a + work_b / (1 + gain_b)
    assume(abs(to_a - to_b) > 1e-9 * to_a)
    a, b = two(work_a, gain_a, work_b, gain_b)
    for jobs in ([a, b], [b, a]):
        shares = apathetic_shares(line(jobs), 3, {})
        assert shares == ({a: 2, b: 1} if to_a < to_b else {a: 1, b: 2})


# heSRPT


@given(st.floats(0.05, 0.9))
def test_hesrpt_divides_best_between_two(exponent: float) -> None:
    """A longer job gets 1 - theta until the shorter is done: (2 - (1 - theta)^p) / theta^p is all of the flow
    time that depends on theta.
    """

    def cost(theta: float) -> float:
        return (2 - (1 - theta) ** exponent) / theta**exponent

    best = fractions(2, exponent)[1]
    assert all(cost(best) <= cost(i / 1000) * (1 + 1e-12) for i in range(1, 1000))


@given(st.integers(1, 50), st.floats(0, 0.99))
def test_hesrpt_fractions_add_up_and_favour_the_short(jobs: int, exponent: float) -> None:
    shares = fractions(jobs, exponent)
    assert sum(shares) == pytest.approx(1)
    assert all(a <= b * (1 + 1e-9) + 1e-12 for a, b in pairwise(shares))


# max-min


@given(st.lists(st.integers(1, 6), min_size=1, max_size=4), st.integers(1, 12))
@settings(deadline=None, max_examples=examples(60))
def test_max_min_is_the_fairest_of_all_divisions(mosts: list[int], gpus: int) -> None:
    """No other division has, sorted, a lexicographically larger list of counts."""
    jobs: list[Any] = [power(1.0, 0.9, most) for most in mosts]
    shares = allocate_stepwise(submitted(jobs), gpus, lambda job, held, size: size)
    mine = sorted(shares.get(job, 0) for job in jobs)
    for counts in product(*(range(most + 1) for most in mosts)):
        if sum(counts) <= gpus:
            assert sorted(counts) <= mine


# All of them


@pytest.mark.parametrize("policy", [*ELASTIC, GavelMaxMin, GavelFtf, GavelMakespan, Sia, Themis])
def test_slow_restarts_do_not_stop_progress(policy: type[Scheduler]) -> None:
    """Restarts of 1,150 s, a new job every 100 s: a job that gets GPUs works for as long as a restart takes
    before it is resized or preempted. Without that rule the policies that take turns never end.
    """
    table = {("m", 8): {1: 1.0, 2: 1.6, 4: 2.5, 8: 4.0}}
    slow = Bench("n2g8", table, {"m": 8e10}, Overheads(launch_s=30.0))
    jobs = [elastic(str(i), 100.0 * i, 8, 2000) for i in range(40)]
    outcome = slow.run(jobs, policy())
    assert all(record.state == "finished" for record in outcome.records)
    ready: dict[str, float] = {}
    for event in outcome.events:
        if event.event in ("resize", "preempt"):
            assert event.time_s >= ready[event.job_id] + 1150 - 0.01
        if event.event in ("start", "restart", "resize", "migrate"):
            ready[event.job_id] = event.time_s + event.overhead_s
