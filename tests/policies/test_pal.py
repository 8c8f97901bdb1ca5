"""PAL: a plain rewrite of its rule, brute force over placements, and what it gains."""

from __future__ import annotations

from itertools import product
from random import Random
from typing import Any

import pytest

import clustersim
from clustersim.records import ALLOCATES
from tests.builders import drawn_jobs, rigid
from traces.job import Job

NODES, SIZE = 4, 4
CLASSES = {"x": "heavy"}


def factors(seed: int) -> dict[str, list[float]]:
    random = Random(seed)
    return {name: [round(random.uniform(1, 2), 2) for _ in range(NODES)] for name in ("heavy", "other")}


def jobs_of(seed: int) -> list[Job]:
    return drawn_jobs(seed, 40, 240, (1, 1, 2, 3, 4, 6, 8), (50, 400), model="xy")


def run_of(jobs: list[Job], policy: str, by_class: Any, **params: Any) -> clustersim.Run:
    stated = {"classes": CLASSES, "factors": by_class}
    return clustersim.run(
        jobs, policy, cluster=f"n{NODES}g{SIZE}", overheads=None, placement="any", variability=stated,
        params=params,
    )  # fmt: skip


def cost(places: dict[int, int], slow: list[float], locality: float) -> float:
    fewest = -(-sum(places.values()) // SIZE)
    return max(slow[node] for node in places) * (locality if len(places) > fewest else 1.0)


def rewritten(
    jobs: list[Job], by_class: dict[str, list[float]], locality: float
) -> dict[str, tuple[float, dict[int, int]]]:
    """PAL over first come, first served in plain Python: (start, GPUs by node) by job."""
    slow_of = {job.job_id: by_class["heavy" if job.model == "x" else "other"] for job in jobs}
    free, found = dict.fromkeys(range(NODES), SIZE), {}
    arrivals, waiting, running = list(jobs), [], []
    while arrivals or waiting or running:
        now = min([job.submit_s for job in arrivals[:1]] + [end for end, _ in running])
        for end, job in [entry for entry in running if entry[0] == now]:
            running.remove((end, job))
            for node, count in found[job.job_id][1].items():
                free[node] += count
        while arrivals and arrivals[0].submit_s <= now:
            waiting.append(arrivals.pop(0))
        chosen: list[Job] = []
        while waiting and (waiting[0].gpus or 0) <= sum(free.values()) - sum(job.gpus or 0 for job in chosen):
            chosen.append(waiting.pop(0))

        def spread(job: Job) -> float:
            return max(slow_of[job.job_id]) / min(slow_of[job.job_id])

        for job in sorted(chosen, key=lambda job: (-spread(job), jobs.index(job))):
            slow, gpus = slow_of[job.job_id], job.gpus or 0
            order = sorted(free, key=lambda node: (slow[node], free[node], node))
            options = []
            together: dict[int, int] | None = {}
            for node in [node for node in order if free[node] == SIZE][: gpus // SIZE]:
                together[node] = SIZE
            if sum(together.values()) < gpus - gpus % SIZE:
                together = None
            elif gpus % SIZE:
                last = next((n for n in order if free[n] >= gpus % SIZE and n not in together), None)
                together = None if last is None else {**together, last: gpus % SIZE}
            if together is not None:
                options.append(together)
            anywhere: dict[int, int] = {}
            for node in order:
                if free[node] and sum(anywhere.values()) < gpus:
                    anywhere[node] = min(free[node], gpus - sum(anywhere.values()))
            options.append(anywhere)
            places = min(options, key=lambda at: (cost(at, slow, locality), sorted(at.items())))
            for node, count in places.items():
                free[node] -= count
            found[job.job_id] = now, places
            running.append((now + (job.duration_s or 0) * max(slow[node] for node in places), job))
    return found


@pytest.mark.parametrize("locality", [1.0, 1.2, 3.0])
@pytest.mark.parametrize("seed", range(3))
def test_every_start_is_that_of_a_plain_rewrite(seed: int, locality: float) -> None:
    jobs, by_class = jobs_of(seed), factors(seed)
    run = run_of(jobs, "pal", by_class, locality=locality)
    found = {e.job_id: (e.time_s, dict(e.placement)) for e in run.events if e.event in ALLOCATES}
    expected = rewritten(jobs, by_class, locality)
    assert found == {job: (pytest.approx(start), places) for job, (start, places) in expected.items()}


@pytest.mark.parametrize("seed", range(3))
def test_no_other_placement_costs_less(seed: int) -> None:
    """The first job of a cluster on which another one holds some GPUs, against all placements."""
    random, by_class = Random(seed), factors(seed)
    held = rigid("held", 0, random.choice((1, 5, 9)), 1000.0)
    for gpus in range(1, NODES * SIZE - (held.gpus or 0) + 1):
        run = run_of([held, rigid("new", 10, gpus, 10.0, model="x")], "pal", by_class, locality=1.3)
        places = {e.job_id: dict(e.placement) for e in run.events if e.event in ALLOCATES}
        free = [SIZE - places["held"].get(node, 0) for node in range(NODES)]
        possible = (
            {node: count for node, count in enumerate(counts) if count}
            for counts in product(*(range(n + 1) for n in free))
            if sum(counts) == gpus
        )
        slow = by_class["heavy"]
        least = min(cost(at, slow, 1.3) for at in possible)
        assert cost(places["new"], slow, 1.3) == pytest.approx(least)


@pytest.mark.parametrize("order", ["fifo", "las", "srtf"])
def test_with_equal_nodes_jobs_run_when_the_base_policy_runs_them(order: str) -> None:
    jobs = jobs_of(1)
    equal = {"heavy": [1.0] * NODES}
    one, other = run_of(jobs, order, equal), run_of(jobs, "pal", equal, order=order)
    assert [job.finish_s for job in one.jobs] == [job.finish_s for job in other.jobs]
