"""GPUs of one type that are not equally fast: by hand, laws of the draws, whole runs and their audits."""

from __future__ import annotations

from math import exp, log, sqrt
from pathlib import Path
from statistics import NormalDist, fmean, stdev
from typing import Any

import pytest

import clustersim
from clustersim.analysis import gpu_time
from clustersim.cluster import Cluster
from clustersim.speed import NodeSpeeds, Variability
from tests.builders import rigid
from traces.job import Job

MIX = [
    *(rigid(f"r{i}", 40.0 * i, 2 + 2 * (i % 3), 300.0 - 20 * i) for i in range(6)),
    *(
        Job(f"m{i}", 70.0 * i, model="megatron-1.7b", gpus=8, global_batch=64, iterations=200.0)
        for i in range(5)
    ),
]


def test_a_job_is_as_slow_as_its_slowest_node() -> None:
    """By hand: on nodes of factors 1, 1.5, 1.2 jobs of 8, 8 and 16 GPUs; b and c share no node."""
    jobs = [rigid("a", 0, 8, 100.0), rigid("b", 0, 8, 100.0), rigid("c", 10, 16, 100.0)]
    run = clustersim.run(
        jobs, "fifo", cluster="n3g8", overheads=None, variability={"factors": {"other": [1, 1.5, 1.2]}}
    )
    finish = {job.job_id: job.finish_s for job in run.jobs}
    assert finish == {"a": 100.0, "b": 150.0, "c": pytest.approx(100.0 + 120.0)}  # on nodes 0 and 2
    assert [job.isolated_s for job in run.jobs] == [100.0] * 3  # as predicted


def test_classes_of_jobs_differ() -> None:
    jobs = [rigid("a", 0, 8, 100.0, model="bert"), rigid("b", 200, 8, 100.0, model="vgg")]
    stated = {"classes": {"bert": "x"}, "factors": {"x": [1.3], "other": [1.1]}}
    run = clustersim.run(jobs, "fifo", cluster="n1g8", overheads=None, variability=stated)
    assert [job.finish_s for job in run.jobs] == [pytest.approx(130.0), pytest.approx(310.0)]


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


def test_time_beyond_the_plans_own_has_a_place_of_its_own() -> None:
    stated = {"factors": {"other": [1.25]}}
    found = clustersim.run(MIX[6:7], "fifo", cluster="n1g8", overheads=None, variability=stated)
    shares = gpu_time(found)
    assert shares is not None
    assert shares.seconds["network"] / shares.total == pytest.approx(0.2)


def test_a_plain_run_states_nothing() -> None:
    assert "variability" not in clustersim.run(MIX[:2], "fifo", cluster="n2g8").manifest


# Tables, and values that make no sense


def table(tmp_path: Path, text: str) -> dict[str, Any]:
    (tmp_path / "speeds.csv").write_text(text)
    return {"factors": str(tmp_path / "speeds.csv")}


def test_a_table_states_nodes_or_gpus(tmp_path: Path) -> None:
    by_node = table(tmp_path, "node,heavy,other\n1,1.5,1.1\n0,1,1.2\n")
    assert Variability.of(by_node).factors == {"heavy": [1.0, 1.5], "other": [1.2, 1.1]}
    by_gpu = table(tmp_path, "node,gpu,other\n0,0,1\n0,1,1.3\n1,0,1.1\n1,1,1\n")
    run = clustersim.run([rigid("a", 0, 1, 100.0)], "fifo", cluster="n2g2", variability=by_gpu)
    assert run.manifest["variability"]["factors"] == {"other": [1.3, 1.1]}
