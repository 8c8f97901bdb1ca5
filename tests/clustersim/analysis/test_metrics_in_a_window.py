"""Measurement windows: the jobs that count, and the time over which the cluster is measured."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import clustersim
from clustersim.analysis import measured_jobs, window_metrics, with_window
from clustersim.analysis.windows import UNDEFINED_IN_A_WINDOW
from clustersim.grid.gridfile import NUMERIC_METRICS
from clustersim.records import Run
from traces import Job


def run_of(*jobs: Job, nodes: int = 1) -> Run:
    return clustersim.run(jobs, "fifo", cluster=f"n{nodes}g8", overheads=None)


def window(run: Run, warmup_s: float, measure_s: float | None) -> dict[str, object]:
    return window_metrics(run.jobs, run.snapshots, run.cluster, warmup_s=warmup_s, measure_s=measure_s)


def test_a_window_over_everything_gives_the_summary() -> None:
    run = run_of(*(Job(str(k), 7.0 * k, gpus=4, duration_s=20.0, deadline_s=7.0 * k + 30) for k in range(9)))
    values = window(run, 0.0, None)
    same = set(NUMERIC_METRICS) - {*UNDEFINED_IN_A_WINDOW, "gpu_allocated_ratio", "fragmentation_ratio"}
    assert {name: values[name] for name in same} == {name: run.summary[name] for name in same}


def test_an_empty_window_has_no_values() -> None:
    run = run_of(Job("a", 0.0, gpus=8, duration_s=10.0))
    values = window(run, 5.0, 1.0)
    assert values["jobs"] == 0
    assert values["jct_mean_s"] is None
    assert values["gpu_allocated_ratio"] is None


def test_a_summary_has_the_window_beside_the_whole_run(tmp_path: Path) -> None:
    jobs = [Job(str(k), 10.0 * k, gpus=8, duration_s=20.0) for k in range(5)]
    whole = clustersim.run(jobs, "fifo", cluster="n1g8", overheads=None)
    run = clustersim.run(
        jobs, "fifo", cluster="n1g8", overheads=None, warmup_s=10.0, measure_s=20.0, out=tmp_path
    )
    measured = window(whole, 10.0, 20.0)
    stated = dict(run.summary["window"])
    limits = [stated.pop(name) for name in ("warmup_s", "measure_s", "from_s", "until_s")]
    assert limits == [10.0, 20.0, 10.0, 30.0]
    assert measured_jobs(run).tolist() == [job.job_id in ("1", "2") for job in run.jobs]
    assert {name: measured[name] for name in stated} == stated
    assert not {*UNDEFINED_IN_A_WINDOW, "wall_s"} & set(stated)
    assert {name: value for name, value in run.summary.items() if name != "window"} == whole.summary
    assert with_window(whole, 10.0, 20.0).summary == run.summary
    assert run.manifest["window"] == {"warmup_s": 10.0, "measure_s": 20.0}


def test_warm_up_removes_the_bias_of_an_empty_start() -> None:
    """M/M/1 at load 0.8: the mean wait is rho / (mu - lambda) = 4 s (Kleinrock 1975, section 3.2). Jobs at
    the start find the queue empty and wait less; a window after the warm-up must hold it.
    """
    early, late = [], []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        submits = np.cumsum(rng.exponential(1.25, 1200))
        jobs = [
            Job(str(i), float(s), gpus=8, duration_s=float(d))
            for i, (s, d) in enumerate(zip(submits, rng.exponential(1.0, 1200), strict=True))
        ]
        run = run_of(*jobs)
        early.append(window(run, 0.0, 20.0)["queue_mean_s"])
        late.append(window(run, 300.0, 1400.0)["queue_mean_s"])
    error = float(np.std(late, ddof=1) / np.sqrt(len(late)))  # type: ignore[arg-type]
    assert np.mean(late) == pytest.approx(4.0, abs=3.5 * error)  # type: ignore[arg-type]
    assert np.mean(early) < 2.5  # type: ignore[arg-type]
