"""Presets fitted to traces of known processes find them again, and survive their file."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from itertime.errors import UserError
from traces import synthetic
from traces.fitting import fit_preset, held_out, preset_text, write_preset
from traces.fitting.run_times import table_of
from traces.job import Job
from traces.statistics import JobColumns, distances
from traces.synthetic import Owners, QuantileTable, Recipe, generate, load_preset

HOURS = tuple(1.5 if 8 <= hour < 20 else 0.5 for hour in range(24))
KNOWN = synthetic.Preset(
    source="a test",
    sizes=(
        synthetic.SizeClass(1, 3, quantiles=synthetic.Quantiles(((0, 60), (0.5, 600), (1, 6000)))),
        synthetic.SizeClass(8, 1, quantiles=synthetic.Quantiles(((0, 600), (0.5, 6000), (1, 60_000)))),
    ),
    arrivals=synthetic.Rhythm(
        jobs_per_day=200,
        gaps=QuantileTable(((0, 0.01), (0.5, 0.3), (1, 5))),
        zero_share=0.2,
        gap_correlation=0.4,
        hours=HOURS,
        weekdays=(1.2, 1.2, 1.2, 1.2, 1.2, 0.5, 0.5),
        day_sigma=0.4,
        day_correlation=0.5,
    ),
    tenants=Owners(10, 1.2),
    repeat_share=0.3,
)


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, JobColumns]:
    path = tmp_path_factory.mktemp("preset") / "known.yaml"
    write_preset(KNOWN, path, "two\nlines")
    recipe = Recipe(jobs=20_000, rules="none", deadlines="none", load=None, preset=str(path))
    return path, JobColumns.of(generate(recipe)[0], zero_s=4 * 86_400.0)  # Monday, 5 January 1970


def test_a_preset_survives_its_file(known: tuple[Path, JobColumns]) -> None:
    assert known[0].read_text().startswith("# two\n# lines\nsource: >-\n  a test\n")
    assert load_preset(known[0]) == KNOWN


def test_a_fit_finds_the_process_again(known: tuple[Path, JobColumns]) -> None:
    fitted = fit_preset(known[1], "a test")
    rhythm, truth = fitted.arrivals, KNOWN.arrivals
    assert rhythm.jobs_per_day == pytest.approx(200, rel=0.2)  # the days' factors average out slowly
    assert rhythm.zero_share == pytest.approx(0.2, abs=0.02)
    assert rhythm.gap_correlation == pytest.approx(0.4, abs=0.08)
    assert rhythm.day_sigma == pytest.approx(0.4, abs=0.12)
    assert rhythm.day_correlation == pytest.approx(0.5, abs=0.25)
    assert np.allclose(rhythm.hours, truth.hours, atol=0.2)
    assert np.allclose(rhythm.weekdays, truth.weekdays, atol=0.4)
    assert fitted.repeat_share == pytest.approx(0.3, abs=0.03)
    assert fitted.tenants is not None
    assert fitted.tenants.count == 10
    assert np.allclose(fitted.tenants.ends, Owners(10, 1.2).ends, atol=0.02)
    assert [size.gpus for size in fitted.sizes] == [1, 8]
    assert fitted.mix.shares[0] == pytest.approx(0.75, abs=0.02)
    for found, size in zip(fitted.sizes, KNOWN.sizes, strict=True):
        assert found.run_time.expected_s() == pytest.approx(size.run_time.expected_s(), rel=0.06)


def test_what_a_fit_generates_is_as_far_as_two_halves(known: tuple[Path, JobColumns], tmp_path: Path) -> None:
    judged = held_out(known[1], tmp_path)
    assert judged["jobs"] == {"first": 12_000, "rest": 8000}
    for one in judged["distances"]:
        assert one["times_baseline"] < 1.6, one
        assert one["first_to_rest"] >= 0


def test_a_poisson_process_is_told_from_a_log_that_is_none(tmp_path: Path) -> None:
    """Judged against a process that it did not see, a fit is further away than two halves are."""
    poisson, _ = generate(
        Recipe(jobs=3000, rules="none", deadlines="none", sizes="exponential", load=0.5, gpus=8)
    )
    path = tmp_path / "p.yaml"
    write_preset(fit_preset(JobColumns.of(poisson), "x"), path)
    made, _ = generate(Recipe(jobs=3000, rules="none", deadlines="none", load=None, preset=str(path)))
    bursty = replace(Recipe(jobs=3000, rules="none", deadlines="none"), arrivals="bursty", sizes="itp")
    near = distances(JobColumns.of(poisson), JobColumns.of(made))
    far = distances(JobColumns.of(generate(bursty)[0]), JobColumns.of(made))
    assert max(one["times_baseline"] for one in near) < 2.5
    assert max(one["times_baseline"] for one in far) > 5


def test_the_mean_of_a_table_is_that_of_the_values() -> None:
    values = np.random.default_rng(0).lognormal(6, 2, 5000)
    table = QuantileTable(table_of(values))
    assert table.expected() == pytest.approx(values.mean(), rel=0.01)
    assert table.quantile(0.5) == pytest.approx(np.median(values), rel=1e-3)
    assert table.quantile(1.0) == pytest.approx(values.max(), rel=1e-3)


def test_rare_gpu_counts_go_to_the_nearest_of_sixteen() -> None:
    jobs = [Job(str(i), 60.0 * i, gpus=1 + i % 40, duration_s=60.0 + i % 7) for i in range(4000)]
    fitted = fit_preset(JobColumns.of(jobs), "x")
    assert len(fitted.sizes) == 16
    assert sum(size.share for size in fitted.sizes) == 4000


def test_too_few_jobs_are_refused() -> None:
    with pytest.raises(UserError, match=r"3 jobs with GPUs and run time, .*: a preset needs 20 jobs"):
        fit_preset(JobColumns.of([Job(str(i), float(i), gpus=1, duration_s=1.0) for i in range(3)]), "x")
    with pytest.raises(UserError, match="submitted over 0 s: a preset needs"):
        fit_preset(JobColumns.of([Job(str(i), 0.0, gpus=1, duration_s=1.0) for i in range(30)]), "x")


def test_the_text_of_a_preset_is_short() -> None:
    assert len(preset_text(KNOWN).splitlines()) < 20
