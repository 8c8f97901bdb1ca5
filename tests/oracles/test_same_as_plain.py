"""Rules that look at no more jobs than needed decide like plain rules that look at every job."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest

from clustersim.overheads import Overheads
from clustersim.scheduler import JobView, Proposal, Scheduler, State
from clustersim.testing import simulate
from policies.afs import Afs
from policies.hesrpt import HeSrpt, fractions
from policies.max_min import MaxMin
from policies.optimus import Optimus, loss_per_gpu
from traces.job import Job

Shares = dict[JobView, int]
TABLE = {
    ("small", 64): {1: 1.0, 2: 1.9, 4: 3.4, 8: 5.5, 16: 8.0},
    ("even", 64): {1: 0.5, 2: 1.0, 4: 2.0, 8: 2.5},  # the first steps double the speed
    ("large", 64): {4: 1.0, 8: 1.8, 16: 3.0},
}


def steps(jobs: Sequence[JobView], gpus: int, price: Callable[[JobView, int, int], float]) -> Shares:
    """Of all next steps of all jobs the cheapest; a job with too few GPUs left for its step is skipped."""
    held: Shares = dict.fromkeys(jobs, 0)
    growing = list(jobs)
    while growing:
        job = min(growing, key=lambda job: (price(job, held[job], following(job, held[job])), job.order))
        size = following(job, held[job])
        if size - held[job] > gpus or size == job.sizes[-1]:
            growing.remove(job)
        if size - held[job] <= gpus:
            gpus -= size - held[job]
            held[job] = size
    return {job: n for job, n in held.items() if n}


def following(job: JobView, held: int) -> int:
    return next(size for size in job.sizes if size > held)


def hesrpt_rule(jobs: Sequence[JobView], gpus: int) -> Shares:
    """The fractions one by one, rounded down but not to nothing, while shorter jobs have not overdrawn; what
    is left over to the shortest.
    """
    line = sorted(jobs, key=lambda job: (job.sizes[0] * job.oracle_remaining(job.sizes[0]), job.order))
    shares: Shares = dict.fromkeys(line, 0)
    due = 0.0
    for job, fraction in zip(line, reversed(fractions(len(line), 0.6)), strict=True):
        due += fraction * gpus
        left = gpus - sum(shares.values())
        useful = [size for size in job.sizes if size <= left and (size <= due + 1e-9 or size == job.sizes[0])]
        if due > 1e-9 and useful:
            shares[job] = useful[-1]
            due -= useful[-1]
    left = gpus - sum(shares.values())
    for job in line:
        size = max((size for size in job.sizes if size <= shares[job] + left), default=0)
        left -= size - shares[job]
        shares[job] = size
    return {job: n for job, n in shares.items() if n}


def afs_rule(jobs: Sequence[JobView], gpus: int) -> Shares:
    """The paper's scan, with the shortest of the jobs without GPUs that fit on their smallest size."""
    held: Shares = dict.fromkeys(jobs, 0)
    while True:
        able = [j for j in jobs if held[j] < j.sizes[-1] and following(j, held[j]) - held[j] <= gpus]
        idle = [job for job in able if not held[job]]
        shortest = min(idle, key=lambda job: (job.oracle_remaining(job.sizes[0]), job.order), default=None)
        able = [job for job in able if held[job] or job is shortest]
        if not able:
            return {job: n for job, n in held.items() if n}
        best = able[0]
        for job in able[1:]:
            best = better(best, job, held)
        gpus -= following(best, held[best]) - held[best]
        held[best] = following(best, held[best])


def better(one: JobView, other: JobView, held: Shares) -> JobView:
    def end(job: JobView) -> tuple[bool, float]:
        return (not held[job], job.oracle_remaining(held[job] or job.sizes[0]))

    def speeds(job: JobView) -> tuple[float, float]:
        speed, size = job.rate(held[job]) if held[job] else 0.0, following(job, held[job])
        return speed, speed + (job.rate(size) - speed) / (size - held[job])

    a, b = (other, one) if end(other) < end(one) else (one, other)
    (p_a, more_a), (p_b, more_b) = speeds(a), speeds(b)
    return b if (more_b - p_b) / more_b > (more_a - p_a) / p_a else a


RULES: list[tuple[Callable[[], Scheduler], Callable[[Sequence[JobView], int], Shares]]] = [
    (Optimus, lambda jobs, gpus: steps(jobs, gpus, lambda j, h, s: loss_per_gpu(j, h, s))),
    (MaxMin, lambda jobs, gpus: steps(jobs, gpus, lambda job, held, size: size)),
    (lambda: HeSrpt(round_s=0.0), hesrpt_rule),
    (Afs, afs_rule),
]


def overload(seed: int) -> list[Job]:
    """Far more than 16 GPUs can do: dozens of jobs wait."""
    random, now, jobs = Random(seed), 0.0, []
    for i in range(80):
        now += random.choice((0.0, random.expovariate(1 / 60)))
        model = random.choice(("small", "even", "large"))
        gpus = random.choice(list(TABLE[model, 64]))
        work = random.choice((100.0, random.uniform(20, 1500)))
        jobs.append(Job(f"{i}", now, model=model, global_batch=64, gpus=gpus, iterations=work))
    return jobs


@pytest.mark.parametrize(("policy", "rule"), RULES)
@pytest.mark.parametrize("seed", [1, 2])
def test_shares_are_those_of_the_plain_rule(
    policy: Callable[[], Scheduler], rule: Any, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[int] = []
    run = Proposal.run

    def compare(proposal: Proposal, shares: Shares, **options: bool) -> Shares:
        state = State(proposal._facts)
        jobs = sorted([*state.running, *state.pending], key=lambda job: job.order)
        assert shares == rule(jobs, state.in_service)
        compared.append(len(state.pending))
        return run(proposal, shares, **options)

    monkeypatch.setattr(Proposal, "run", compare)
    overheads = Overheads(launch_s=2.0, plain_restart_s=3.0)
    simulate(overload(seed), policy(), "n4g4", table=TABLE, overheads=overheads)
    assert len(compared) > 15
    assert max(compared) > 15, "the trace is to keep many waiting"
