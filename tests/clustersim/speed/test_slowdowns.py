"""Jobs slower than predicted, and GPUs of one type that are not equally fast: closed forms, laws,
measurements.
Whole runs are in `schedules/slowdowns.yaml`, falsified ones in `audit/forgeries`.
"""

import csv
import gzip
from collections import defaultdict
from math import exp, log, pi, sqrt
from pathlib import Path
from statistics import NormalDist, fmean, stdev
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import clustersim
from clustersim.analysis import gpu_time
from clustersim.cluster import Cluster
from clustersim.speed import NodeSpeeds, StepTimes, Variability
from clustersim.speed.step_times import expected_maximum
from tests.builders import rigid
from tests.places import SHARED
from traces.job import Job

ALIBABA = SHARED / "data" / "clusters" / "alibaba"


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


@pytest.mark.parametrize(
    ("name", "stated"),
    [("step_time", {"slowdown": 1.25}), ("variability", {"factors": {"other": [1.25]}})],
)
def test_time_beyond_the_plans_own_has_a_place_of_its_own(name: str, stated: dict[str, Any]) -> None:
    job = Job("m", 0.0, model="megatron-1.7b", gpus=8, global_batch=64, iterations=200.0)
    run = clustersim.run([job], "fifo", cluster="n1g8", overheads=None, **{name: stated})
    shares = gpu_time(run)
    assert shares is not None
    assert shares.seconds["network"] / shares.total == pytest.approx(0.2)


def test_a_run_states_its_constants() -> None:
    jobs = [rigid("a", 0, 2, 100.0)]
    run = clustersim.run(jobs, "fifo", cluster="n2g8", step_time={"slowdown": 1.25, "worker_cv": 0.1})
    assert run.manifest["step_time"] == {"slowdown": 1.25, "spread": 0.0, "worker_cv": 0.1}
    assert "variability" not in run.manifest


# Nodes


def test_draws_have_the_distribution_that_is_stated() -> None:
    """On nodes of one GPU the logarithm is half-normal: mean sigma sqrt(2 / pi); on nodes of 8 the median is
    the eighth root of one half in the distribution of |z|.
    """
    nodes, sigma = 4000, 0.1
    single = NodeSpeeds(Variability(sigma), Cluster(nodes, 1), 3).of(None)
    logs = [NormalDist().cdf(log(factor) / sigma) for factor in single]
    assert fmean(logs) == pytest.approx(0.75, abs=4 * stdev(logs) / sqrt(nodes))  # uniform from 1/2 to 1
    eight = sorted(NodeSpeeds(Variability(sigma), Cluster(nodes, 8), 3).of(None))
    median = exp(sigma * NormalDist().inv_cdf((1 + 0.5 ** (1 / 8)) / 2))
    assert sum(factor < median for factor in eight) == pytest.approx(nodes / 2, abs=4 * sqrt(nodes) / 2)


def test_all_classes_share_the_quality_of_a_gpu() -> None:
    speeds = NodeSpeeds(Variability({"a": 0.1, "b": 0.3}, {"x": "a", "y": "b"}), Cluster(50, 8), 1)
    one, other, equal = (speeds.of(name) for name in ("x", "y", "z"))
    assert sorted(range(50), key=one.__getitem__) == sorted(range(50), key=other.__getitem__)
    assert [factor**3 for factor in one] == pytest.approx(list(other))
    assert set(equal) == {1.0}
    assert list(speeds.within(20, 10).of("x")) == list(one[20:30])
    assert speeds.within(20, 10).factor("x", ((3, 8), (4, 8))) == max(one[23:25])


def test_a_table_states_nodes_or_gpus(tmp_path: Path) -> None:
    def table(text: str) -> dict[str, Any]:
        (tmp_path / "speeds.csv").write_text(text)
        return {"factors": str(tmp_path / "speeds.csv")}

    by_node = table("node,heavy,other\n1,1.5,1.1\n0,1,1.2\n")
    assert Variability.of(by_node).factors == {"heavy": [1.0, 1.5], "other": [1.2, 1.1]}
    by_gpu = table("node,gpu,other\n0,0,1\n0,1,1.3\n1,0,1.1\n1,1,1\n")
    run = clustersim.run([rigid("a", 0, 1, 100.0)], "fifo", cluster="n2g2", variability=by_gpu)
    assert run.manifest["variability"]["factors"] == {"other": [1.3, 1.1]}


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
