"""EASY and conservative backfilling: by hand, and what each guarantees."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random
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
from policies.toolkit.backfill import Shadow
from policies.toolkit.gpu_calendar import FreeGpus
from tests.builders import rigid, starts
from tests.effort import examples
from traces.job import Job

# By hand

RUNNING, HEAD = rigid("runs", 0, 6, 100), rigid("head", 1, 7, 50)  # on 8 GPUs: the head waits until 100 s


@pytest.mark.parametrize("policy", [Easy, Conservative])
def test_estimates_are_of_the_whole_run_in_a_scene_that_begins_with_running_jobs(policy: Any) -> None:
    """At twice the truth `runs` seems to end at 100 s, and the 90 s of `early` fit before the head."""

    def started(factor: float, early_s: float) -> list[str]:
        pending = [rigid("head", 5, 8, 10), rigid("early", 10, 2, early_s)]
        scene = {"running": [rigid("runs", 0, 6, 50)], "pending": pending, "overheads": Overheads.none()}
        return list(decide(policy(estimate_factor=factor), **scene).starts)

    assert (started(1, 40), started(1, 41)) == (["early"], [])
    assert (started(2, 45), started(2, 46)) == (["early"], [])


@pytest.mark.parametrize("policy", ["easy", "conservative"])
def test_the_launch_counts(policy: str) -> None:
    """30 s of launch are part of every run: 70 s end just before the head's turn, 71 s just after."""
    for run_s, start_s in ((97.0, 3), (98.0, 180)):
        jobs = [RUNNING, rigid("head", 1, 8, 20), rigid("early", 3, 1, run_s)]
        run = clustersim.run(jobs, policy, cluster="n1g8", overheads={"launch_s": 30.0, "launch_gpu_s": 0.0})
        assert {j.job_id: j.start_s for j in run.jobs} == {"runs": 0, "head": 130, "early": start_s}
        assert run.manifest["oracle_used"]


# Estimates of users


@pytest.mark.parametrize(("run_s", "early_s"), [(500, 100), (161, 100), (160, 170), (100, 110)])
def test_an_estimate_that_runs_out_is_extended(run_s: float, early_s: float) -> None:
    """`runs` is expected to end at 100 s, then at 160 s, then at 460 s. `early`, of 300 s, has to wait for an
    expected end that leaves it 300 s: from 160 s on, if `runs` goes on; else the head is first.
    """
    jobs = [
        rigid("runs", 0, 6, run_s, estimate_s=100),
        rigid("head", 1, 8, 10, estimate_s=10),
        rigid("early", 2, 1, 300, estimate_s=300),
    ]
    expected = {500: {"head": 500, "early": 160}, 161: {"head": 460, "early": 160},
                160: {"head": 160, "early": 170}, 100: {"head": 100, "early": 110}}[int(run_s)]  # fmt: skip
    assert starts(simulate(jobs, Easy(), "n1g8")) == {"runs": 0, **expected}
    assert starts(simulate(jobs, Conservative(), "n1g8")) == {"runs": 0, **expected}


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
    jobs = random_jobs(seed, (1, 2, 3, 4, 5, 8, 16))
    true = [replace(job, estimate_s=job.duration_s) for job in jobs]
    settings = {"overheads": Overheads(scale=scale), "placement": placement}
    first, second = (simulate(trace, policy(), "n4g4", **settings) for trace in (jobs, true))
    assert first.events == second.events
    assert first.records == second.records


def test_a_head_that_asks_for_a_type_waits_for_that_type(tmp_path: Path) -> None:
    """The head asks for the H100s, which `h` holds until 100 s; the A100s, free at 50 s, are no room for it.
    `early` on an H100 until 102 s would be in its way, and waits.
    """
    (tmp_path / "two.yaml").write_text(
        "groups:\n  - {name: a, gpu_type: a100, nodes: 1}\n  - {name: h, gpu_type: h100, nodes: 1}\n"
    )
    jobs = [
        rigid("a", 0, 8, 50, gpu_type="a100"),
        rigid("h", 0, 7, 100, gpu_type="h100"),
        rigid("head", 1, 8, 50, gpu_type="h100"),
        rigid("early", 2, 1, 100, gpu_type="h100"),
        rigid("fits", 2, 1, 98, gpu_type="h100"),
    ]
    run = clustersim.run(jobs, "easy", cluster=str(tmp_path / "two.yaml"), overheads=None)
    assert {job.job_id: job.start_s for job in run.jobs} == {
        "a": 0, "h": 0, "head": 100, "early": 150, "fits": 2,
    }  # fmt: skip


# Guarantees


def random_jobs(seed: int, sizes: tuple[int, ...]) -> list[Job]:
    random, now, jobs = Random(seed), 0.0, []
    for i in range(random.randint(5, 40)):
        now += random.choice((0.0, 0.0, random.expovariate(1 / 60)))
        jobs.append(rigid(str(i), now, random.choice(sizes), random.choice((10.0, random.uniform(1, 900)))))
    return jobs


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
    jobs = random_jobs(seed, (1, 2, 3, 4, 5, 8, 16))
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
    jobs = random_jobs(seed, (1, 2, 3, 4, 5, 8, 16))
    outcome = simulate(jobs, policy, "n4g4", overheads=Overheads(scale=scale), placement="any")
    for name, reserved_s in policy.first.items():
        start_s = outcome.of(name).start_s
        assert start_s is not None
        assert start_s <= reserved_s + 1e-6


@given(st.integers(0, 10**9))
@settings(max_examples=examples(60), deadline=None)
def test_conservative_starts_no_job_later_than_fifo(seed: int) -> None:
    """With exact estimates: earlier jobs use, after a job's FIFO start, no more than under FIFO."""
    jobs = random_jobs(seed, (1, 2, 3, 4, 8, 16))
    fifo = starts(simulate(jobs, Fifo(), "n4g4", placement="any"))
    for name, start_s in starts(simulate(jobs, Conservative(), "n4g4", placement="any")).items():
        assert start_s is not None
        assert start_s <= (fifo[name] or 0.0) + 1e-6


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 30), st.integers(1, 4))), st.data())
def test_earliest_is_the_first_gap(bookings: list[tuple[int, int, int]], data: st.DataObject) -> None:
    """Against a plain search second by second."""
    free, used = FreeGpus(0.0, 8), [0] * 200
    for start, span, gpus in bookings:
        if all(used[t] + gpus <= 8 for t in range(start, start + span)):
            free.take(float(start), float(start + span), gpus)
            used[start : start + span] = [n + gpus for n in used[start : start + span]]
    gpus, span, after = (data.draw(st.integers(*span)) for span in ((1, 8), (1, 20), (0, 60)))
    expected = next(t for t in range(after, 150) if all(used[i] + gpus <= 8 for i in range(t, t + span)))
    assert free.earliest(gpus, float(span), float(after)) == expected
    assert free.earliest(9, 1.0) == float("inf")
