"""Parts of a trace and scaled traces; errors in stated work, and predictors of run times, by hand."""

from dataclasses import replace
from math import exp, log
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from tests.builders import rigid
from traces.editing import Scaling, TraceSelection, scaled, sliced
from traces.estimates import MAX_SIGMA, PREDICTORS, Blend, Estimates, History, LastTwo, Rolling
from traces.job import Job
from traces.native import MAX_COUNT, MIN_ITERATIONS, unreadable
from traces.summary import demand

JOBS = [
    Job(
        str(i),
        100.0 * i,
        gpus=2 ** (i % 4),
        duration_s=50.0 + i,
        deadline_s=100.0 * i + 500,
        user=f"u{i % 3}",
        tenant=f"t{i % 2}",
        logged_start_s=100.0 * i + 7,
        estimate_s=90.0,
    )
    for i in range(20)
]


def ids(jobs: list[Job]) -> list[int]:
    return [int(job.job_id) for job in jobs]


def after(job: Job) -> tuple[Any, ...]:
    assert job.deadline_s is not None
    assert job.logged_start_s is not None
    return job.deadline_s - job.submit_s, job.logged_start_s - job.submit_s, job.duration_s, job.estimate_s


@pytest.mark.parametrize(
    ("part", "kept"),
    [
        (TraceSelection(), range(20)),
        (TraceSelection(from_s=300, until_s=600), [3, 4, 5]),
        (TraceSelection(users=["u1"]), range(1, 20, 3)),
        (TraceSelection(users=["t1", "u0"]), [i for i in range(20) if i % 2 or i % 3 == 0]),
        (TraceSelection(least_gpus=4), [i for i in range(20) if i % 4 >= 2]),
        (TraceSelection(least_gpus=2, most_gpus=2), range(1, 20, 4)),
        (TraceSelection(least_gpus=8, first=2), [3, 7]),
    ],
)
def test_a_part_has_the_jobs_of_the_selection_in_order(part: TraceSelection, kept: list[int]) -> None:
    found, zero_s = sliced(JOBS, part)
    assert ids(found) == list(kept)
    assert (found[0].submit_s, zero_s) == (0.0, 100.0 * kept[0])
    for job in found:
        old = JOBS[int(job.job_id)]
        assert job.submit_s == old.submit_s - zero_s
        assert after(job) == after(old)


def test_a_sample_is_drawn_before_the_selection() -> None:
    sample, _ = sliced(JOBS, TraceSelection(sample=0.5, seed=4))
    both, _ = sliced(JOBS, TraceSelection(sample=0.5, seed=4, least_gpus=4))
    assert 0 < len(both) < len(sample) < 20
    assert ids(both) == [i for i in ids(sample) if i % 4 >= 2]
    assert ids(sliced(JOBS, TraceSelection(sample=0.5, seed=5))[0]) != ids(sample)


def test_gaps_are_scaled_and_nothing_else() -> None:
    found, factor = scaled(JOBS, Scaling(time=2.5))
    assert (ids(found), factor) == (list(range(20)), 2.5)
    assert [job.submit_s for job in found] == [250.0 * i for i in range(20)]
    assert [after(job) for job in found] == [after(job) for job in JOBS]


def test_the_load_is_exactly_the_one_asked_for() -> None:
    found, factor = scaled(JOBS, Scaling(load=0.8, on_gpus=16))
    asked = demand(found)
    assert asked["mean_gpus"] == pytest.approx(0.8 * 16)
    assert found[-1].submit_s == pytest.approx(1900 * factor)


def test_gpus_are_scaled_and_stay_at_least_one() -> None:
    found, _ = scaled(JOBS, Scaling(gpus=0.4))
    assert [job.gpus for job in found[:4]] == [1, 1, 2, 3]
    bounded, _ = scaled([replace(JOBS[2], min_gpus=2, max_gpus=8)], Scaling(gpus=4))
    assert (bounded[0].gpus, bounded[0].min_gpus, bounded[0].max_gpus) == (16, 8, 32)


def test_more_jobs_repeat_the_trace_at_its_rate() -> None:
    found, _ = scaled(JOBS, Scaling(jobs=50))
    assert [job.submit_s for job in found] == [100.0 * i for i in range(50)]
    assert [job.job_id for job in found[18:22]] == ["18", "19", "0~2", "1~2"]
    assert found[40].job_id == "0~3"
    assert len({job.job_id for job in found}) == 50
    assert after(found[45]) == after(JOBS[5])


def test_fewer_jobs_are_a_sample_at_the_rate_of_the_trace() -> None:
    found, factor = scaled(JOBS, Scaling(jobs=5, seed=1))
    assert ids(found) == sorted(ids(found))
    assert len(found) == 5
    assert found[-1].submit_s - found[0].submit_s == pytest.approx(400.0)
    assert factor < 1
    assert ids(scaled(JOBS, Scaling(jobs=5, seed=2))[0]) != ids(found)


def test_a_logged_time_is_never_before_its_submission() -> None:
    """Rounding at large times must not put a deadline before its submission."""
    job = Job("a", 1e9 / 3, gpus=1, duration_s=1.0, logged_start_s=1e9 / 3, deadline_s=1e9 / 3)
    for factor in (0.1, 1 / 3, 3.0):
        found, _ = scaled([Job("0", 0.0, gpus=1, duration_s=1.0), job], Scaling(time=factor))
        assert found[1].logged_start_s == found[1].deadline_s == found[1].submit_s


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


# Predictors


def job(user: str = "u", gpus: int = 1, **more: Any) -> Job:
    return rigid("j", 0, gpus, 1, user=user, **more)


def test_without_history_the_estimate_of_the_user_counts_then_the_constant() -> None:
    for name in PREDICTORS:
        predictor = Estimates(predictor=name, cold_s=50).new_predictor()
        assert predictor is not None
        assert predictor.predict(job(), 1) == 50
        assert predictor.predict(job(estimate_s=70), 1) == 70
        assert predictor.errors()["cold_starts"] == 2


def test_last_two() -> None:
    predictor = LastTwo(3600)
    for user, run_s in (("u", 10), ("u", 20), ("v", 999), ("u", 40)):
        predictor.learn(job(user), 1, run_s)
    assert predictor.predict(job(gpus=8), 8) == 30
    assert predictor.predict(job(estimate_s=25), 1) == 25
    assert predictor.predict(job("v"), 1) == 3600


def test_rolling_goes_from_alike_to_gpus_of_the_user_to_gpus_of_all() -> None:
    predictor = Rolling(3600)
    predictor.learn(job(model="m"), 1, 10)
    predictor.learn(job(model="m"), 1, 20)
    predictor.learn(job(model="n"), 1, 60)
    predictor.learn(job("v"), 1, 110)
    assert predictor.predict(job(model="m"), 1) == pytest.approx((20 + 0.9 * 10) / 1.9)
    assert predictor.predict(job(model="o"), 1) == 30
    assert predictor.predict(job("w"), 1) == 50
    assert predictor.guess(job("w"), 4) is None


def test_history_pulls_a_group_towards_the_wider_one() -> None:
    """One job of `v`, 100 s, then one of `u`, 10 s, all on 1 GPU and of no model. Of all, and of all on 1
    GPU: weights 1 and 0.9.
    """
    predictor = History(3600)
    predictor.learn(job("v"), 1, 100)
    predictor.learn(job("u"), 1, 10)
    total = log(10) + 0.9 * log(100)
    of_gpus = (total + total / 1.9) / 2.9
    by_user = (log(10) + of_gpus) / 2
    by_both = (log(10) + by_user) / 2
    alike = (log(10) + by_both) / 2
    assert predictor.predict(job("u"), 1) == pytest.approx(exp(alike))
    assert predictor.predict(job("w"), 8) == pytest.approx(exp(total / 1.9))


def test_blend_is_between_its_parts() -> None:
    predictors = [History(1), Rolling(1), Blend(1, 0.25)]
    for predictor in predictors:
        predictor.learn(job(), 1, 10)
        predictor.learn(job("v"), 1, 1000)
    history, rolling, blend = (predictor.predict(job(), 1) for predictor in predictors)
    assert blend == pytest.approx(0.25 * rolling + 0.75 * history)


def test_errors_are_of_the_jobs_that_have_ended() -> None:
    predictor = LastTwo(100)
    for name, run_s in (("a", 100), ("b", 50), ("c", 1000)):
        other = rigid(name, 0, 1, 1, user=name)
        predictor.predict(other, 1)
        predictor.learn(other, 1, run_s)
    predictor.predict(rigid("d", 0, 1, 1), 1)
    assert predictor.errors() == {
        "jobs": 3,
        "median_abs_log_error": pytest.approx(log(2)),
        "within_factor_2": pytest.approx(2 / 3),
        "median_ratio": pytest.approx(1),
        "cold_starts": 4,
    }


def test_errors_of_no_jobs_are_not_numbers() -> None:
    assert History(1).errors()["median_abs_log_error"] is None
