"""Muri: groups by hand and by brute force. Lucid: scores, the order of service, and a plain rewrite."""

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
from tests.builders import drawn_jobs, rigid
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
