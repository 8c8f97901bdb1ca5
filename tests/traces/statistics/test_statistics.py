"""A trace in numbers, by hand; and distances of traces, against scipy."""

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from itertime.errors import UserError
from traces.job import Job
from traces.statistics import JobColumns, describe, distances
from traces.statistics.arrivals import dispersion
from traces.statistics.shares import gini
from traces.synthetic import Recipe, generate

HOUR = 3600.0


def job(i: int, submit_s: float, gpus: int = 1, run_s: float = HOUR, **rest: object) -> Job:
    return Job(str(i), submit_s, gpus=gpus, duration_s=run_s, **rest)  # type: ignore[arg-type]


JOBS = [
    job(3, 4 * HOUR, gpus=8, run_s=2 * HOUR, tenant="b", state="FAILED"),
    job(1, 0.0, tenant="a", state="COMPLETED", estimate_s=2 * HOUR, logged_start_s=60.0),
    job(2, 0.5, tenant="a", state="COMPLETED", estimate_s=HOUR / 2, logged_start_s=120.5),
]


def test_sizes_owners_states_and_load_are_those_of_the_jobs() -> None:
    found = describe(JobColumns.of(JOBS), cluster_gpus=9)
    assert (found["jobs"], found["span_s"], found["gpu_hours"]) == (3, 4 * HOUR, 18.0)
    one, eight = found["sizes"]
    assert (one["gpus"], one["jobs"], one["gpu_hours"], one["run_time"]["p50"]) == ("1", 2, 2.0, HOUR)
    assert (eight["gpus"], eight["share"], eight["share_of_gpu_hours"]) == ("8", 1 / 3, 16 / 18)
    assert found["tenants"]["count"] == 2
    first = found["tenants"]["first"][0]
    assert (first["name"], first["jobs"], first["share_of_gpu_hours"]) == ("a", 2, 2 / 18)
    assert [one["name"] for one in found["states"]["first"]] == ["COMPLETED", "FAILED"]
    assert found["users"] is None
    assert found["estimates"]["jobs"] == 2
    assert found["estimates"]["run_time_within"] == 0.5
    assert found["wait"]["mean"] == 90.0
    load = found["load"]
    assert (load["mean_gpus"], load["mean"], load["held"]) == (4.5, 0.5, None)
    assert math.fsum(load["offered"]) * load["period_s"] * 9 == pytest.approx(18 * HOUR)
    json.dumps(found, allow_nan=False)


def test_the_order_of_rows_makes_no_difference() -> None:
    assert describe(JobColumns.of(JOBS)) == describe(JobColumns.of(JOBS[::-1]))


def test_gpus_held_are_those_of_logged_starts() -> None:
    jobs = [job(1, 0.0, gpus=4, run_s=HOUR, logged_start_s=0.0), job(2, 2 * HOUR, logged_start_s=2 * HOUR)]
    held = describe(JobColumns.of(jobs))["load"]["held"]
    assert held[:6] == pytest.approx([4.0] * 6)
    assert held[6:] == pytest.approx([0.0] * 6)


def test_hours_and_weekdays_are_of_the_calendar_where_the_clock_is_known() -> None:
    days = [job(i, i * 86_400.0 + 5 * HOUR) for i in range(15)]
    thursday = describe(JobColumns.of(days, zero_s=0.0))["arrivals"]  # 1 January 1970
    own = describe(JobColumns.of(days))["arrivals"]
    assert thursday["calendar"]
    assert not own["calendar"]
    assert thursday["hours"][5] == own["hours"][5] == 1.0
    assert thursday["weekdays"][3] == own["weekdays"][0] == 3 / 15


def test_regular_arrivals_have_no_dispersion_and_batches_much() -> None:
    regular = JobColumns.of(job(i, 60.0 * i) for i in range(1000))
    assert dispersion(regular, HOUR) == pytest.approx(0.0)
    assert describe(regular)["arrivals"]["gap_cv"] == 0.0
    batches = JobColumns.of(job(i, 10 * HOUR * (i // 50)) for i in range(1000))
    assert dispersion(batches, HOUR) == pytest.approx(50.0, rel=0.15)
    assert describe(batches)["arrivals"]["within_1s"] == pytest.approx(980 / 999)


def test_poisson_arrivals_have_dispersion_one() -> None:
    """Within 4 standard errors: the variance of the index is 2 / bins."""
    times = np.cumsum(np.random.default_rng(0).exponential(60.0, 20_000))
    columns = JobColumns.of(job(i, float(at)) for i, at in enumerate(times))
    found, bins = dispersion(columns, HOUR), columns.span_s // HOUR
    assert found is not None
    assert abs(found - 1) < 4 * math.sqrt(2 / bins)


def test_gini_of_a_linear_ladder() -> None:
    """n amounts 1, 2, ..., n have the coefficient (n - 1) / (3 n)."""
    assert gini(np.arange(1.0, 101.0)) == pytest.approx(99 / 300)
    assert gini(np.zeros(3)) is None


def test_jobs_of_unknown_run_time_are_counted_and_have_no_gpu_hours() -> None:
    work = {"model": "gpt3-13b", "global_batch": 64, "iterations": 5.0}
    found = describe(JobColumns.of([Job("a", 0.0, gpus=8, **work), job(1, 10.0)]))  # type: ignore[arg-type]
    assert found["jobs"] == 2
    assert found["gpu_hours"] == 1.0
    assert found["sizes"][1]["run_time"] is None
    json.dumps(found, allow_nan=False)


def test_no_jobs_are_refused() -> None:
    with pytest.raises(UserError, match="a trace without jobs has no statistics"):
        JobColumns.of([])


def test_many_gpu_counts_become_classes_between_powers_of_two() -> None:
    found = describe(JobColumns.of(job(i, float(i), gpus=i + 1) for i in range(20)))
    assert [size["gpus"] for size in found["sizes"]] == ["1", "2", "3-4", "5-8", "9-16", "17-32"]
    assert sum(size["jobs"] for size in found["sizes"]) == 20


# Distances of traces


RECIPE = Recipe(jobs=800, rules="none", deadlines="none", load_of="process", sizes="itp-8h", seed=1)
COMPARED_JOBS, _ = generate(RECIPE)
A = JobColumns.of(COMPARED_JOBS)


def by_name(found: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(one["name"], one["statistic"].split(",")[0]): one for one in found}


def test_a_trace_has_no_distance_to_itself() -> None:
    found = distances(A, A)
    assert len(found) >= 8
    for one in found:
        assert one["distance"] == (1.0 if one["statistic"].endswith("factor") else 0.0)
        assert one["note"] == "as two halves of A"


def test_another_draw_of_the_process_is_as_far_as_two_halves() -> None:
    other, _ = generate(replace(RECIPE, seed=2))
    assert all(one["times_baseline"] < 2 for one in distances(A, JobColumns.of(other)))


def test_longer_run_times_alone_change_run_times_and_come_first() -> None:
    longer = JobColumns.of([replace(job, duration_s=5 * (job.duration_s or 0)) for job in COMPARED_JOBS])
    found = distances(A, longer)
    named = by_name(found)
    assert named["run times", "Wasserstein-1"]["distance"] == pytest.approx(5.0)
    assert named["run times", "Wasserstein-1"]["note"] == "large"
    assert found[0]["name"].startswith("run times")
    for same in ("GPUs of jobs", "gaps between submissions", "GPU-hours by size"):
        assert all(
            one["distance"] in (0.0, 1.0) or one["distance"] < 1e-9
            for (n, _), one in named.items()
            if n == same
        )


def test_the_distance_is_that_of_kolmogorov_and_smirnov() -> None:
    other = JobColumns.of(generate(replace(RECIPE, sizes="kalos"))[0])
    found = by_name(distances(A, other))["run times", "Kolmogorov-Smirnov"]
    expected = stats.ks_2samp(A.run_s, other.run_s, method="exact" if len(A) < 50 else "asymp").statistic
    assert found["distance"] == pytest.approx(expected)
    logs = np.log(A.run_s), np.log(other.run_s)
    factor = by_name(distances(A, other))["run times", "Wasserstein-1"]["distance"]
    assert factor == pytest.approx(math.exp(stats.wasserstein_distance(*logs)))


def test_sizes_and_owners_are_compared_by_total_variation() -> None:
    a = JobColumns.of(
        [Job(str(i), float(i), gpus=1 + i % 2, duration_s=9.0, tenant="ab"[i % 2]) for i in range(80)]
    )
    b = JobColumns.of([Job(str(i), float(i), gpus=1, duration_s=9.0, tenant="xyz"[i % 3]) for i in range(90)])
    found = by_name(distances(a, b))
    assert found["GPUs of jobs", "total variation"]["distance"] == pytest.approx(0.5)
    assert found["shares of owners by rank", "total variation"]["distance"] == pytest.approx(1 / 3)


def test_the_seed_decides_the_halves() -> None:
    other = JobColumns.of(generate(replace(RECIPE, seed=3))[0])
    assert distances(A, other, seed=1) == distances(A, other, seed=1)
    assert distances(A, other, seed=1) != distances(A, other, seed=2)
