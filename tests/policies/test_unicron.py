"""Unicron: divisions by hand, all divisions in whole runs, and throughput kept under failures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from random import Random
from typing import Any

import pytest

from clustersim.failures import Failures
from clustersim.overheads import Overheads
from clustersim.records import ALLOCATES
from clustersim.scheduler import JobCurve, JobView, Proposal, Scheduler, State
from clustersim.testing import Outcome, simulate
from policies.unicron import Unicron
from tests.builders import elastic

TABLE = {("m", 8): {1: 1.0, 2: 1.9, 4: 3.4, 8: 5.5}}


@dataclass(eq=False)
class Stub:
    """A job of weight 1 that asks for 1 GPU and holds 1; a change takes a minute."""

    work_left: float
    gpus: int = 1
    requested: int = 1
    weight: float = 1.0
    order: int = 0
    sizes: tuple[int, ...] = (1, 2, 4)

    def rate(self, gpus: int) -> float:
        return TABLE["m", 8][gpus]

    def restart_s(self, gpus: int) -> float:
        return 60.0

    @property
    def running(self) -> bool:
        return self.gpus > 0

    @property
    def curve(self) -> JobCurve:
        rates = tuple(TABLE["m", 8][n] for n in self.sizes)
        return JobCurve(self.sizes, rates, (60.0,) * 3, (60.0,) * 3)


@pytest.mark.parametrize(
    ("horizon_s", "work_left", "gpus"),
    [(60.0, 1e6, 1), (80.0, 1e6, 2), (80.0, 60.0, 1), (1e6, 80.0, 2), (1e6, math.inf, 2)],
)
def test_a_change_must_gain_more_than_it_loses(horizon_s: float, work_left: float, gpus: int) -> None:
    """2 GPUs add 0.9 a second, and a minute's change loses 60. It pays from 67 s on: of the horizon, and of
    what the job has left.
    """
    job: Any = Stub(work_left)
    assert Unicron(horizon_s=horizon_s).division([job], 2) == {job: gpus}


class WatchedUnicron(Unicron):
    """Compares every division with all others, by the values that `docs/policies/unicron.md` states."""

    compared = 0

    def division(self, jobs: Sequence[JobView], gpus: int) -> dict[JobView, int]:
        mine = super().division(jobs, gpus)
        if len(jobs) <= 4:
            best = max(
                sum(self.value(job, n) for job, n in zip(jobs, counts, strict=True))
                for counts in product(*((0, *job.sizes) for job in jobs))
                if sum(counts) <= gpus
            )
            assert sum(self.value(job, mine.get(job, 0)) for job in jobs) == pytest.approx(best)
            self.compared += 1
        return mine

    def value(self, job: JobView, gpus: int) -> float:
        def work(n: int) -> float:
            return job.weight * job.requested * job.rate(n) / job.rate(job.requested) if n else 0.0

        if gpus == job.gpus or not job.gpus:
            return work(gpus)
        cost_s = job.restart_s(gpus or job.gpus)
        return work(gpus) - work(job.gpus) * cost_s / min(self.horizon_s, job.remaining(job.gpus))


@pytest.mark.parametrize("restart_s", [0.0, 5.0, 60.0])
def test_every_division_is_an_optimum(restart_s: float) -> None:
    compared = 0
    for seed in range(6):
        random, now, jobs = Random(seed), 0.0, []
        for i in range(8):
            now += random.uniform(0, 200)
            work, asked = random.uniform(50, 1500), random.choice((1, 2, 4))
            jobs.append(elastic(str(i), now, asked, work, weight=random.choice((0.5, 1.0, 3.0))))
        policy = WatchedUnicron(horizon_s=random.choice((50.0, 1000.0)))
        charged = Overheads(launch_s=restart_s, plain_restart_s=restart_s)
        simulate(jobs, policy, "n1g8", table=TABLE, placement="any", overheads=charged)
        compared += policy.compared
    assert compared > 30


class AllRestart(Scheduler):
    """At every change all jobs restart on equal shares of the GPUs that are left."""

    def schedule(self, state: State) -> Proposal:
        jobs = sorted((*state.running, *state.pending), key=lambda job: job.order)
        proposal = state.proposal()
        share = state.in_service // max(1, len(jobs))
        proposal.run({job: max(n for n in job.sizes if n <= share) for job in jobs})
        return proposal


def weighted_work(outcome: Outcome, until_s: float) -> float:
    """The weighted work of all jobs until then, from the log: GPUs by time, less what a change costs and what
    a failure loses.
    """
    weights = {job.job_id: job.weight for job in outcome.case.jobs}
    held: dict[str, tuple[float, float]] = {}  # (rate, when it begins to work)
    done = dict.fromkeys(weights, 0.0)
    for event in outcome.events:
        if event.time_s > until_s:
            break
        job = event.job_id
        if job in held:
            rate, since_s = held.pop(job)
            done[job] += rate * max(0.0, event.time_s - since_s)
            if event.event == "interrupt":
                done[job] -= rate * event.overhead_s  # what was not saved
        if event.event in ALLOCATES:
            held[job] = 1 / event.unit_s, event.time_s + event.overhead_s
    for job, (rate, since_s) in held.items():
        done[job] += rate * max(0.0, until_s - since_s)
    return sum(weights[job] * work for job, work in done.items())


@pytest.mark.parametrize("seed", range(3))
def test_it_keeps_more_weighted_throughput_than_equal_shares_under_failures(seed: int) -> None:
    """Three long jobs of weights 8, 1 and 1 on 4 nodes of 4 GPUs. A node fails every 30 minutes, for half an
    hour.
    """
    jobs = [elastic(name, 0, 4, 1e5, weight=w) for name, w in (("a", 8.0), ("b", 1.0), ("c", 1.0))]
    failures = Failures(mtbf_gpu_h=8.0, kinds={"gpu": (1, 0.5)}, repair_sigma=0.0)
    charged = Overheads(launch_s=120.0, plain_restart_s=120.0, checkpoint_interval_s=600.0)
    kept: dict[type, float] = {}
    interrupted: dict[type, int] = {}
    for policy in (Unicron(), AllRestart()):
        outcome = simulate(jobs, policy, "n4g4", table=TABLE, overheads=charged, failures=failures, seed=seed)
        kept[type(policy)] = weighted_work(outcome, 15_000)
        interrupted[type(policy)] = sum(record.interruptions for record in outcome.records)
    assert sum(interrupted.values()) > 6
    assert kept[Unicron] > 1.25 * kept[AllRestart]
