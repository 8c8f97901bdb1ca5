"""Distances of traces: against scipy, of equal traces, and against their baseline."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from traces.job import Job
from traces.statistics import JobColumns, distances
from traces.synthetic import Recipe, generate

RECIPE = Recipe(jobs=800, rules="none", deadlines="none", load_of="process", sizes="itp-8h", seed=1)
JOBS, _ = generate(RECIPE)
A = JobColumns.of(JOBS)


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
    longer = JobColumns.of([replace(job, duration_s=5 * (job.duration_s or 0)) for job in JOBS])
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
