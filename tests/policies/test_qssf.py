"""QSSF: the order of predicted GPU time, and how it learns."""

from __future__ import annotations

from typing import Any

import pytest

import clustersim
from clustersim.testing import simulate
from policies.qssf import Qssf
from tests.builders import drawn_jobs, times
from traces.job import Job


def many(seed: int, count: int = 80) -> list[Job]:
    return drawn_jobs(seed, count, 120, (1, 2, 4), (80, 4000), user="abcd")


def plain(jobs: list[Job], gpus: int, size_of: Any) -> dict[str, tuple[float, float]]:
    """The rule in plain Python: (start, finish) by job. `size_of(job, ended)`: its key, `ended` the jobs that
    ended by its submission, in order of their ends.
    """
    waiting: list[tuple[float, int, Job]] = []
    running: list[tuple[float, int, Job]] = []
    ended: list[Job] = []
    found, arrivals = {}, list(enumerate(jobs))
    while arrivals or running:
        now = min([job.submit_s for _, job in arrivals[:1]] + [end for end, _, _ in running])
        for entry in sorted(entry for entry in running if entry[0] == now):
            running.remove(entry)
            ended.append(entry[2])
        while arrivals and arrivals[0][1].submit_s <= now:
            order, job = arrivals.pop(0)
            waiting.append((size_of(job, ended), order, job))
        waiting.sort(key=lambda entry: entry[:2])
        while waiting and (waiting[0][2].gpus or 0) <= gpus - sum(job.gpus or 0 for _, _, job in running):
            _, order, job = waiting.pop(0)
            running.append((now + (job.duration_s or 0.0), order, job))
            found[job.job_id] = now, now + (job.duration_s or 0.0)
    return found


def twice_the_last_run_time_of_the_user(job: Job, ended: list[Job]) -> float:
    """The predictor `last-two`, in plain Python."""
    last = [other.duration_s or 0.0 for other in ended if other.user == job.user][-2:]
    return (sum(last) / 2 if len(last) == 2 else 3600.0) * (job.gpus or 0)


@pytest.mark.parametrize("seed", range(4))
def test_with_perfect_estimates_it_is_shortest_service_first(seed: int) -> None:
    jobs = many(seed)
    expected = plain(jobs, 8, lambda job, _: job.duration_s * job.gpus)
    found = times(simulate(jobs, Qssf(), "n1g8", placement="any"))
    assert found == {job: pytest.approx(when) for job, when in expected.items()}


@pytest.mark.parametrize("seed", range(4))
def test_predictions_are_those_of_a_plain_rewrite(seed: int) -> None:
    jobs = many(seed)
    expected = plain(jobs, 8, twice_the_last_run_time_of_the_user)
    run = clustersim.run(
        jobs, "qssf", cluster="n1g8", placement="any", overheads=None, estimates={"predictor": "last-two"}
    )
    found = {record.job_id: (record.start_s, record.finish_s) for record in run.jobs}
    assert found == {job: pytest.approx(when) for job, when in expected.items()}
    assert run.manifest["oracle_used"] is False


def test_a_setting_of_the_run_replaces_its_predictor() -> None:
    jobs = many(0, 20)
    own = clustersim.run(jobs, "qssf", cluster="n1g8", params={"weight": 1.0})
    assert (own.manifest["estimates"]["weight"], own.manifest["estimates"]["predictor"]) == (1.0, "blend")
    truth = clustersim.run(jobs, "qssf", cluster="n1g8", estimates={"sigma": 0})
    assert truth.manifest["oracle_used"]
    assert "predictions" not in truth.summary
