"""QSSF: the order of predicted GPU time, and how it learns."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

import clustersim
from clustersim.testing import simulate
from policies.qssf import Qssf
from tests.builders import rigid, times
from traces.job import Job


def many(seed: int, count: int = 80) -> list[Job]:
    """Jobs of four users, each of which has run times of its own."""
    random, now, jobs = Random(seed), 0.0, []
    for i in range(count):
        now += random.expovariate(1 / 30)
        user = random.choice("abcd")
        run_s = 100.0 * (1 + 10 * "abcd".index(user)) * random.uniform(0.8, 1.25)
        jobs.append(rigid(f"j{i}", now, random.choice((1, 2, 4)), run_s, user=user))
    return jobs


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


def test_a_user_with_short_jobs_goes_first() -> None:
    """By hand, on one GPU. `a` and `b` teach that jobs of `x` take 10 s and those of `y` 100 s. While `c`
    runs, `d` of `y`, in truth the shorter, and then `e` of `x` arrive: `e` is expected to be shorter.
    """
    jobs = [
        rigid("a", 0, 1, 10, user="x"),
        rigid("b", 0, 1, 100, user="y"),
        rigid("c", 120, 1, 50, user="z"),
        rigid("d", 130, 1, 5, user="y"),
        rigid("e", 140, 1, 20, user="x"),
    ]
    run = clustersim.run(jobs, "qssf", cluster="n1g1", overheads=None)
    starts = {record.job_id: record.start_s for record in run.jobs}
    assert starts == {"a": 0, "b": 10, "c": 120, "e": 170, "d": 190}
    assert run.manifest["estimates"]["predictor"] == "blend"
    assert run.summary["predictions"]["cold_starts"] == 2


def test_it_beats_first_come_first_served_where_users_repeat_themselves() -> None:
    jobs = many(1, 300)
    waits = {
        policy: clustersim.run(jobs, policy, cluster="n1g8", overheads=None).summary["jct_mean_s"]
        for policy in ("fifo", "qssf", "sjf")
    }
    assert waits["qssf"] < 0.8 * waits["fifo"]


def test_a_setting_of_the_run_replaces_its_predictor() -> None:
    jobs = many(0, 20)
    own = clustersim.run(jobs, "qssf", cluster="n1g8", params={"weight": 1.0})
    assert own.manifest["estimates"]["weight"] == 1.0
    truth = clustersim.run(jobs, "qssf", cluster="n1g8", estimates={"sigma": 0})
    assert truth.manifest["oracle_used"]
    assert "predictions" not in truth.summary
