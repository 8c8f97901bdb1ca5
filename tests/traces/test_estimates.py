"""The errors in stated work: how large they are, what they depend on, and which jobs have none."""

from __future__ import annotations

from dataclasses import replace
from math import log
from statistics import NormalDist

import numpy as np
import pytest

from traces.estimates import MAX_SIGMA, Estimates
from traces.job import Job
from traces.native import MAX_COUNT, MIN_ITERATIONS, unreadable

TRUE = Job("a", 0.0, model="gpt3-1.3b", global_batch=64, iterations=100.0)


def stated(job: Job, sigma: float, seed: int = 0) -> float | None:
    return Estimates(sigma).applied_to(job, seed).stated_iterations


@pytest.mark.parametrize("sigma", [0.5, 2.0])
def test_factors_are_log_normal_with_median_1(sigma: float) -> None:
    """The distance of Kolmogorov and Smirnov, against its 1 % quantile, 1.63 / sqrt(n)."""
    count = 2000
    logs = sorted(log((stated(replace(TRUE, job_id=str(i)), sigma) or 0.0) / 100.0) for i in range(count))
    theory = [NormalDist(0.0, sigma).cdf(value) for value in logs]
    distance = max(np.abs(np.array(theory) - (np.arange(count) + 0.5) / count))
    assert distance < 1.63 / count**0.5


def test_a_factor_depends_on_the_seed_and_the_id_alone() -> None:
    factor = (stated(TRUE, 1.0) or 0.0) / 100.0
    others = {"submit_s": 5.0, "iterations": 7.0, "gpus": 8, "model": "gpt3-6.7b", "tenant": "x"}
    assert stated(replace(TRUE, **others), 1.0) == pytest.approx(7.0 * factor)
    assert stated(TRUE, 1.0, seed=1) != stated(TRUE, 1.0)
    assert stated(replace(TRUE, job_id="b"), 1.0) != stated(TRUE, 1.0)


def test_sigma_scales_the_same_errors() -> None:
    """Runs with several values of sigma are paired: no job changes sides."""
    logs = [log((stated(TRUE, sigma) or 0.0) / 100.0) for sigma in (0.5, 1.0, 2.0)]
    assert logs == pytest.approx([logs[0], 2 * logs[0], 4 * logs[0]])


@pytest.mark.parametrize(
    ("job", "sigma"),
    [
        (TRUE, 0.0),
        (replace(TRUE, stated_iterations=3.0), 1.0),
        (Job("d", 0.0, gpus=8, duration_s=60.0), 1.0),
        (Job("e", 0.0, gpus=8, duration_s=60.0, iterations=5.0), 1.0),
    ],
)
def test_jobs_that_stay_as_they_are(job: Job, sigma: float) -> None:
    """Without errors; with a statement of its own; without work that it could state."""
    assert Estimates(sigma).applied_to(job, 0) is job


@pytest.mark.parametrize("iterations", [MIN_ITERATIONS, float(MAX_COUNT)])
def test_the_largest_errors_stay_within_what_a_trace_can_hold(iterations: float) -> None:
    drawn = [
        Estimates(MAX_SIGMA).applied_to(replace(TRUE, job_id=str(i), iterations=iterations), 0)
        for i in range(50)
    ]
    assert not [job for job in drawn if unreadable(job)]
    assert {job.stated_iterations for job in drawn} > {iterations}
