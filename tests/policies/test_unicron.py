"""Unicron: divisions by hand, all divisions in whole runs, and throughput kept under failures."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from random import Random

import pytest

from clustersim.overheads import Overheads
from clustersim.scheduler import JobView
from clustersim.testing import simulate
from policies.unicron import Unicron
from tests.builders import elastic

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
