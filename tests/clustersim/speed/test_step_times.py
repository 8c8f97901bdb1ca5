"""How much slower than predicted jobs run: closed forms, laws, whole runs, and measured mini-batches."""

from __future__ import annotations

import csv
import gzip
from collections import defaultdict
from math import pi, sqrt
from statistics import fmean, stdev
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import clustersim
from clustersim.analysis import gpu_time
from clustersim.records import Run
from clustersim.speed import StepTimes
from clustersim.speed.step_times import expected_maximum
from tests.builders import rigid
from tests.places import SHARED
from traces.job import Job

MIX = [
    *(rigid(f"r{i}", 40.0 * i, 2 + 2 * (i % 3), 300.0 - 20 * i) for i in range(6)),
    *(
        Job(f"m{i}", 70.0 * i, model="megatron-1.7b", gpus=8, global_batch=64, iterations=200.0)
        for i in range(5)
    ),
]
ALIBABA = SHARED / "data" / "clusters" / "alibaba"


def alone(step_time: dict[str, float], gpus: int = 8, **more: Any) -> Run:
    jobs = [rigid("a", 0, gpus, 100.0)]
    return clustersim.run(jobs, "fifo", cluster="n2g8", overheads=None, step_time=step_time, **more)


@pytest.mark.parametrize(
    ("n", "mean"),
    [(1, 0.0), (2, 1 / sqrt(pi)), (3, 1.5 / sqrt(pi)), (5, 1.16296), (10, 1.53875), (100, 2.50759)],
)
def test_expected_maximum_of_normal_variables(n: int, mean: float) -> None:
    """Closed forms to three; Harter, "Expected values of normal order statistics", 1961, beyond."""
    assert expected_maximum(n) == pytest.approx(mean, abs=1e-5)


@given(st.integers(1, 10_000), st.integers(1, 10_000))
def test_more_workers_wait_longer_for_the_slowest(one: int, other: int) -> None:
    assert expected_maximum(min(one, other)) <= expected_maximum(max(one, other)) + 1e-12


def test_a_job_takes_as_much_longer_as_is_stated() -> None:
    assert alone({"slowdown": 1.25}).summary["makespan_s"] == pytest.approx(125.0)
    unequal = alone({"slowdown": 1.25, "worker_cv": 0.1}, gpus=2)
    assert unequal.summary["makespan_s"] == pytest.approx(125.0 * (1 + 0.1 / sqrt(pi)))
    assert alone({"worker_cv": 0.1}, gpus=1).summary["makespan_s"] == 100.0
    assert unequal.jobs[0].isolated_s == 100.0  # as predicted
    assert unequal.manifest["step_time"] == {"slowdown": 1.25, "spread": 0.0, "worker_cv": 0.1}


@given(st.floats(1, 5), st.floats(0, 5), st.floats(0, 1), st.integers(1, 4096), st.text(), st.integers(0, 99))
def test_no_job_is_faster_than_predicted(
    slowdown: float, spread: float, cv: float, gpus: int, job_id: str, seed: int
) -> None:
    times = StepTimes(slowdown, spread, cv)
    factor = times.factor(job_id, gpus, seed)
    assert factor >= 1.0
    assert factor == StepTimes.of(times.stated()).factor(job_id, gpus, seed)


def test_the_spread_is_about_the_stated_mean() -> None:
    times = StepTimes(slowdown=1.2, spread=0.5)
    excess = [times.factor(f"job {i}", 8, 1) - 1 for i in range(20_000)]
    assert fmean(excess) == pytest.approx(0.2, rel=0.015)  # four standard errors
    assert stdev(excess) == pytest.approx(0.1, rel=0.06)
    assert times.factor("job 0", 8, 2) != times.factor("job 0", 8, 1) == times.factor("job 0", 64, 1)


def test_a_policy_sees_predicted_speeds_and_true_progress() -> None:
    """Under fifo nothing depends on it; srtf lets the job run on that it takes for the shorter one."""
    jobs = [rigid("a", 0, 8, 100.0), rigid("b", 50, 8, 51.0)]
    found = clustersim.run(jobs, "srtf", cluster="n1g8", overheads=None, step_time={"slowdown": 1.5})
    times = [(e.time_s, e.event, e.job_id) for e in found.events if e.event in ("start", "preempt", "finish")]
    # At 50 s a third of `a` is done: 66.7 s are left by prediction, and `b` is shorter.
    assert times == [
        (0, "start", "a"), (50, "preempt", "a"), (50, "start", "b"), (126.5, "finish", "b"),
        (226.5, "finish", "a"),
    ]  # fmt: skip


def test_time_beyond_the_plans_own_has_a_place_of_its_own() -> None:
    found = clustersim.run(MIX[6:7], "fifo", cluster="n1g8", overheads=None, step_time={"slowdown": 1.25})
    shares = gpu_time(found)
    assert shares is not None
    assert shares.seconds["network"] / shares.total == pytest.approx(0.2)


# Alibaba's mini-batches (PAI 2020): ten workers of two jobs


def steps(job: int) -> list[list[float]]:
    """The times of the workers, by step; steps with ten workers."""
    path = ALIBABA / f"minibatch_job_{job}.csv.gz"
    if not path.exists():
        pytest.skip(f"needs {path}, which is not part of this project")
    found = defaultdict[str, list[float]](list)
    with gzip.open(path, "rt", newline="") as file:
        for row in csv.DictReader(file):
            found[row["time"]].append(float(row["batch_time_norm"]))
    return [times for times in found.values() if len(times) == 10]


@pytest.mark.parametrize("job", [1, 2])
def test_the_slowest_of_ten_measured_workers(job: int) -> None:
    """The formula gives the mean of the slowest from the coefficient of variation alone, within 2 % of it."""
    measured = steps(job)
    slowest = fmean(max(times) / fmean(times) for times in measured)
    cv = sqrt(fmean((stdev(times) / fmean(times)) ** 2 for times in measured))
    assert StepTimes(worker_cv=cv).factor("any", 10, 0) == pytest.approx(slowest, rel=0.02)
    assert slowest > 1.1
