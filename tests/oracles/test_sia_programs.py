"""Sia's decisions in whole runs against all assignments, by the costs that `docs/policies/sia.md` states."""

from collections import Counter
from itertools import product
from random import Random
from typing import Any

import pytest

from clustersim.overheads import Overheads
from clustersim.scheduler import JobView, Proposal, State
from clustersim.testing import simulate
from policies.sia import Sia
from traces.job import Job


class WatchedSia(Sia):
    """Compares each program's decision with every other one that fits."""

    def __init__(self, **settings: Any):
        super().__init__(gap=0.0, search_nodes=100_000, **settings)
        self.changed: Counter[JobView] = Counter()
        self.solves, self.compared = False, 0

    def _assigned(self, *arguments: Any) -> Any:
        self.solves = True
        return super()._assigned(*arguments)

    def schedule(self, state: State) -> Proposal:
        self.solves, fixed = False, state.unsettled()
        proposal = super().schedule(state)
        if self.solves:
            jobs = [job for job in (*state.running, *state.pending) if job not in fixed]
            room = state.in_service - sum(job.gpus for job in fixed)
            mine = sum(self.cost(job, proposal.gpus(job), state.now) for job in jobs)
            for counts in product(*((0, *job.sizes) for job in jobs)):
                if sum(counts) <= room:
                    other = sum(self.cost(job, n, state.now) for job, n in zip(jobs, counts, strict=True))
                    assert mine <= other + 1e-6
            self.compared += 1
        self.changed.update(job for job in state.running if proposal.gpus(job) not in (0, job.gpus))
        return proposal

    def cost(self, job: JobView, gpus: int, now: float) -> float:
        """Beside that of waiting: normalised speed x restart factor, to the power p."""
        if not gpus:
            return 0.0
        speed = job.rate(gpus) / min(job.rate(size) for size in job.sizes)
        if job.gpus not in (0, gpus):
            age_s, restart_s = now - job.submit_s, job.restart_s(gpus)
            if age_s >= restart_s:
                speed *= max(0.0, age_s - self.changed[job] * restart_s) / max(age_s + restart_s, 1e-9)
        keeping = 0.01 if job.gpus == gpus else 0.0
        return speed**self.power - self.waiting_cost - keeping if speed > 0 else 1e9


def some_curve(random: Random, gpus: int) -> dict[int, float]:
    sizes = [size for size in (1, 2, 3, 4, 8) if size <= gpus]
    rate, curve = random.uniform(0.5, 3), {}
    for size in sorted(random.sample(sizes, random.randint(1, min(3, len(sizes))))):
        curve[size] = rate
        rate *= random.uniform(1.05, 1.9)
    return curve


@pytest.mark.parametrize("restart_s", [0.0, 5.0, 60.0])
def test_every_decision_is_an_optimum(restart_s: float) -> None:
    compared = 0
    for seed in range(5):
        random = Random(seed)
        gpus, now, jobs = random.choice((2, 4, 6, 8)), 0.0, []
        table = {(model, 8): some_curve(random, gpus) for model in "xyz"}
        for i in range(random.randint(2, 6)):
            now += random.choice((0.0, random.uniform(0, 200)))
            model, work = random.choice("xyz"), random.uniform(50, 800)
            asked = random.choice(list(table[model, 8]))
            jobs.append(Job(str(i), now, model=model, global_batch=8, gpus=asked, iterations=work))
        policy = WatchedSia(
            round_s=random.choice((5.0, 30.0)), power=random.choice((-0.5, -1.0, -0.1)),
            waiting_cost=random.choice((1.1, 2.0)),
        )  # fmt: skip
        charged = Overheads(launch_s=restart_s, plain_restart_s=restart_s)
        simulate(jobs, policy, f"n1g{gpus}", table=table, placement="any", overheads=charged)
        compared += policy.compared
    assert compared > 20
