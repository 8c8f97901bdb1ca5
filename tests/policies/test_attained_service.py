"""Policies that know of a job only what it has attained: las, tiresias, gittins."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import clustersim
from clustersim.overheads import Overheads
from clustersim.testing import simulate
from policies.gittins import Gittins, gittins_index
from policies.las import Las
from policies.qssf import Qssf
from policies.tiresias import Tiresias
from tests.builders import drawn_jobs, rigid, times
from tests.effort import examples
from traces.job import Job

# Least attained service


@given(st.integers(2, 6), st.integers(1, 60), st.integers(1, 500))
@settings(max_examples=examples(40), deadline=None)
def test_las_shares_one_gpu_to_within_a_quantum(jobs: int, quantum_s: int, until_s: int) -> None:
    long = [rigid(str(i), 0, 1, 1000) for i in range(jobs)]
    outcome = simulate(long, Las(quantum_s=quantum_s), "n1g1", until_s=until_s)
    attained = [record.gpu_seconds for record in outcome.records]
    assert sum(attained) == pytest.approx(until_s)
    assert max(attained) - min(attained) <= quantum_s + 1e-6


@pytest.mark.parametrize("policy", [Las, Gittins])
def test_restarts_longer_than_a_round_leave_time_for_work(policy: type[Las] | type[Gittins]) -> None:
    """Every turn does at least a quantum of work, so that there are at most work / quantum of them."""
    charged = Overheads(launch_s=300.0, plain_restart_s=300.0)
    jobs = [rigid(str(i), i, 1, 100) for i in range(3)]
    outcome = simulate(jobs, policy(quantum_s=20), "n1g1", overheads=charged)
    assert all(record.state == "finished" for record in outcome.records)
    assert 0 < sum(record.preemptions for record in outcome.records) <= 3 * 100 / 20


# Three jobs on two GPUs, (GPUs, seconds) = (2, 2), (1, 8), (2, 6), all submitted at once: the example in
# section 3 of Tiresias (Gu et al., NSDI 2019). All times asserted are derived here by hand from the rules.


@pytest.mark.parametrize("order", ["start", "submission"])
@pytest.mark.parametrize("knob", [None, 1, 8])
def test_tiresias_ends_where_a_start_takes_longer_than_the_first_queue(
    order: str, knob: float | None
) -> None:
    """Only work counts as service, so that a job does not fall before it has worked. By start, every turn in
    the first queue does 10 s of work.
    """
    charged = Overheads(launch_s=30.0, plain_restart_s=70.0)
    jobs = [rigid(f"{i:02}", 10 * i, 8, 300) for i in range(20)]
    policy = Tiresias(thresholds_gpu_s=[80], promote_knob=knob, order=order)
    outcome = simulate(jobs, policy, "n1g8", overheads=charged)
    assert all(record.state == "finished" for record in outcome.records)
    most = 20 * 300 / 10 * (1 if order == "start" else 2)
    assert sum(record.preemptions for record in outcome.records) <= most


# The Gittins index


def test_index_of_a_known_size_is_one_over_what_is_left() -> None:
    assert gittins_index(4.0, np.array([10.0])) == pytest.approx(1 / 6)


def test_index_of_exponential_sizes_does_not_change() -> None:
    """Without memory, the index is the rate: 1 / mean."""
    quantiles = -50.0 * np.log1p(-(np.arange(20_000) + 0.5) / 20_000)
    for attained in (0.0, 20.0, 100.0):
        assert gittins_index(attained, quantiles, least_size=5) == pytest.approx(1 / 50, rel=0.03)


def test_index_beyond_all_sizes() -> None:
    assert gittins_index(12.0, np.array([4.0, 12.0])) == 0.0
    assert gittins_index(0.0, np.array([])) == 0.0


@given(
    st.lists(st.integers(1, 50), min_size=1, max_size=12),
    st.floats(0, 49.9),
    st.floats(0.01, 30),
    st.lists(st.floats(0.01, 60), max_size=30),
)
def test_index_is_the_supremum(sizes: list[int], attained: float, least: float, spans: list[float]) -> None:
    """By the definition, expectation by expectation: reached somewhere, and nowhere exceeded."""
    left = [size - attained for size in sizes if size > attained]

    def efficiency(span: float) -> float:
        return sum(s <= span for s in left) / sum(min(s, span) for s in left)

    index = gittins_index(attained, np.sort(np.array(sizes, dtype=float)), least)
    if not left:
        assert index == 0.0
        return
    assert index == pytest.approx(max(efficiency(max(least, span)) for span in left))
    assert all(efficiency(max(least, span)) <= index * (1 + 1e-9) for span in spans)


# QSSF


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
