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


def test_jobs_submitted_in_the_window_count_however_late_they_finish() -> None:
    run = run_of(*(Job(str(k), 10.0 * k, gpus=8, duration_s=20.0) for k in range(5)))
    values = window(run, 10.0, 20.0)  # jobs 1 and 2, submitted at 10 and 20, done at 40 and 60
    assert values["jobs"] == values["finished"] == 2
    assert values["jct_mean_s"] == pytest.approx((30.0 + 40.0) / 2)
    assert values["queue_mean_s"] == pytest.approx((10.0 + 20.0) / 2)
    assert [values[name] for name in UNDEFINED_IN_A_WINDOW] == [None] * len(UNDEFINED_IN_A_WINDOW)


def test_the_cluster_is_measured_within_the_window() -> None:
    run = run_of(Job("a", 0.0, gpus=8, duration_s=10.0), Job("b", 15.0, gpus=4, duration_s=10.0),
                 Job("c", 30.0, gpus=8, duration_s=5.0))  # fmt: skip
    values = window(run, 5.0, 15.0)  # 5 to 10 full, 10 to 15 empty, 15 to 20 half
    assert values["gpu_allocated_ratio"] == pytest.approx((5 * 8 + 5 * 4) / (8 * 15))
    assert values["fragmentation_ratio"] == pytest.approx(5 * 4 / (8 * 15))
    open_ended = window(run, 5.0, None)  # up to the last submission, 30
    assert open_ended["gpu_allocated_ratio"] == pytest.approx((5 * 8 + 10 * 4) / (8 * 25))


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


def test_the_cluster_of_a_window_is_offered_what_its_jobs_ask_for() -> None:
    run = run_of(*(Job(str(k), 10.0 * k, gpus=4, duration_s=15.0) for k in range(9)))
    values = window(run, 20.0, 40.0)  # jobs 2 to 5
    assert values["offered_load"] == pytest.approx(4 * 4 * 15 / (8 * 40))
    assert (values["arrival_window_s"], values["load_jobs"]) == (40.0, 4)
    assert values["gpu_allocated_arrival_ratio"] == values["gpu_allocated_ratio"]


def test_a_limit_includes_the_job_that_rounding_puts_beside_it() -> None:
    run = run_of(Job("a", 0.1, gpus=8, duration_s=1.0), Job("b", 0.3, gpus=8, duration_s=1.0))
    assert 0.1 + 0.2 > 0.3
    assert window(run, 0.2, None)["jobs"] == 1
    assert window(run, 0.0, 0.2)["jobs"] == 1


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
