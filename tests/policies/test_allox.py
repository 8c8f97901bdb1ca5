"""AlloX: the least total completion time on several GPU types, tenants in turn, and gangs."""

from __future__ import annotations

from itertools import product
from math import inf
from random import Random
from typing import Any

import pytest

from clustersim.testing import Outcome, simulate
from policies.allox import Allox
from tests.builders import MixedBench, drawn_jobs, rigid, starts
from traces.job import Job

Rates = dict[str, dict[str, float]]


def run_mixed(nodes: dict[str, int], rates: Rates, jobs: list[Job]) -> Outcome:
    """On nodes of one GPU. `rates`: iterations/s by model and GPU type."""
    tables = {
        name: {(model, 1): {1: by_type[name]} for model, by_type in rates.items() if name in by_type}
        for name in nodes
    }
    return MixedBench([(name, count, 1) for name, count in nodes.items()], tables).run(jobs, Allox())


def job(model: str, iterations: float = 100.0, submit_s: float = 0.0, **more: Any) -> Job:
    return Job(model, submit_s, model=model, global_batch=1, gpus=1, iterations=iterations, **more)


def least_total_s(run_s: list[dict[str, float]], nodes: dict[str, int]) -> float:
    """Over every choice of a GPU for each job; on one GPU the shortest first is best."""
    gpus = [name for name, count in nodes.items() for _ in range(count)]
    best = inf
    for chosen in product(range(len(gpus)), repeat=len(run_s)):
        total = 0.0
        for gpu, name in enumerate(gpus):
            clock = 0.0
            for seconds in sorted(run[name] for run, mine in zip(run_s, chosen, strict=True) if mine == gpu):
                clock += seconds
                total += clock
        best = min(best, total)
    return best


@pytest.mark.parametrize("seed", range(10))
def test_no_schedule_of_jobs_that_are_all_present_has_a_smaller_mean(seed: int) -> None:
    """Up to six jobs of one GPU on three or four GPUs of two or three types."""
    random = Random(seed)
    nodes = random.choice(({"fast": 1, "slow": 2}, {"a": 1, "b": 1, "c": 1}, {"fast": 2, "slow": 1}))
    rates = {f"m{i}": {name: random.uniform(0.2, 5.0) for name in nodes} for i in range(random.randint(2, 6))}
    picky = random.choice(list(rates))
    rates[picky].pop(next(iter(nodes)))
    outcome = run_mixed(nodes, rates, [job(model) for model in rates])
    run_s = [{name: 100.0 / by_type.get(name, 1e-9) for name in nodes} for by_type in rates.values()]
    total = sum(record.finish_s or inf for record in outcome.records)
    assert total == pytest.approx(least_total_s(run_s, nodes), rel=1e-6)


def crowd() -> list[Job]:
    """Tenant `many` has short jobs all the time, `few` one long job in the queue from the start."""
    jobs = [rigid(f"m{i}", 10.0 * i, 1, 20.0, tenant="many") for i in range(40)]
    return [*jobs, rigid("few", 0.0, 1, 100.0, tenant="few")]


def test_the_least_served_tenants_come_first() -> None:
    """With half of two tenants the long job starts second, without the rule it waits for the last."""
    fair, plain = (starts(simulate(crowd(), Allox(alpha=alpha), "n1g1"))["few"] for alpha in (0.5, 1.0))
    assert fair is not None
    assert plain is not None
    assert fair <= 20.0
    assert plain == 800.0


def test_a_window_of_all_jobs_or_more_is_the_same() -> None:
    """And a small one is no worse here than by a fifth."""
    jobs = drawn_jobs(1, 60, 32, (1, 2, 4), (5, 200))
    means = {
        window: sum(record.jct_s or inf for record in simulate(jobs, Allox(window=window), "n1g8").records)
        for window in (60, 2000, 5)
    }
    assert means[60] == means[2000]
    assert means[5] <= 1.2 * means[60]
