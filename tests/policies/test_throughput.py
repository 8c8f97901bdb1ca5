"""Unicron, Rubick, Muri and Lucid: divisions and groups by hand, plain rewrites, guarantees."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest

import clustersim
from clustersim.cluster import SharedPlacement
from clustersim.overheads import Overheads
from clustersim.records import ALLOCATES
from clustersim.scheduler import JobView
from clustersim.speed import Interference
from clustersim.testing import simulate
from policies.rubick import Rubick
from policies.unicron import Unicron
from tests.builders import Bench, drawn_jobs, elastic, finishes, rigid, starts
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


PROFILES = {
    "storage": [0.6, 0.2, 0.1, 0.1], "cpu": [0.1, 0.6, 0.2, 0.1], "gpu": [0.1, 0.1, 0.7, 0.1],
    "network": [0.1, 0.1, 0.2, 0.6],
}  # fmt: skip


def run_of(jobs: list[Job], cluster: str, overheads: Any = None, **params: Any) -> clustersim.Run:
    return clustersim.run(
        jobs, "muri", cluster=cluster, overheads=overheads, sharing={"profiles": PROFILES}, params=params
    )


def groups_at(run: clustersim.Run, time_s: float) -> set[frozenset[str]]:
    """The jobs that got the same GPUs at a time."""
    found: dict[object, set[str]] = {}
    for event in run.events:
        if event.event in ALLOCATES and event.time_s == time_s:
            at = event.placement
            key = at.key if isinstance(at, SharedPlacement) else event.job_id
            found.setdefault(key, set()).add(event.job_id)
    return {frozenset(group) for group in found.values()}


def partitions(jobs: list[str]) -> Iterator[list[list[str]]]:
    """All ways to make pairs and single jobs of these."""
    if not jobs:
        yield []
        return
    first, *rest = jobs
    for pairs in partitions(rest):
        yield [[first], *pairs]
    for i, other in enumerate(rest):
        for pairs in partitions(rest[:i] + rest[i + 1 :]):
            yield [[first, other], *pairs]


@pytest.mark.parametrize("seed", range(6))
def test_the_pairs_do_the_most_work_of_all(seed: int) -> None:
    """Six jobs of 8 GPUs on three nodes: all chosen, and no other pairs do more work per time."""
    random = Random(seed)
    models = [random.choice(list(PROFILES)) for _ in range(6)]
    jobs = [rigid(f"j{i}", 0, 8, 1000.0 + i, model=model) for i, model in enumerate(models)]
    found = groups_at(run_of(jobs, "n3g8"), 0)
    assert {len(group) for group in found} == {2}
    sharing, model_of = Interference(profiles=PROFILES), {job.job_id: job.model or "" for job in jobs}

    def work(groups: Any) -> float:
        named = [[model_of[job] for job in group] for group in groups]
        return sum(
            sum(1 / sharing.factor(model, group[:i] + group[i + 1 :]) for i, model in enumerate(group))
            for group in named
        )

    best = max(work(groups) for groups in partitions(list(model_of)) if len(groups) == 3)
    assert work(found) == pytest.approx(best)


def test_if_all_jobs_fit_none_share() -> None:
    run = run_of([rigid(name, 0, 8, 100.0, model=name) for name in PROFILES], "n4g8")
    assert not any(isinstance(event.placement, SharedPlacement) for event in run.events)
    assert run.summary["makespan_s"] == 100.0


def test_groups_stay_together_from_round_to_round() -> None:
    jobs = [rigid(f"{name}{i}", 0, 8, 5000.0, model=name) for name in ("cpu", "gpu") for i in range(4)]
    run = run_of(jobs, "n4g8", overheads=Overheads(launch_s=30.0).stated(), order="las")
    assert run.summary["preemptions"] == run.summary["migrations"] == 0


# Lucid


PAIRS = {
    "t": {"t": 1.01, "m": 1.03, "j": 1.04},
    "m": {"t": 1.02, "m": 1.1, "j": 1.3},
    "j": {"t": 1.1, "m": 1.5, "j": 1.9},
}
"""Average speeds: t 0.97 (tiny), m 0.89 (medium), j 0.70 (jumbo)."""
SCORE = {"t": 0, "m": 1, "j": 2}


def first() -> list[Job]:
    """A job of every model, so that all are seen before the others come. They end at once."""
    return [rigid(f"0{name}", 0, 1, 1.0, model=name) for name in "tmj"]


def lucid_run(jobs: list[Job], cluster: str, **params: Any) -> clustersim.Run:
    return clustersim.run(
        jobs, "lucid", cluster=cluster, overheads=None, sharing={"pairs": PAIRS}, estimates={"sigma": 0},
        params={"profile_nodes": 0, **params},
    )  # fmt: skip


def jobs_of(seed: int) -> list[Job]:
    return [*first(), *drawn_jobs(seed, 60, 160, (1, 1, 2, 3, 4), (20, 400), from_s=10, model="tmj")]


def rewritten(jobs: list[Job], gpus: int, capacity: int) -> dict[str, tuple[float, float]]:
    """The rule on one node in plain Python: (start, finish) by job. Jobs are in order of submission."""
    index = {job.job_id: i for i, job in enumerate(jobs)}
    left = {job.job_id: job.duration_s or 0.0 for job in jobs}
    places: list[list[Job]] = []
    arrivals, waiting, started, found = list(jobs), [], {}, {}

    def slow(job: Job, place: list[Job]) -> float:
        others = [other for other in place if other is not job]
        return PAIRS[job.model or ""][others[0].model or ""] if others else 1.0

    now = 0.0
    while arrivals or waiting or places:
        ends = {job.job_id: now + left[job.job_id] * slow(job, place) for place in places for job in place}
        following = min([*ends.values(), *(job.submit_s for job in arrivals[:1])])
        for place in places:
            factors = {job.job_id: slow(job, place) for job in place}
            for job in place:
                left[job.job_id] -= (following - now) / factors[job.job_id]
        now = following
        for place in places:
            for job in [job for job in place if ends[job.job_id] <= now + 1e-9]:
                found[job.job_id] = started[job.job_id], now
                place.remove(job)
        places = [place for place in places if place]
        while arrivals and arrivals[0].submit_s <= now:
            waiting.append(arrivals.pop(0))
        waiting.sort(key=lambda job: ((job.duration_s or 0) * (job.gpus or 0), index[job.job_id]))
        for job in list(waiting):
            if (job.gpus or 0) <= gpus - sum(place[0].gpus or 0 for place in places):
                places.append([job])
            else:
                able = [
                    place for place in places
                    if len(place) == 1 and place[0].gpus == job.gpus
                    and SCORE[job.model or ""] + SCORE[place[0].model or ""] <= capacity
                ]  # fmt: skip
                if not able:
                    continue

                def mutual(place: list[Job], job: Job = job) -> tuple[float, int]:
                    one, other = job.model or "", place[0].model or ""
                    return PAIRS[one][other] + PAIRS[other][one], index[place[0].job_id]

                min(able, key=mutual).append(job)
            waiting.remove(job)
            started[job.job_id] = now
    return found


@pytest.mark.parametrize("capacity", [0, 1, 2, 4])
@pytest.mark.parametrize("seed", range(3))
def test_every_start_is_that_of_a_plain_rewrite(seed: int, capacity: int) -> None:
    jobs = jobs_of(seed)
    found = {
        job.job_id: (job.start_s, job.finish_s) for job in lucid_run(jobs, "n1g8", capacity=capacity).jobs
    }
    expected = rewritten(jobs, 8, capacity)
    assert found == {job: pytest.approx(when, abs=1e-4) for job, when in expected.items()}


@pytest.mark.parametrize(("one", "other"), [(a, b) for a in "tmj" for b in "tmj"])
def test_jobs_share_if_their_scores_allow_it(one: str, other: str) -> None:
    jobs = [*first(), rigid("a", 10, 8, 100.0, model=one), rigid("b", 20, 8, 100.0, model=other)]
    start_s = {job.job_id: job.start_s for job in lucid_run(jobs, "n1g8").jobs}["b"]
    assert (start_s == 20) == (SCORE[one] + SCORE[other] <= 2)
