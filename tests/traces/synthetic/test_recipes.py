"""Whatever is generated can be read; presets, and services as instances that come and go."""

import json
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from itertime.errors import UserError
from traces import read_trace, synthetic, write_trace
from traces.job import Job
from traces.summary import demand, load_of
from traces.synthetic import Diurnal, Need, QuantileTable, Recipe, Rhythm, generate, instances_of, load_preset
from traces.synthetic.arrivals import ARRIVALS

magnitudes = st.floats(-32, 32).map(lambda exponent: 10.0**exponent)
laws = st.one_of(
    magnitudes.map(lambda mean_s: {"exponential": {"mean_s": mean_s}}),
    st.fixed_dictionaries(dict.fromkeys(("median_s", "sigma", "min_s", "max_s"), magnitudes)).map(
        lambda law: {"log_normal": law}
    ),
)
sizes = st.builds(
    lambda law, gpus: {"gpus": gpus, "share": 1, **law}, laws, st.integers(1, 64) | st.integers(1, 10**20)
)
rules = st.none() | st.builds(
    lambda multiplier, multiple, batch: {
        "source": "test",
        "gpus_multiple_of": multiple,
        "sizes": [
            {
                "gpus": [1, 10**7],
                "choices": [{"model": "gpt3-1.3b", "global_batch": batch, "gpu_multiplier": multiplier}],
            }
        ],
    },
    st.just(8) | st.integers(1, 10**21),
    st.just(1) | st.integers(1, 10**21),
    st.just(512) | st.integers(1, 10**12),
)
factors = st.tuples(magnitudes, magnitudes).map(lambda pair: f"{min(pair):g}:{max(pair):g}")
recipes = st.fixed_dictionaries(
    {
        "load": magnitudes,
        "arrivals": st.sampled_from(ARRIVALS),
        "deadlines": st.just("none") | factors,
        "jobs": st.integers(1, 12),
    }
)
LONG = {"gpus": 1, "share": 1, "exponential": {"mean_s": 3.6e12}}
SHORT = {"gpus": 1, "share": 1, "exponential": {"mean_s": 1e-3}}


@given(size=sizes, rule=rules, recipe=recipes)
@example(LONG, None, {"load": 1.0, "arrivals": "poisson", "deadlines": "none", "jobs": 3})
@example(SHORT, None, {"load": 1e-3, "arrivals": "bursty", "deadlines": "1:1e9", "jobs": 12})
def test_what_is_generated_can_be_read(
    size: dict[str, Any], rule: dict[str, Any] | None, recipe: dict[str, Any]
) -> None:
    with tempfile.TemporaryDirectory() as home:
        folder, named = Path(home), "none"
        (folder / "sizes.json").write_text(json.dumps({"source": "test", "sizes": [size]}))
        if rule is not None:
            named = str(folder / "rules.json")
            Path(named).write_text(json.dumps(rule))
        try:
            made, report = generate(Recipe(**recipe, gpus=64, sizes=str(folder / "sizes.json"), rules=named))
        except UserError:
            return
        write_trace(made, folder / "trace.csv")
        back = read_trace(folder / "trace.csv")
    assert back == made
    found = load_of(demand(back), 64)
    assert found == report["load"]
    if found is not None:
        assert found == pytest.approx(recipe["load"], rel=1e-3)


# Presets


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


# Services that come and go


def test_the_last_to_begin_is_the_first_to_end() -> None:
    needs = [Need("s", 0.0, 2), Need("s", 10.0, 4), Need("s", 25.0, 1), Need("s", 40.0, 0)]
    spans = sorted((job.submit_s, job.submit_s + (job.duration_s or 0.0)) for job in instances_of(needs))
    assert spans == [(0.0, 25.0), (0.0, 40.0), (10.0, 25.0), (10.0, 25.0)]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=12), st.integers(1, 3))
def test_there_are_always_as_many_as_are_needed(levels: list[int], each: int) -> None:
    needs = [Need("s", 5.0 * i, gpus) for i, gpus in enumerate([*levels, 0])]
    jobs = instances_of(needs, each)
    for need in needs:
        now = need.time_s + 1.0
        there = [job for job in jobs if job.submit_s <= now < job.submit_s + (job.duration_s or 0.0)]
        assert sum(job.gpus or 0 for job in there) == each * -(-need.gpus // each)


def test_the_day_moves_the_need_around_its_mean() -> None:
    needs = Diurnal(mean_gpus=100.0, swing=0.5, sigma=0.0).needs(seed=1)
    levels = [need.gpus for need in needs[:-1]]
    assert (min(levels), max(levels), sum(levels) / len(levels)) == (50, 150, pytest.approx(100, abs=0.1))
    assert next(need.gpus for need in needs if need.time_s == 14 * 3600) == 150
    assert needs[-1].gpus == 0


def test_a_seed_gives_the_same_need_and_another_seed_another() -> None:
    first, again, other = (Diurnal(mean_gpus=50.0).needs(seed) for seed in (1, 1, 2))
    assert first == again != other
