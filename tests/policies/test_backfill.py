"""EASY and conservative backfilling: by hand, and what each guarantees."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import clustersim
from clustersim.overheads import Overheads
from clustersim.scheduler import JobView, Proposal, State
from clustersim.testing import decide, simulate
from policies.conservative import Conservative
from policies.easy import Easy
from policies.fifo import Fifo
from policies.multifactor import Multifactor
from policies.toolkit.backfill import Shadow
from tests.builders import drawn_jobs, rigid, starts
from tests.clustersim.backtest.logs import jobs_of
from tests.effort import examples
from traces.job import Job

# By hand


@pytest.mark.parametrize("policy", [Easy, Conservative])
def test_estimates_are_of_the_whole_run_in_a_scene_that_begins_with_running_jobs(policy: Any) -> None:
    """At twice the truth `runs` seems to end at 100 s, and the 90 s of `early` fit before the head."""

    def started(factor: float, early_s: float) -> list[str]:
        pending = [rigid("head", 5, 8, 10), rigid("early", 10, 2, early_s)]
        scene = {"running": [rigid("runs", 0, 6, 50)], "pending": pending, "overheads": Overheads.none()}
        return list(decide(policy(estimate_factor=factor), **scene).starts)

    assert (started(1, 40), started(1, 41)) == (["early"], [])
    assert (started(2, 45), started(2, 46)) == (["early"], [])


# Estimates of users


def test_the_steps_of_extensions_are_those_of_the_paper() -> None:
    """1, 5, 15, 30 minutes, 1, 2, 5, 10, 20, 50, 100 hours, and 100 hours from then on."""
    steps = [60, 300, 900, 1800, *(3600 * hours for hours in (1, 2, 5, 10, 20, 50, 100, 100, 100))]
    now, expected, found = 10.0, [], []
    for step in steps:
        expected.append(now + step)
        running, pending = [rigid("runs", 0, 7, 1e8, estimate_s=10)], [rigid("waits", 1, 8, 1)]
        scene = decide(Easy(), running=running, pending=pending, now_s=now, overheads=Overheads.none())
        found.append(scene.wake_at_s)
        now += step
    assert found == expected


def test_estimates_of_all_users_make_the_oracle_needless() -> None:
    jobs = [rigid("runs", 0, 6, 100), rigid("head", 1, 8, 50), rigid("early", 3, 1, 98)]
    stated = [replace(job, estimate_s=2 * (job.duration_s or 0)) for job in jobs]
    for policy in ("easy", "conservative"):
        for params in ({}, {"estimate_factor": 3.0}):
            run = clustersim.run(stated, policy, cluster="n1g8", overheads=None, params=params)
            assert not run.manifest["oracle_used"]
            run = clustersim.run([stated[0], *jobs[1:]], policy, cluster="n1g8", params=params)
            assert run.manifest["oracle_used"]


@pytest.mark.parametrize("policy", [Easy, Conservative])
@given(st.integers(0, 10**9), st.sampled_from((0.0, 1.0)), st.sampled_from(("pack", "any")))
@settings(max_examples=examples(40), deadline=None)
def test_estimates_that_are_true_change_nothing(policy: Any, seed: int, scale: float, placement: str) -> None:
    """To the last bit: every event at the same time, on the same nodes."""
    jobs = random_jobs(seed)
    true = [replace(job, estimate_s=job.duration_s) for job in jobs]
    settings = {"overheads": Overheads(scale=scale), "placement": placement}
    first, second = (simulate(trace, policy(), "n4g4", **settings) for trace in (jobs, true))
    assert first.events == second.events
    assert first.records == second.records


# Guarantees


def random_jobs(seed: int) -> list[Job]:
    return drawn_jobs(seed, 5 + seed % 36, 80, (1, 2, 3, 4, 5, 8, 16), (1, 900))


class WatchedEasy(Easy):
    """Notes the shadow times of every head."""

    def __init__(self, factor: float):
        super().__init__(factor)
        self.shadows: dict[str, list[float]] = {}

    def shadow(self, head: JobView, proposal: Proposal, state: State) -> Shadow:
        shadow = super().shadow(head, proposal, state)
        self.shadows.setdefault(head.id, []).append(shadow.start_s)
        return shadow


@pytest.mark.parametrize("placement", ["pack", "any"])
@given(st.integers(0, 10**9), st.sampled_from((1.0, 3.0)), st.sampled_from((0.0, 1.0)))
@settings(max_examples=examples(60), deadline=None)
def test_easy_never_delays_the_head(placement: str, seed: int, factor: float, scale: float) -> None:
    """Its shadow time is never postponed, and it starts by that time, wherever jobs are placed."""
    policy = WatchedEasy(factor)
    jobs = random_jobs(seed)
    outcome = simulate(jobs, policy, "n4g4", overheads=Overheads(scale=scale), placement=placement)
    for head, shadows in policy.shadows.items():
        assert all(b <= a + 1e-6 for a, b in pairwise(shadows))
        start_s = outcome.of(head).start_s
        assert start_s is not None
        assert start_s <= shadows[-1] + 1e-6


class WatchedConservative(Conservative):
    """Notes the first reservation of every job."""

    def __init__(self, factor: float):
        super().__init__(factor)
        self.first: dict[str, float] = {}

    def schedule(self, state: State) -> Proposal:
        proposal = super().schedule(state)
        for view, start_s in self.reserved.items():
            self.first.setdefault(view.id, start_s)
        return proposal


@given(st.integers(0, 10**9), st.sampled_from((1.0, 3.0)), st.sampled_from((0.0, 1.0)))
@settings(max_examples=examples(80), deadline=None)
def test_conservative_keeps_every_reservation(seed: int, factor: float, scale: float) -> None:
    """Where jobs can run on any GPUs: no job starts after the reservation made at its submission."""
    policy = WatchedConservative(factor)
    jobs = random_jobs(seed)
    outcome = simulate(jobs, policy, "n4g4", overheads=Overheads(scale=scale), placement="any")
    for name, reserved_s in policy.first.items():
        start_s = outcome.of(name).start_s
        assert start_s is not None
        assert start_s <= reserved_s + 1e-6


@given(st.integers(0, 10**9))
@settings(max_examples=examples(60), deadline=None)
def test_conservative_starts_no_job_later_than_fifo(seed: int) -> None:
    """With exact estimates: earlier jobs use, after a job's FIFO start, no more than under FIFO."""
    jobs = random_jobs(seed)
    fifo = starts(simulate(jobs, Fifo(), "n4g4", placement="any"))
    for name, start_s in starts(simulate(jobs, Conservative(), "n4g4", placement="any")).items():
        assert start_s is not None
        assert start_s <= (fifo[name] or 0.0) + 1e-6


@pytest.mark.parametrize("seed", [1, 2])
def test_with_one_tenant_multifactor_is_easy(seed: int) -> None:
    jobs = jobs_of(seed=seed)
    runs = [clustersim.run(jobs, policy, cluster="n16g1", overheads=None) for policy in (Multifactor, Easy)]
    assert runs[0].events == runs[1].events
