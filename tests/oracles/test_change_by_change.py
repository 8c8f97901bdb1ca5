"""Whole schedules of Themis against a plain one in exact fractions: every change of GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import product
from math import ceil, exp, log
from random import Random

import pytest

from clustersim.testing import simulate
from policies.themis import Themis
from traces.job import Job

Shares = dict["Plain", int]


@dataclass(eq=False)
class Plain:
    """A job that asks for `asked` GPUs, with `left` units to do at `speeds` by GPU count."""

    order: int
    submit: Fraction
    asked: int
    work: Fraction
    speeds: Mapping[int, Fraction]
    left: Fraction = Fraction(0)
    gpus: int = 0
    crowd: Fraction = Fraction(0)  # integral of the number of jobs over its time here
    changes: list[tuple[float, int]] = field(default_factory=list)

    def time(self, gpus: int) -> Fraction:
        return self.left / self.speeds[gpus]


def schedule(jobs: Sequence[Plain], gpus: int, rule: PlainThemis) -> list[list[tuple[float, int]]]:
    todo, here, t = list(jobs), list[Plain](), Fraction(0)
    while todo or here:
        times = [t + job.time(job.gpus) for job in here if job.gpus] + [job.submit for job in todo[:1]]
        if here and rule.ends is not None and rule.ends > t:
            times.append(rule.ends)
        passed, t = min(times) - t, min(times)
        for job in here:
            job.left -= passed * job.speeds.get(job.gpus, 0)
            job.crowd += passed * len(here)
        for job in [job for job in here if not job.left]:
            here.remove(job)
            job.changes.append((float(t), 0))
        while todo and todo[0].submit == t:
            here.append(todo.pop(0))
            here[-1].left = here[-1].work
        shares = rule.decided(t, here, gpus)
        for job in here:
            if shares.get(job, 0) != job.gpus:
                job.gpus = shares.get(job, 0)
                job.changes.append((float(t), job.gpus))
    return [job.changes for job in jobs]


class PlainThemis:
    """rho by its definition, the auction by looking at all outcomes (NSDI 2020, sections 3 and 5). All GPUs
    are auctioned at the beginning of a round, those that are free whenever jobs come or end.
    """

    def __init__(self, fairness: float, lease_s: Fraction):
        self.fairness, self.round_s = fairness, lease_s
        self.ends: Fraction | None = None

    def decided(self, t: Fraction, jobs: Sequence[Plain], gpus: int) -> Shares:
        if self.ends is not None and t < self.ends and any(job.gpus for job in jobs):
            return self.kept(t, jobs, gpus)
        self.ends = t + self.round_s
        return self.auctioned(t, jobs, gpus, len(jobs))

    def rho(self, job: Plain, gpus: int, t: Fraction, present: int) -> float:
        elapsed = t - job.submit
        crowd = job.crowd / elapsed if elapsed else present
        left = job.time(gpus) if gpus else job.time(job.asked) + self.round_s
        return float((elapsed + left) / (job.work / job.speeds[job.asked] * max(1, crowd)))

    def kept(self, t: Fraction, jobs: Sequence[Plain], gpus: int) -> Shares:
        leased = {job: job.gpus for job in jobs if job.gpus}
        idle = [job for job in jobs if not job.gpus]
        return leased | self.auctioned(t, idle, gpus - sum(leased.values()), len(jobs))

    def auctioned(self, t: Fraction, jobs: Sequence[Plain], gpus: int, present: int) -> Shares:
        line = sorted(jobs, key=lambda job: (-self.rho(job, 0, t, present), job.order))
        bidders = line[: ceil(round((1 - self.fairness) * len(line), 9))]
        bids = [
            {0: -1e4 if i else -1e5} | {n: -log(self.rho(job, n, t, present)) for n in sizes(job)}
            for i, job in enumerate(bidders)
        ]
        total, won = best_of_all(bids, gpus)
        held: Shares = {}
        for i, job in enumerate(bidders):
            if won[i]:
                without, _ = best_of_all(bids[:i] + bids[i + 1 :], gpus)
                kept = won[i] * exp(min(0.0, total - bids[i][won[i]] - without))
                held[job] = max((n for n in sizes(job) if n <= kept + 1e-6), default=sizes(job)[0])
        gpus -= sum(held.values())
        for job in [*line[len(bidders) :], *bidders]:
            more = max((n for n in sizes(job) if n <= held.get(job, 0) + gpus), default=0)
            gpus -= more - held.get(job, 0)
            held[job] = more
        return held


def sizes(job: Plain) -> list[int]:
    return [size for size in sorted(job.speeds) if size <= job.asked]


def best_of_all(bids: Sequence[Mapping[int, float]], gpus: int) -> tuple[float, tuple[int, ...]]:
    """The largest sum of values; of equal ones that which gives the last bidders fewest."""
    sums = [
        (sum(bid[n] for bid, n in zip(bids, counts, strict=True)), counts)
        for counts in product(*bids)
        if sum(counts) <= gpus
    ]
    most = max(total for total, _ in sums)
    return most, min((counts for total, counts in sums if total > most - 1e-9), key=lambda c: c[::-1])


def drawn(random: Random) -> tuple[int, dict[str, dict[int, Fraction]], list[tuple[str, Plain]]]:
    """GPUs, speeds by model, and up to 7 jobs with their models; amounts of work that tie nowhere."""
    gpus = random.choice((1, 2, 4, 6, 8))
    usable, speeds = [size for size in (1, 2, 3, 4, 8) if size <= gpus], {}
    for model in "xyz":
        speed, speeds[model] = Fraction(random.randint(1, 20), 10), dict[int, Fraction]()
        for size in sorted(random.sample(usable, random.randint(1, min(3, len(usable))))):
            speeds[model][size] = speed
            speed *= 1 + Fraction(random.randint(1, 10), 10)
    now, jobs = Fraction(0), []
    for i in range(random.randint(1, 7)):
        now += random.choice((Fraction(0), Fraction(random.randint(1, 300), 10)))
        model, work = random.choice("xyz"), Fraction(random.randint(100, 90_000), 997)
        jobs.append((model, Plain(i, now, random.choice(list(speeds[model])), work, speeds[model])))
    return gpus, speeds, jobs


def test_every_job_holds_what_the_plain_rule_says() -> None:
    for seed in (*range(25), 132):  # the last one was once wrong
        random = Random(seed)
        gpus, speeds, jobs = drawn(random)
        round_s, fairness = random.choice((1, 5, 20)), random.choice((0.0, 0.5, 0.8, 1.0))
        rule, policy = PlainThemis(fairness, Fraction(round_s)), Themis(fairness, float(round_s))
        table = {(model, 8): {n: float(x) for n, x in curve.items()} for model, curve in speeds.items()}
        trace = [
            Job(str(job.order), float(job.submit), model=model, global_batch=8, gpus=job.asked,
                iterations=float(job.work))
            for model, job in jobs
        ]  # fmt: skip
        outcome = simulate(trace, policy, f"n1g{gpus}", table=table, placement="any")
        for job, changes in enumerate(schedule([job for _, job in jobs], gpus, rule)):
            mine = [entry for entry in outcome.log() if entry[2] == str(job) and entry[1] != "submit"]
            assert [entry[3] for entry in mine] == [n for _, n in changes], f"seed {seed}, job {job}"
            assert [entry[0] for entry in mine] == pytest.approx([t for t, _ in changes], abs=1e-5)
