"""Lucid: scores, the order of service, profiles, and a plain rewrite."""

from __future__ import annotations

from typing import Any

import pytest

import clustersim
from tests.builders import drawn_jobs, rigid
from traces.job import Job

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


def run_of(jobs: list[Job], cluster: str, **params: Any) -> clustersim.Run:
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
    found = {job.job_id: (job.start_s, job.finish_s) for job in run_of(jobs, "n1g8", capacity=capacity).jobs}
    expected = rewritten(jobs, 8, capacity)
    assert found == {job: pytest.approx(when, abs=1e-4) for job, when in expected.items()}


@pytest.mark.parametrize(("one", "other"), [(a, b) for a in "tmj" for b in "tmj"])
def test_jobs_share_if_their_scores_allow_it(one: str, other: str) -> None:
    jobs = [*first(), rigid("a", 10, 8, 100.0, model=one), rigid("b", 20, 8, 100.0, model=other)]
    start_s = {job.job_id: job.start_s for job in run_of(jobs, "n1g8").jobs}["b"]
    assert (start_s == 20) == (SCORE[one] + SCORE[other] <= 2)
