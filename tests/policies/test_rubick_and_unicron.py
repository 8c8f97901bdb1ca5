"""Unicron: divisions by hand, in whole runs. Rubick: a slow simulation of its rule, guarantees, the gate."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from random import Random

import pytest

import clustersim
from clustersim.overheads import Overheads
from clustersim.scheduler import JobView
from clustersim.testing import simulate
from policies.rubick import Rubick
from policies.unicron import Unicron
from tests.builders import Bench, elastic, finishes, starts
from traces.job import Job

TABLE = {("m", 8): {1: 1.0, 2: 1.9, 4: 3.4, 8: 5.5}}


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


# Rubick


SPEEDS = {1: 1.0, 2: 1.83, 4: 3.07, 8: 4.19}  # iterations a second, batch 8; no two slopes are equal
FLAT = {1: 1.0, 2: 1.13, 4: 1.21, 8: 1.27}  # batch 16
RATES = {("m", 8): SPEEDS, ("m", 16): FLAT}
GPUS = 8


def drawn(seed: int, count: int = 25) -> list[Job]:
    random, now, jobs = Random(seed), 0.0, []
    for i in range(count):
        now += random.expovariate(1 / 40)
        batch, tenant = random.choice([8, 16]), random.choice(["promised", "other"])
        gpus, work = random.choice([1, 2, 4]), float(random.randint(20, 400))
        jobs.append(elastic(f"j{i:02}", now, gpus, work, global_batch=batch, tenant=tenant))
    return jobs


def table_file(path: Path) -> str:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["model", "global_batch", "gpus", "iterations_per_s"])
        for (model, batch), speeds in RATES.items():
            writer.writerows((model, batch, gpus, rate) for gpus, rate in speeds.items())
    return str(path)


class Plain:
    """One node, no overheads, every size fits: the rule step by step, with all jobs looked at each time.

    Speeds are concave, so that every count is on every ladder and a step goes to the next count.
    """

    def __init__(self, jobs: list[Job], quotas: dict[str, int]):
        self.order = {job.job_id: i for i, job in enumerate(jobs)}
        self.jobs, self.quotas = {job.job_id: job for job in jobs}, quotas
        self.left = {job.job_id: float(job.iterations or 0) for job in jobs}
        self.held: dict[str, int] = {}
        self.ends: dict[str, float] = {}

    def rates(self, name: str) -> dict[int, float]:
        job = self.jobs[name]
        assert job.global_batch is not None
        return {0: 0.0, **RATES["m", job.global_batch]}

    def least(self, name: str) -> int:
        """GPUs that the job keeps: its request if it is promised, since every count is faster than before."""
        job = self.jobs[name]
        assert job.gpus is not None
        return job.gpus if job.gpus <= self.quotas.get(job.tenant, 0) else 0

    def slope(self, name: str, low: int, high: int) -> float:
        rates = self.rates(name)
        return (rates[high] - rates[low]) / rates[self.jobs[name].gpus or 0] / (high - low)

    def run(self) -> dict[str, float]:
        arrivals = sorted(self.jobs, key=lambda name: self.order[name])
        now, waiting = 0.0, list[str]()
        while arrivals or waiting or self.held:
            ends = [now + self.left[n] / self.rates(n)[g] for n, g in self.held.items()]
            after = min([*ends, *(self.jobs[name].submit_s for name in arrivals[:1])])
            for name, gpus in self.held.items():
                self.left[name] -= (after - now) * self.rates(name)[gpus]
            now = after
            for name in [n for n in self.held if self.left[n] <= 1e-6]:
                self.ends[name] = now
                del self.held[name]
            while arrivals and self.jobs[arrivals[0]].submit_s <= now:
                waiting.append(arrivals.pop(0))
            self.decide(waiting)
            waiting = [n for n in waiting if not self.held.get(n)]
            waiting += [n for n, gpus in self.held.items() if not gpus]
            self.held = {n: gpus for n, gpus in self.held.items() if gpus}
        return self.ends

    def free(self) -> int:
        return GPUS - sum(self.held.values())

    def decide(self, waiting: list[str]) -> None:
        promised = [name for name in waiting if self.least(name)]
        for name in sorted(promised, key=lambda n: (-self.slope(n, 0, self.least(n)), self.order[n])):
            tenant, need = self.jobs[name].tenant, self.least(name)
            used = sum(self.least(n) for n in self.held if self.jobs[n].tenant == tenant)
            if used + need <= self.quotas[tenant] and self.take(need, 1e9, 1e9, name):
                self.held[name] = need
        moving = {*self.held, *(name for name in waiting if not self.least(name))}
        refused, closed = set[str](), False  # a job that finds no room keeps those behind it from starting
        while True:
            steps = [
                (self.slope(n, held, min(g for g in self.rates(n) if g > held)), -self.order[n], n)
                for n in moving - refused
                if (held := self.held.get(n, 0)) < 8 and (n in self.held or not closed)
            ]
            if not steps:
                return
            slope, _, name = max(steps)
            held = self.held.get(name, 0)
            more = min(g for g in self.rates(name) if g > held) - held
            before = dict(self.held)
            if self.take(more, slope, slope * more, name):
                self.held[name] = held + more
                refused -= {n for n in before if self.held[n] < before[n]}
            else:
                refused.add(name)
                closed = closed or name not in self.held

    def take(self, gpus: int, slope: float, gain: float, taker: str) -> bool:
        """Free GPUs by the least steep last steps; those that turn out not to be needed are given back."""
        before, taken = dict(self.held), []
        while self.free() < gpus:
            last = [
                (self.slope(n, low, held), -self.order[n], n, low)
                for n, held in self.held.items()
                if n != taker and held > self.least(n)
                for low in [max(g for g in self.rates(n) if g < held)]
            ]
            if not last or min(last)[0] >= slope * (1 - 1e-9):
                self.held = before
                return False
            _, _, name, low = min(last)
            taken.append((name, self.held[name], low))
            self.held[name] = low
        for name, high, low in reversed(taken):
            if self.held[name] == low and self.free() - (high - low) >= gpus:
                self.held[name] = high
        loss = sum(
            (self.rates(n)[before[n]] - self.rates(n)[gpus_now]) / self.rates(n)[self.jobs[n].gpus or 0]
            for n, gpus_now in self.held.items()
            if n in before
        )
        if loss >= gain * (1 - 1e-9):
            self.held = before
            return False
        return True


@pytest.mark.parametrize("quotas", [{}, {"promised": 4}, {"promised": 8}])
@pytest.mark.parametrize("seed", range(4))
def test_schedules_are_those_of_a_slow_simulation(seed: int, quotas: dict[str, int], tmp_path: Path) -> None:
    jobs = drawn(seed)
    run = clustersim.run(
        jobs, "rubick", cluster="n1g8", overheads=None, bound="none", quotas=quotas,
        table=table_file(tmp_path / "table.csv"), params={"patience_s": 1e9},
    )  # fmt: skip
    found = {record.job_id: record.finish_s for record in run.jobs}
    assert found == pytest.approx(Plain(jobs, quotas).run(), rel=1e-6)


def test_a_job_that_waited_long_is_served_before_others() -> None:
    """Jobs of one GPU keep coming. `wide` needs all GPUs and is less steep than any of them."""
    table = {("m", 8): {1: 1.0}, ("m", 16): {8: 1.0}}
    jobs = [elastic("wide", 0, 8, 100, global_batch=16)]
    jobs += [elastic(f"s{i:02}", 15.0 * i, 1, 200) for i in range(80)]
    bench = Bench("n1g8", table)
    patient = bench.run(jobs, Rubick(patience_s=1e9))
    served = bench.run(jobs, Rubick(patience_s=300))
    assert finishes(served)["wide"] < 1000 < finishes(patient)["wide"]
    assert starts(served)["wide"] is not None
