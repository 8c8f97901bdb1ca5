"""Capacity, start-up and use, by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from clustersim.backtest import SiteFacts, backtest, read_logged
from clustersim.backtest.use import Reduced, in_use, mean_difference, mean_use, peak, reduced
from tests.clustersim.backtest.logs import written
from traces import Job


def test_use_by_hand() -> None:
    start, run, gpus = np.array([0.0, 5.0, np.nan]), np.array([10.0, 10.0, 99.0]), np.array([4, 2, 8])
    moments, used = in_use(start, run, gpus)
    assert moments.tolist() == [0, 5, 10, 15]
    assert used.tolist() == [4, 6, 2, 0]
    assert mean_use(start, run, gpus, 0.0, 20.0) == (40 + 20) / 20
    assert mean_use(start, run, gpus, 7.0, 7.0) == 0
    other = in_use(np.array([0.0]), np.array([10.0]), np.array([4]))
    assert mean_difference((moments, used), other, 20.0) == (5 * 2 + 5 * 2) / 20


def test_a_second_of_overlap_is_no_capacity() -> None:
    start = np.array([0.0, 3599.0, 7198.0])
    assert peak(start, np.full(3, 3600.0), np.full(3, 8)) == 8
    assert peak(start, np.array([3600.0, 3600.0, 3600.0]) + 100, np.full(3, 8)) == 16
    assert peak(np.array([np.nan]), np.array([1.0]), np.array([8])) == 0
    assert peak(np.array([0.0]), np.array([1.0]), np.array([8])) == 8


def test_an_outage_is_reduced_capacity_and_a_blocked_queue_is_not() -> None:
    hour = 3600.0
    # from 10 h to 20 h nothing runs although a job of 4 waits on 8 GPUs
    submit, start, run = [0.0, 9 * hour, 11 * hour], [0.0, 20 * hour, 22 * hour], [10 * hour, hour, hour]
    arrays = (np.array(submit), np.array(start), np.array(run))
    found = reduced(*arrays, np.array([8, 4, 4]), 8, np.inf)
    assert found == [Reduced(10 * hour, 20 * hour, 0)]
    assert reduced(*arrays, np.array([8, 4, 4]), 8, 15 * hour) == []  # five hours are too few
    # the largest job that waits does not fit: any scheduler may keep GPUs for it
    blocked = (
        np.array([0.0, hour, hour]),
        np.array([0.0, 20 * hour, 20 * hour]),
        np.array([20.0, 1.0, 1.0]) * hour,
    )
    assert reduced(*blocked, np.array([4, 8, 2]), 8, np.inf) == []


def test_an_outage_explains_waits(tmp_path: Path) -> None:
    hour = 3600.0
    jobs = [
        Job("a", 0.0, gpus=8, duration_s=2 * hour, logged_start_s=0.0),
        Job("b", 3 * hour, gpus=4, duration_s=hour, logged_start_s=15 * hour),
        Job("c", 4 * hour, gpus=8, duration_s=hour, logged_start_s=16 * hour),
    ]
    log = read_logged(written(tmp_path, jobs))
    result = backtest(log)
    assert any("less capacity in 1 times, 12 h" in text for text in result.summary["assumptions"])
    assert result.summary["parts"]["all"]["wait"]["absolute_s"] == 0
    constant = backtest(log, SiteFacts(look_for_reduced=False)).summary["parts"]["all"]["wait"]
    assert constant["bias_s"] == -8 * hour


@pytest.mark.parametrize(("delay_s", "seen_s"), [(12.0, 12.0), (400.0, 0.0)])
def test_start_up_is_the_wait_of_jobs_that_find_room(delay_s: float, seen_s: float, tmp_path: Path) -> None:
    jobs = [
        Job(f"{i}", 1000.0 * i, gpus=4, duration_s=100.0, logged_start_s=1000.0 * i + delay_s)
        for i in range(9)
    ]
    summary = backtest(read_logged(written(tmp_path, jobs))).summary
    assert summary["site"]["start_up_s"] == seen_s
    assert summary["parts"]["all"]["wait"]["bias_s"] == seen_s - delay_s


@pytest.mark.parametrize(
    ("sizes", "shape"), [((1, 8, 16), "n2g8"), ((1, 8, 12), "n12g1"), ((1, 4), "n4g1"), ((8, 9), "n9g1")]
)
def test_nodes_of_eight_where_no_request_contradicts(
    sizes: tuple[int, ...], shape: str, tmp_path: Path
) -> None:
    jobs = [
        Job(f"{i}", 1000.0 * i, gpus=gpus, duration_s=900.0, logged_start_s=1000.0 * i)
        for i, gpus in enumerate(sizes)
    ]
    pool = backtest(read_logged(written(tmp_path, jobs))).pools[0]
    assert pool.cluster.shape == shape
