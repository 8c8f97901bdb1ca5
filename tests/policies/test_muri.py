"""Muri: groups by hand and by brute force, stability, and what it gains."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

import clustersim
from clustersim.cluster import SharedPlacement
from clustersim.overheads import Overheads
from clustersim.records import ALLOCATES
from clustersim.speed import Interference
from tests.builders import rigid
from traces.job import Job

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
