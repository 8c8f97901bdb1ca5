"""Presets: what they generate, and what is refused."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from traces import synthetic
from traces.job import Job
from traces.synthetic import QuantileTable, Recipe, Rhythm, generate, load_preset

ORDINARY = QuantileTable(((0, 0.01), (0.5, 0.5), (1, 5)))


def made(jobs: int = 2000, **rest: object) -> tuple[list[Job], dict[str, object]]:
    stated: dict[str, object] = {"load": None, "preset": "helios", "rules": "none", "deadlines": "none"}
    return generate(Recipe(jobs=jobs, **{**stated, **rest}))  # type: ignore[arg-type]


def times(rhythm: Rhythm, count: int, seed: int = 0) -> np.ndarray:
    rng, days = np.random.default_rng(seed), np.random.default_rng(seed + 1000)
    return rhythm.times(count, rng, days, rhythm.jobs_per_day)


def test_the_bundled_presets_are_these_and_each_generates_its_sizes_and_rate() -> None:
    assert synthetic.list_presets() == ["acme-kalos", "acme-seren", "helios", "itp", "philly"]
    for name in synthetic.list_presets():
        preset, (jobs, report) = load_preset(name), made(preset=name)
        assert {job.gpus for job in jobs} <= {size.gpus for size in preset.sizes}
        assert report["preset"]["source"] == preset.source  # type: ignore[index]
        per_day = (len(jobs) - 1) / jobs[-1].submit_s * 86_400
        assert 0.2 < per_day / preset.arrivals.jobs_per_day < 5  # days differ by factors


def test_the_mean_of_a_quantile_table_is_that_of_its_draws() -> None:
    """Within 4 standard errors."""
    table = QuantileTable(((0, 1), (0.3, 5), (0.9, 5), (1, 5000)))
    draws = table.quantiles(np.random.default_rng(0).random(100_000))
    assert abs(draws.mean() - table.expected()) < 4 * draws.std() / np.sqrt(len(draws))
    uniforms = np.linspace(0, 1, 101)
    assert np.allclose(table.quantiles(uniforms), [table.quantile(float(u)) for u in uniforms])


def test_gaps_have_the_table_the_share_of_zeros_and_the_correlation() -> None:
    gaps = np.diff(times(Rhythm(100, ORDINARY, zero_share=0.3, gap_correlation=0.6), 50_000))
    assert (gaps == 0).mean() == pytest.approx(0.3, abs=0.01)
    assert gaps.mean() == pytest.approx(864, rel=0.03)
    positive = np.sort(gaps[gaps > 0])
    assert np.median(positive) / positive[-1] == pytest.approx(0.1, rel=0.1)
    scores = synthetic.normal_scores(np.diff(times(Rhythm(100, ORDINARY, gap_correlation=0.6), 50_000)))
    assert np.corrcoef(scores[:-1], scores[1:])[0, 1] == pytest.approx(0.6, abs=0.02)


def test_hours_and_weekdays_are_those_stated() -> None:
    hours, weekdays = tuple(range(1, 25)), (1, 1, 1, 1, 1, 0.2, 0.2)
    found = times(Rhythm(5000, ORDINARY, hours=hours, weekdays=weekdays), 200_000)
    share = np.bincount((found // 3600 % 24).astype(int)) / len(found)
    assert np.allclose(share, np.array(hours) / sum(hours), atol=0.01)
    of_days = np.bincount((found // 86_400 % 7).astype(int)) / len(found)
    assert of_days[5:].sum() == pytest.approx(0.4 / 5.4, abs=0.03)


def test_busy_days_have_the_spread_stated() -> None:
    found = times(Rhythm(1000, ORDINARY, day_sigma=0.8, day_correlation=0.5), 400_000)
    logs = np.log(np.bincount((found // 86_400).astype(int))[:-1])
    assert logs.std() == pytest.approx(0.8, abs=0.15)
    assert np.corrcoef(logs[:-1], logs[1:])[0, 1] == pytest.approx(0.5, abs=0.2)


def test_a_load_is_met_exactly_and_changes_times_alone() -> None:
    own, _ = made()
    jobs, report = made(load=0.7, gpus=160)
    assert report["load"] == pytest.approx(0.7)
    assert [(j.gpus, j.duration_s, j.tenant) for j in jobs] == [(j.gpus, j.duration_s, j.tenant) for j in own]
    assert jobs[0].submit_s == 0
    assert [job.submit_s for job in jobs] == sorted(job.submit_s for job in jobs)


def test_more_jobs_begin_with_the_same_ones() -> None:
    few, many = made(100)[0], made(300)[0]
    assert [(j.gpus, j.duration_s, j.tenant) for j in many[:100]] == [
        (j.gpus, j.duration_s, j.tenant) for j in few
    ]


def test_tenants_have_their_shares_and_jobs_repeat() -> None:
    preset, jobs = load_preset("helios"), made(20_000)[0]
    assert preset.tenants is not None
    ends = preset.tenants.ends
    for rank, share in enumerate(np.diff([0.0, *ends]), 1):
        assert np.mean([job.tenant == f"tenant-{rank}" for job in jobs]) == pytest.approx(share, abs=0.02)
    same = np.mean([(a.gpus, a.tenant) == (b.gpus, b.tenant) for a, b in pairwise(jobs)])
    assert same > preset.repeat_share


def test_owners_are_zipf() -> None:
    assert np.allclose(np.diff([0.0, *synthetic.Owners(3, 1.0).ends]), np.array([6, 3, 2]) / 11)
    assert synthetic.Owners(4).ends == [0.25, 0.5, 0.75, 1.0]


def test_rules_give_the_jobs_of_a_preset_models() -> None:
    jobs, _ = made(50, preset="itp", rules="llm-mix")
    assert all(job.model for job in jobs)
