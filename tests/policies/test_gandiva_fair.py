"""Gandiva_fair: tickets, trades between GPU types, turns, and what each tenant is sure of."""

from __future__ import annotations

from collections import Counter
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from clustersim.testing import Outcome, simulate
from policies.gandiva_fair import GandivaFair, divided
from tests.builders import MixedBench, rigid
from traces.job import Job

Rates = dict[str, tuple[float, float]]
"""By tenant: iterations/s for each GPU on the fast and on the slow type."""


def on_two_types(rates: Rates, jobs: list[Job], policy: GandivaFair, until_s: float) -> dict[str, float]:
    """What each tenant received, in GPU-seconds of the fast type. 8 fast and 8 slow GPUs in nodes of 4."""
    tables = [
        {(name, 1): {n: n * speeds[i] for n in (1, 2, 4)} for name, speeds in rates.items()} for i in (0, 1)
    ]
    bench = MixedBench([("fast", 2, 4), ("slow", 2, 4)], dict(zip(("fast", "slow"), tables, strict=True)))
    outcome = bench.run(jobs, policy, until_s)
    received = dict.fromkeys(rates, 0.0)
    since: dict[str, tuple[float, float, str]] = {}
    for event in outcome.events:
        if event.job_id in since:
            start_s, speed, tenant = since.pop(event.job_id)
            received[tenant] += speed * (event.time_s - start_s)
        if event.placement:
            tenant = event.job_id.split("-")[0]
            fast, slow = rates[tenant]
            relative = 1.0 if event.placement[0][0] < 2 else slow / fast
            since[event.job_id] = (event.time_s, relative * event.gpus, tenant)
    for start_s, speed, tenant in since.values():
        received[tenant] += speed * (until_s - start_s)
    return received


def endless(tenant: str, gpus: list[int], submit_s: float = 0.0) -> list[Job]:
    return [
        Job(f"{tenant}-{i}", submit_s, tenant, model=tenant, global_batch=1, gpus=n, iterations=1e9)
        for i, n in enumerate(gpus)
    ]


def held_s(outcome: Outcome) -> Counter[str]:
    """GPU-seconds by tenant."""
    held: Counter[str] = Counter()
    for record in outcome.records:
        held[record.tenant] += record.gpu_seconds
    return held


def test_two_tenants_trade() -> None:
    """Speed-ups of 4 and 1.25, half of 8 fast and 8 slow GPUs each: worth 4 + 1 and 4 + 3.2. At 1.25, the
    first buys 3.2 fast GPUs for its 4 slow ones: 7.2 and 0.8 + 8 x 0.8.
    """
    rates: Rates = {"sharp": (4.0, 1.0), "dull": (1.25, 1.0)}
    jobs = [*endless("sharp", [1] * 20), *endless("dull", [1] * 20)]
    received = on_two_types(rates, jobs, GandivaFair(round_s=10.0), 6000.0)
    assert {name: gpu_s / 6000.0 for name, gpu_s in received.items()} == pytest.approx(
        {"sharp": 7.2, "dull": 7.2}, rel=0.02
    )


def test_without_trades_each_has_its_part() -> None:
    rates: Rates = {"sharp": (4.0, 1.0), "dull": (1.25, 1.0)}
    jobs = [*endless("sharp", [1] * 20), *endless("dull", [1] * 20)]
    received = on_two_types(rates, jobs, GandivaFair(round_s=10.0, margin=10.0), 6000.0)
    assert {name: gpu_s / 6000.0 for name, gpu_s in received.items()} == pytest.approx(
        {"sharp": 5.0, "dull": 7.2}, rel=0.02
    )


@pytest.mark.parametrize("seed", range(8))
def test_no_tenant_gets_less_than_its_part_of_the_cluster(seed: int) -> None:
    """Gangs of 1, 2 and 4 GPUs of two or three tenants, enough to fill the cluster. Before any trade, a part
    is a tenant's tickets' part of the fast and of the slow GPUs. Rounding to gangs costs at most a quarter of
    a GPU here.
    """
    random = Random(seed)
    rates = {name: (random.uniform(1.0, 5.0), 1.0) for name in "abc"[: random.choice((2, 3))]}
    tickets = {name: random.choice((1.0, 1.0, 2.0)) for name in rates}
    jobs = []
    for name in rates:
        jobs += endless(name, [random.choice((1, 2, 4)) for _ in range(16)])
    policy = GandivaFair(round_s=10.0, tickets=tickets)
    received = on_two_types(rates, jobs, policy, 4000.0)
    for name, (fast, slow) in rates.items():
        part = 8 * (1 + slow / fast) * tickets[name] / sum(tickets.values())
        assert received[name] / 4000.0 >= part - 0.25


def test_gpu_time_follows_tickets() -> None:
    jobs = [rigid(f"{name}{i}", 0, 1, 1e6, tenant=name) for name in "ab" for i in range(8)]
    held = held_s(simulate(jobs, GandivaFair(10.0, {"a": 3.0}), "n1g8", until_s=4000))
    assert held["a"] / held["b"] == pytest.approx(3.0, rel=0.01)


def test_the_jobs_of_a_tenant_share_its_tickets_by_weight() -> None:
    jobs = [rigid("x", 0, 4, 1e6, tenant="a", weight=2.0), rigid("y", 0, 4, 1e6, tenant="a"),
            rigid("z", 0, 4, 1e6, tenant="b"), rigid("w", 0, 4, 1e6, tenant="b")]  # fmt: skip
    outcome = simulate(jobs, GandivaFair(round_s=10.0), "n1g8", until_s=6000)
    parts = {record.job_id: record.gpu_seconds / 24_000 for record in outcome.records}
    assert parts == pytest.approx({"x": 2 / 3, "y": 1 / 3, "z": 1 / 2, "w": 1 / 2}, abs=0.01)


def test_a_gang_of_all_gpus_gets_its_turns() -> None:
    """Tenant a has one job of 8 GPUs, b eight of one: half of the time each."""
    jobs = [rigid("gang", 0, 8, 1e6, tenant="a")]
    jobs += [rigid(f"b{i}", 0, 1, 1e6, tenant="b") for i in range(8)]
    held = held_s(simulate(jobs, GandivaFair(round_s=10.0), "n1g8", until_s=4000))
    assert held["a"] == pytest.approx(held["b"], rel=0.01)


def test_gpus_that_a_tenant_cannot_use_go_to_the_others() -> None:
    jobs = [rigid("a", 0, 1, 1e6, tenant="a")]
    jobs += [rigid(f"b{i}", 0, 1, 1e6, tenant="b") for i in range(9)]
    held = held_s(simulate(jobs, GandivaFair(round_s=10.0), "n1g8", until_s=1000))
    assert held["a"] + held["b"] == 8000
    assert held["a"] == pytest.approx(1000, abs=20)


def test_a_tenant_that_comes_has_its_part_from_the_next_round_on() -> None:
    jobs = [rigid(f"a{i}", 0, 1, 1e6, tenant="a") for i in range(8)]
    jobs += [rigid(f"b{i}", 1000, 1, 1e6, tenant="b") for i in range(8)]
    held = held_s(simulate(jobs, GandivaFair(round_s=10.0), "n1g8", until_s=3000))
    assert held["b"] == pytest.approx(4 * 2000, abs=8 * 20)


def stride(tickets: list[float], gpus: int, rounds: int) -> list[int]:
    """Stride scheduling (Waldspurger and Weihl, 1995) of jobs of one GPU, in plain Python: the least pass
    first, which grows by the stride 1 / tickets with each round. The rounds of each job.
    """
    passes, received = [1.0 / n for n in tickets], [0] * len(tickets)
    for _ in range(rounds):
        for i in sorted(range(len(tickets)), key=lambda i: (round(passes[i], 9), i))[:gpus]:
            passes[i] += 1.0 / tickets[i]
            received[i] += 1
    return received


@pytest.mark.parametrize("seed", range(4))
def test_turns_are_those_of_stride_scheduling(seed: int) -> None:
    """Tickets of no job are worth more than a GPU; after 300 rounds, to within three."""
    random = Random(seed)
    weights = [random.uniform(1.0, 2.0) for _ in range(random.randint(6, 10))]
    jobs = [rigid(f"j{i}", 0, 1, 1e6, weight=weight) for i, weight in enumerate(weights)]
    outcome = simulate(jobs, GandivaFair(round_s=10.0), "n1g3", until_s=3000)
    held = [outcome.of(f"j{i}").gpu_seconds / 10.0 for i in range(len(weights))]
    assert held == pytest.approx(stride(weights, 3, 300), abs=3)


def test_the_jobs_with_the_largest_speed_up_get_the_fast_gpus() -> None:
    """Two fast and two slow GPUs for four jobs of one GPU."""
    speeds = np.array([[1.0, 0.8], [1.0, 0.2], [1.0, 0.9], [1.0, 0.3]])
    shares = divided(np.array([2.0, 2.0]), speeds, np.ones(4), np.ones(4))
    assert shares.tolist() == [[0, 1], [1, 0], [0, 1], [1, 0]]


class Shares(GandivaFair):
    """Keeps the shares of time, and what they are worth to each tenant, in GPUs of its jobs' best types."""

    worth: Counter[str]

    def time_shares(self, jobs: Any, rates: Any, capacity: Any, now: float) -> Any:
        shares = super().time_shares(jobs, rates, capacity, now)
        self.worth = Counter()
        for job, row, rate in zip(jobs, shares, rates, strict=True):
            self.worth[job.tenant] += job.requested * float((row * rate).sum() / rate.max())
        return shares


@pytest.mark.parametrize("seed", range(30))
def test_tenants_of_different_jobs_are_no_worse_off_than_alone(seed: int) -> None:
    """Jobs of one tenant have other speed-ups than each other. Alone on its part of a cluster, a tenant has
    shares of the same worth as here without trades, and here no smaller ones.
    """
    random = Random(seed)
    views = [
        SimpleNamespace(tenant=name, requested=random.choice((1, 2)), weight=random.choice((1.0, 2.0)))
        for name in "ab" for _ in range(random.randint(4, 9))
    ]  # fmt: skip
    rates = np.array([[1.0, random.choice((0.15, 0.5, 0.9))] for _ in views])
    policy = Shares(margin=0.0)
    policy.time_shares(views, rates, [8, 8], 0.0)
    for name in "ab":
        mine = [i for i, view in enumerate(views) if view.tenant == name]
        alone = Shares(margin=0.0)
        alone.time_shares([views[i] for i in mine], rates[mine], [4, 4], 0.0)
        assert policy.worth[name] >= alone.worth[name] - 1e-6


def test_a_tenant_that_would_lose_does_not_trade() -> None:
    """Tenant `mixed` has jobs with speed-ups of 5 and 1.1, so fast GPUs go to the first ones. By its mean it
    would sell them for too little.
    """
    views = [SimpleNamespace(tenant="mixed", requested=1, weight=1.0) for _ in range(8)]
    views += [SimpleNamespace(tenant="other", requested=1, weight=1.0) for _ in range(8)]
    rates = np.array([[1.0, 0.2]] * 4 + [[1.0, 0.9]] * 4 + [[1.0, 0.5]] * 8)
    policy = Shares(margin=0.0)
    policy.time_shares(views, rates, [4, 4], 0.0)
    assert policy.worth["mixed"] == pytest.approx(2 + 2 * 0.9)
    assert policy.worth["other"] == pytest.approx(2 + 2 * 0.5)
