"""Policies of elastic jobs and of groups: rules against definitions, plain rewrites, all small cases."""

import csv
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from math import inf
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import clustersim
from clustersim.cluster import SharedPlacement
from clustersim.overheads import Overheads
from clustersim.records import ALLOCATES
from clustersim.scheduler import JobView, Scheduler
from clustersim.speed import Interference
from clustersim.testing import Outcome, check_outcome, decide, simulate
from policies.afs import Afs
from policies.gavel_ftf import GavelFtf
from policies.gavel_makespan import GavelMakespan
from policies.gavel_max_min import GavelMaxMin
from policies.hesrpt import HeSrpt, fractions
from policies.max_min import MaxMin
from policies.optimus import Optimus, loss_per_gpu
from policies.pollux import Pollux
from policies.rubick import Rubick
from policies.sia import Sia
from policies.solvers.assignment import Choice, assign, without_lines_of_highs
from policies.themis import Themis
from policies.toolkit.stepwise import Walk, allocate_stepwise
from policies.unicron import Unicron
from tests.builders import Bench, drawn_jobs, elastic, finishes, rigid, starts
from tests.effort import examples
from traces.job import Job
from traces.phases import seconds_factor

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


configurations = st.tuples(st.integers(0, 1), st.integers(1, 6))
costs = st.floats(-1, 0.2).map(lambda x: round(x, 6))
choice = st.dictionaries(configurations, costs, min_size=1, max_size=4)
choices = st.lists(
    choice.map(lambda c: tuple(sorted((*where, cost) for where, cost in c.items()))), min_size=1, max_size=4
)


@given(choices, st.tuples(st.integers(0, 12), st.integers(0, 6)), st.booleans())
@settings(deadline=None, max_examples=examples(100))
def test_no_assignment_costs_less(jobs: list[Choice], capacity: tuple[int, int], twice: bool) -> None:
    """On two GPU types, against all combinations."""
    jobs = jobs + jobs[:1] if twice else jobs
    given_ = assign(jobs, capacity, gap=0.0, search_nodes=10_000)
    assert given_ is not None
    mine = [
        next(entry for entry in job if entry[:2] == where) if where is not None else _NOTHING
        for job, where in zip(jobs, given_, strict=True)
    ]
    assert _fits(mine, capacity)
    picks = product(*((_NOTHING, *job) for job in jobs))
    least = min(sum(cost for _, _, cost in pick) for pick in picks if _fits(pick, capacity))
    assert sum(cost for _, _, cost in mine) == pytest.approx(least, abs=1e-6)


_NOTHING = (0, 0, 0.0)


def _fits(pick: Iterable[tuple[int, int, float]], capacity: tuple[int, int]) -> bool:
    taken = [0, 0]
    for type_, gpus, _ in pick:
        taken[type_] += gpus
    return all(n <= most for n, most in zip(taken, capacity, strict=True))


def test_alike_jobs_get_the_larger_counts_and_the_better_type_first() -> None:
    job: Choice = ((0, 1, -0.5), (0, 2, -0.9))
    assert assign([job, job, job], [4], gap=0.0, search_nodes=100) == [(0, 2), (0, 1), (0, 1)]
    job = ((0, 1, -0.5), (1, 1, -0.6))
    assert assign([job, job, job], [4, 1], gap=0.0, search_nodes=100) == [(1, 1), (0, 1), (0, 1)]
    assert assign([], [8], gap=0.0, search_nodes=10) == []
    assert assign([((0, 4, -1.0),)], [2], gap=0.0, search_nodes=10) == [None]


PRINTS: list[Choice] = [
    *[((0, 4, -0.1), (0, 8, -0.364644), (0, 16, -0.52265))] * 2,
    *[((0, 4, -0.11),), ((0, 1, -0.11),), ((0, 2, -0.11),), ((0, 2, -0.1),)],
    ((0, 1, -0.1), (0, 3, -0.454503), (0, 5, -0.61), (0, 6, -0.633748), (0, 12, -0.746447)),
    *[((0, 1, -0.1), (0, 2, -0.374524), (0, 4, -0.557674), (0, 8, -0.673599), (0, 16, -0.746447))] * 3,
    *[((0, 1, -0.1), (0, 2, -0.392893), (0, 4, -0.6), (0, 8, -0.652786))] * 2,
    ((0, 4, -0.1), (0, 8, -0.354644), (0, 16, -0.52265)),
]
"""A program for which the HiGHS of scipy 1.17 prints a line while it solves."""


def test_nothing_that_the_solver_prints_is_seen(capfd: pytest.CaptureFixture[str]) -> None:
    assert assign(PRINTS, [32], gap=0.001, search_nodes=1000)
    os.write(1, b"data\n")
    assert capfd.readouterr() == ("data\n", "")


def test_what_others_print_during_a_solution_is_kept(capfd: pytest.CaptureFixture[str]) -> None:
    with without_lines_of_highs():
        os.write(1, b"one\nHighsMipSolverData::some line\n")
        os.write(2, b"a warning\n")
        os.write(1, b"two")
    assert capfd.readouterr() == ("one\ntwo", "a warning\n")


def test_a_program_is_solved_without_stdout() -> None:
    code = "from policies.solvers import assign\n"
    code += "import sys; sys.exit(assign([((0, 1, -1.0),)], [1], gap=0.1, search_nodes=9) != [(0, 1)])"
    assert subprocess.run([sys.executable, "-c", code], preexec_fn=lambda: os.close(1)).returncode == 0


@pytest.mark.parametrize(("age_s", "gpus"), [(50.0, 8), (81.0, 1), (1000.0, 8)])
def test_a_job_younger_than_a_restart_is_not_discounted(age_s: float, gpus: int) -> None:
    """Of 1.3 times the speed on 8 GPUs, whose restart takes 80 s, 81 / (81 + 80) would be left. At an age of
    1000 s it is 1000 / 1080.
    """
    charged = Overheads(launch_s=0.0, launch_gpu_s=10.0, plain_restart_s=0.0)
    decision = decide(
        Sia(), running=[(elastic("a", 0, 1, 1e5), 1)], now_s=age_s, table={("m", 8): {1: 1.0, 8: 1.3}},
        overheads=charged,
    )  # fmt: skip
    assert decision.gpus("a") == gpus


# Pollux


BATCHES = (8, 16, 32, 64)


def table(seed: int) -> dict[tuple[str, int], dict[int, float]]:
    """Iterations a second: seconds = compute x batch / GPUs + an exchange that grows with the GPUs."""
    rng = np.random.default_rng(seed)
    found = {}
    for model in ("m", "n"):
        compute_s, exchange_s = rng.uniform(0.05, 0.2), rng.uniform(0.05, 0.6)
        for batch in BATCHES:
            found[model, batch] = {
                n: 1 / (compute_s * batch / n + exchange_s * np.log2(2 * n)) for n in (1, 2, 4, 8)
            }
    return found


def first(outcome: Outcome) -> dict[str, tuple[int, int]]:
    """(GPUs, batch) of each job in the first allocation, at time 0."""
    return {
        e.job_id: (e.gpus, int(e.detail.rsplit(" ", 1)[1]))
        for e in outcome.events
        if e.time_s == 0.0 and e.event in ALLOCATES
    }


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("power", [-1.0, 0.0, 1.0])
def test_no_division_and_no_batches_have_a_larger_mean_of_speedups(seed: int, power: float) -> None:
    """All divisions of 8 GPUs among three jobs, by the paper's formulas 6, 7, 14 and 15."""
    rates, rng = table(seed), np.random.default_rng(100 + seed)
    noises = rng.choice([0.0, 8.0, 60.0, 1e4], 3)
    jobs = [
        elastic(f"{i}", 0, 1, 1e5, model="mn"[i % 2], phases=f"1:8..64:{noise:g}")
        for i, noise in enumerate(noises)
    ]
    outcome = simulate(jobs, Pollux(power=power, waiting_speedup=0.05), "n1g8", table=rates, until_s=1.0)
    given = first(outcome)

    def goodput(i: int, gpus: int, batch: int) -> float:
        return rates["mn"[i % 2], batch][gpus] * batch / 8 * (noises[i] + 8) / (noises[i] + batch)

    def best(i: int, gpus: int) -> float:
        return max(goodput(i, gpus, batch) for batch in BATCHES)

    def fair(i: int) -> float:
        """8 / 3 GPUs: between 2 and 4. A count that is no faster than a smaller one is never given."""
        sizes = [n for n in (1, 2, 4, 8) if all(best(i, n) > best(i, k) for k in (1, 2, 4) if k < n)]
        return float(np.interp(8 / 3, [0, *sizes], [0.0, *(best(i, n) for n in sizes)]))

    def fitness(counts: tuple[int, ...]) -> float:
        speedups = [max(0.05, best(i, n) / fair(i)) if n else 0.05 for i, n in enumerate(counts)]
        if power == 0.0:
            return float(np.exp(np.mean(np.log(speedups))))
        return float(np.mean(np.power(speedups, power)) ** (1 / power))

    mine = tuple(given.get(f"{i}", (0, 0))[0] for i in range(3))
    divisions = [counts for counts in product((0, 1, 2, 4, 8), repeat=3) if sum(counts) <= 8]
    assert fitness(mine) == pytest.approx(max(map(fitness, divisions)), rel=1e-9)
    for name, (gpus, batch) in given.items():
        assert goodput(int(name), gpus, batch) == pytest.approx(best(int(name), gpus))


def test_larger_batches_come_with_larger_noise_and_with_more_gpus() -> None:
    rates = table(1)

    def batch(noise: float, gpus: int) -> int:
        return max(BATCHES, key=lambda b: rates["m", b][gpus] / seconds_factor(noise, b, 8))

    by_noise = [batch(noise, 8) for noise in (0.0, 3.0, 200.0, inf)]
    assert by_noise == sorted(by_noise)
    assert len(set(by_noise)) > 2
    job = elastic("a", 0, 1, 300.0, phases="0.3:8..64:3 0.3:8..64:200 0.4:8..64")
    outcome = simulate([job], Pollux(), "n1g8", table=rates)
    assert [int(e.detail.rsplit(" ", 1)[1]) for e in outcome.events if e.gpus][-1] == by_noise[-1]
    fixed = simulate([job], Pollux(batches=False), "n1g8", table=rates)
    assert outcome.of("a").finish_s < fixed.of("a").finish_s  # type: ignore[operator]
    check_outcome(outcome)


def test_a_job_that_changes_often_keeps_its_gpus() -> None:
    """The factor (age - changes x restart) / (age + restart): without charges jobs are resized more often."""
    rates = {("m", 8): {n: float(n) ** 0.9 for n in (1, 2, 4, 8)}}
    jobs = [elastic(f"{i}", 100.0 * i, 1, 900.0) for i in range(12)]
    resizes = [
        sum(
            record.resizes for record in simulate(jobs, Pollux(), "n1g8", table=rates, overheads=each).records
        )
        for each in (Overheads.none(), Overheads(launch_s=60.0))
    ]
    assert resizes[0] > resizes[1] > 0


@pytest.mark.parametrize("apart", [True, False])
def test_jobs_that_span_nodes_are_kept_apart(apart: bool) -> None:
    jobs = [Job(f"{i}", 0.0, gpus=3, duration_s=300.0) for i in range(4)]
    outcome = simulate(jobs, Pollux(apart=apart), "n4g4", placement="spread")
    users: dict[int, list[str]] = {}
    for event in outcome.events:
        if event.time_s == 0.0 and len(event.placement) > 1:
            for node, _ in event.placement:
                users.setdefault(node, []).append(event.job_id)
    assert (max(map(len, users.values())) == 1) == apart
    assert all(record.state == "finished" for record in outcome.records)


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


def seen_models() -> list[Job]:
    """A job of every model, so that all are seen before the others come. They end at once."""
    return [rigid(f"0{name}", 0, 1, 1.0, model=name) for name in "tmj"]


def lucid_run(jobs: list[Job], cluster: str, **params: Any) -> clustersim.Run:
    return clustersim.run(
        jobs, "lucid", cluster=cluster, overheads=None, sharing={"pairs": PAIRS}, estimates={"sigma": 0},
        params={"profile_nodes": 0, **params},
    )  # fmt: skip


def jobs_of(seed: int) -> list[Job]:
    return [*seen_models(), *drawn_jobs(seed, 60, 160, (1, 1, 2, 3, 4), (20, 400), from_s=10, model="tmj")]


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
    jobs = [*seen_models(), rigid("a", 10, 8, 100.0, model=one), rigid("b", 20, 8, 100.0, model=other)]
    start_s = {job.job_id: job.start_s for job in lucid_run(jobs, "n1g8").jobs}["b"]
    assert (start_s == 20) == (SCORE[one] + SCORE[other] <= 2)
