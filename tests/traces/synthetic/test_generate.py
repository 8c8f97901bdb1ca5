import dataclasses
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from scipy import stats

from tests.tables import table_rows
from traces import Job, read_trace, submission_order, write_trace
from traces.summary import summarise
from traces.synthetic import Recipe, generate, generate_stored
from traces.synthetic.arrivals import ARRIVALS, DAY_S, arrival_times, arrivals_within, weibull_shape
from traces.synthetic.generate import gpu_seconds_per_job
from traces.synthetic.recipe import LOADS
from traces.synthetic.sizes import Exponential, LogNormal, list_sizes, load_sizes
from traces.workload.rules import load_rules

GOLDEN = Path(__file__).parent / "golden" / "generated.csv"
RIGID = Recipe(jobs=200, rules="none")
PROCESSES = tuple(kind for kind in ARRIVALS if kind != "at-zero")


def times(kind: str, count: int = 100_000, cv: float | None = None, seed: int = 0) -> np.ndarray:
    return arrival_times(kind, count, 0.01, np.random.default_rng(seed), cv)


# Theory: each bound is 4 standard errors of the estimate.


def test_poisson_gaps_are_exponential() -> None:
    gaps = np.diff(times("poisson"))
    assert abs(gaps.mean() - 100) < 4 * 100 / math.sqrt(len(gaps))
    assert stats.kstest(gaps, "expon", args=(0, 100)).pvalue > 1e-4


@pytest.mark.parametrize("cv", [1.5, 3.0, 4.7])
def test_bursty_gaps_have_the_requested_mean_and_variation(cv: float) -> None:
    shape = weibull_shape(cv)
    law = stats.weibull_min(shape)
    assert law.std() / law.mean() == pytest.approx(cv, rel=1e-9)
    gaps = np.diff(times("bursty", cv=cv))
    assert abs(gaps.mean() - 100) < 4 * 100 * cv / math.sqrt(len(gaps))
    assert stats.kstest(gaps * law.mean() / 100, law.cdf).pvalue > 1e-4


def test_day_and_night_swing_two_to_one_around_the_rate() -> None:
    """The rate is r (1 + sin(2 pi t / day) / 3): 4/3 r at most, 2/3 r at least, r over whole days."""
    submits = times("day-night")
    days = math.floor(submits[-1] / DAY_S)
    submits = submits[submits < days * DAY_S]
    hours = np.bincount((submits % DAY_S // 3600).astype(int), minlength=24) / days / 36
    middle = (np.arange(24) + 0.5) * 2 * math.pi / 24
    expected = 1 + np.sin(middle) / 3 * (math.sin(math.pi / 24) / (math.pi / 24))
    assert np.all(np.abs(hours - expected) < 4 * np.sqrt(expected / days / 36))
    assert abs(hours.mean() - 1) < 4 / math.sqrt(len(submits))


@pytest.mark.parametrize("cv", [1.5, 3.0])
def test_batches_have_the_requested_mean_and_variation(cv: float) -> None:
    """Sizes are geometric with mean m = (cv^2 + 1) / 2, gaps between batches exponential with mean m gaps."""
    gaps = np.diff(times("batches", cv=cv))
    mean_size = (cv**2 + 1) / 2
    assert abs(gaps.mean() - 100) < 4 * 100 * cv / math.sqrt(len(gaps))
    starts = gaps > 0
    spread = math.sqrt((1 - 1 / mean_size) / mean_size / len(gaps))
    assert abs(starts.mean() - 1 / mean_size) < 4 * spread
    assert stats.kstest(gaps[starts], "expon", args=(0, 100 * mean_size)).pvalue > 1e-4
    sizes = np.diff(np.flatnonzero(starts))
    assert abs(sizes.mean() - mean_size) < 4 * math.sqrt(mean_size * (mean_size - 1) / len(sizes))


@pytest.mark.parametrize("kind", PROCESSES)
@pytest.mark.parametrize("window_s", [0.5, 3000.0, 40 * DAY_S + 7])
def test_a_window_begins_with_the_first_job_and_ends_with_the_last(kind: str, window_s: float) -> None:
    """The gaps of the process are scaled; those of day and night keep their hours."""
    submits, free = arrivals_within(kind, 500, window_s, np.random.default_rng(3)), times(kind, 500, seed=3)
    assert (submits[0], submits[-1]) == (0.0, window_s)
    assert np.all(np.diff(submits) >= 0)
    assert np.all(submits <= window_s)
    assert kind == "day-night" or np.allclose(submits, free * (window_s / free[-1]), rtol=1e-12)


def test_poisson_arrivals_in_a_window_are_uniform() -> None:
    """Given their first and last, the others are independent and uniform (Cox and Lewis, section 2.1)."""
    inner = np.concatenate(
        [arrivals_within("poisson", 22, 50.0, np.random.default_rng(k))[1:-1] for k in range(500)]
    )
    assert stats.kstest(inner, "uniform", args=(0, 50)).pvalue > 1e-4


def test_day_and_night_in_a_window_keep_their_hours() -> None:
    """Over whole days a job arrives at time t of the day with density (1 + sin(2 pi t / day) / 3) / day."""
    submits = arrivals_within("day-night", 50_000, 20 * DAY_S, np.random.default_rng(1))
    turns = submits[1:-1] % DAY_S / DAY_S

    def share_before(turn: np.ndarray) -> np.ndarray:
        return turn + (1 - np.cos(2 * math.pi * turn)) / (6 * math.pi)

    assert stats.kstest(turns, share_before).pvalue > 1e-4


def test_all_kinds_start_at_zero_and_ascend() -> None:
    for kind in PROCESSES:
        for count in (1, 2, 1000):
            submits = times(kind, count)
            assert submits[0] == 0.0
            assert len(submits) == count
            assert np.all(np.diff(submits) >= 0)
    assert not times("at-zero", 5).any()
    assert np.allclose(np.diff(times("regular", 50)), 100)


@pytest.mark.parametrize(
    "law",
    [
        LogNormal(17628, 1.4, 1573360, 600),
        LogNormal(50, 0.3, 1e6),
        LogNormal(1, 10, 10, 1),
        Exponential(3600),
    ],
)
def test_run_times_have_the_mean_that_the_load_is_computed_from(law: LogNormal | Exponential) -> None:
    """The mean is the integral of the quantile function over (0, 1); here by the midpoint rule."""
    quantiles = np.array([law.quantile_s((i + 0.5) / 400_000) for i in range(400_000)])
    assert quantiles.mean() == pytest.approx(law.expected_s(), rel=2e-4)
    assert np.all(np.diff(quantiles) >= 0)


def test_a_hardly_truncated_log_normal_has_the_textbook_quantiles() -> None:
    law = LogNormal(100, 0.5, 1e9)
    for uniform in (0.01, 0.5, 0.999):
        assert law.quantile_s(uniform) == pytest.approx(stats.lognorm(0.5, scale=100).ppf(uniform), rel=1e-9)
    assert law.quantile_s(0.0) >= 0
    assert law.quantile_s(math.nextafter(1, 0)) <= 1e9


def test_the_load_of_the_process_is_the_requested_one() -> None:
    """Renewal reward: the standard error of GPU-seconds / span follows from the variances of both."""
    recipe = Recipe(jobs=100_000, load=0.8, gpus=64, rules="none", load_of="process")
    jobs, report = generate(recipe)
    asked = np.array([(job.gpus or 0) * (job.duration_s or 0.0) for job in jobs])
    relative = math.sqrt((asked.std() / asked.mean()) ** 2 + 1) / math.sqrt(len(jobs))
    assert abs(report["load"] / 0.8 - 1) < 4 * relative
    assert 4 * relative < 0.17


def test_m_m_c_jobs_are_exponential_and_of_one_size() -> None:
    jobs, report = generate(
        Recipe(jobs=50_000, load=0.7, gpus=3, sizes="exponential", rules="none", load_of="process")
    )
    run_times = np.array([job.duration_s for job in jobs])
    gaps = np.diff([job.submit_s for job in jobs])
    assert stats.kstest(run_times, "expon", args=(0, 3600)).pvalue > 1e-4
    assert stats.kstest(gaps, "expon", args=(0, 3600 / (0.7 * 3))).pvalue > 1e-4
    assert abs(np.corrcoef(gaps, run_times[1:])[0, 1]) < 4 / math.sqrt(len(gaps))
    assert {job.gpus for job in jobs} == {1}
    assert all(job.deadline_s is None for job in jobs)
    assert report["expected"]["jobs_per_s"] == pytest.approx(0.7 * 3 / 3600)


def test_gpu_counts_have_their_shares() -> None:
    sizes = load_sizes("itp")
    jobs, _ = generate(Recipe(jobs=20_000, rules="none"))
    found = Counter(job.gpus for job in jobs)
    expected = [share * 20_000 for share in sizes.shares]
    observed = [found[size.gpus] for size in sizes.sizes]
    assert stats.chisquare(observed, expected).pvalue > 1e-4


def test_expected_gpu_seconds_follow_the_rules_multipliers(tmp_path: Path) -> None:
    sizes = tmp_path / "two.yaml"
    classes = [{"gpus": n, "share": 1, "exponential": {"mean_s": 100 * n}} for n in (1, 8)]
    sizes.write_text(yaml.safe_dump({"source": "test", "sizes": classes}))
    mine = load_sizes(sizes)
    assert gpu_seconds_per_job(mine, None) == pytest.approx((1 * 100 + 8 * 800) / 2)
    assert gpu_seconds_per_job(mine, load_rules("llm-mix")) == pytest.approx((8 * 100 + 8 * 800) / 2)


# Behaviour.


def fields(jobs: list[Job], *names: str) -> list[Any]:
    return [tuple(getattr(job, name) for name in names) for job in jobs]


@pytest.mark.parametrize(("change", "kept"), table_rows("changing one purpose leaves the others alone"))
def test_changing_one_purpose_leaves_the_others_alone(change: dict[str, Any], kept: tuple[str, ...]) -> None:
    plain, _ = generate(RIGID)
    changed, _ = generate(dataclasses.replace(RIGID, **change))
    assert changed != plain
    assert fields(changed, *kept) == fields(plain, *kept)


def test_a_longer_trace_of_the_same_seed_begins_with_the_same_jobs() -> None:
    recipe = dataclasses.replace(RIGID, load_of="process")
    few, many = generate(recipe)[0], generate(dataclasses.replace(recipe, jobs=300))[0]
    assert fields(many[:200], "submit_s", "gpus", "duration_s") == fields(
        few, "submit_s", "gpus", "duration_s"
    )


def test_the_load_of_a_trace_moves_submissions_alone() -> None:
    of_trace, of_process = (generate(dataclasses.replace(RIGID, load_of=name))[0] for name in LOADS)
    assert fields(of_trace, "gpus", "duration_s") == fields(of_process, "gpus", "duration_s")
    factor = of_trace[-1].submit_s / of_process[-1].submit_s
    assert not math.isclose(factor, 1, rel_tol=0.01)
    for one, other in zip(of_trace, of_process, strict=True):
        assert one.submit_s == pytest.approx(other.submit_s * factor, rel=1e-12)


def test_the_load_by_hand(tmp_path: Path) -> None:
    """20 jobs of 4 GPUs for practically 100 s, at load 0.5 on 8 GPUs: 8,000 GPU-seconds in 2,000 s."""
    law = {"median_s": 100, "sigma": 1e-9, "max_s": 200}
    sizes = tmp_path / "equal.yaml"
    sizes.write_text(
        yaml.safe_dump({"source": "test", "sizes": [{"gpus": 4, "share": 1, "log_normal": law}]})
    )
    jobs, report = generate(
        Recipe(jobs=20, load=0.5, gpus=8, arrivals="regular", sizes=str(sizes), rules="none")
    )
    assert [job.submit_s for job in jobs] == pytest.approx([i * 2000 / 19 for i in range(20)], rel=1e-6)
    assert report["load"] == pytest.approx(0.5, rel=1e-12)
    assert report["cautions"] == []


def test_jobs_that_the_cluster_of_the_load_cannot_hold_are_counted() -> None:
    jobs, report = generate(Recipe(jobs=40, load=1, gpus=8, sizes="itp-8h", seed=4))
    large = [job for job in jobs if (job.gpus or 0) > 8]
    work = {job.job_id: (job.gpus or 0) * (job.duration_s or 0.0) for job in jobs}
    share = sum(work[job.job_id] for job in large) / sum(work.values())
    assert 0 < len(large) < 40
    says = f"{len(large)} of 40 jobs ask for more than 8 GPUs and cannot run there: {share:.1%} of the work"
    assert report["cautions"][-1] == f"{says} is theirs, and no part of the load"
    window_s = jobs[-1].submit_s
    assert sum(work.values()) * (1 - share) / (8 * window_s) == pytest.approx(1) == report["load"]
    report = generate(Recipe(jobs=40, load=1, gpus=1024, sizes="itp-8h", seed=4))[1]
    assert not any("cannot run there" in text for text in report["cautions"])


def test_models_come_from_the_rules_and_fill_the_run_time() -> None:
    from itertime import load_model, load_system, make_planner

    jobs, report = generate(Recipe(jobs=300, seed=2))
    planner = make_planner("best", load_system("dgx-a100-80gb"))
    for job in jobs:
        assert job.kind == "iterations"
        gpus = job.gpus or 0
        run = planner.curve(load_model(str(job.model)), job.global_batch or 0, [gpus])[gpus]
        assert run.iteration_s * (job.iterations or 0.0) == pytest.approx(job.duration_s, rel=1e-12)
        assert 0.5 <= ((job.deadline_s or 0.0) - job.submit_s) / (job.duration_s or 1.0) <= 1.5
    assert report["rules"]["name"] == "llm-mix"
    assert report["planner"] == "best"


def test_deadlines_of_a_share() -> None:
    jobs, _ = generate(dataclasses.replace(RIGID, jobs=4000, deadlines="2:3:0.25"))
    factors = [(j.deadline_s - j.submit_s) / j.duration_s for j in jobs if j.deadline_s is not None]  # type: ignore[operator]
    assert abs(len(factors) - 1000) < 4 * math.sqrt(4000 * 0.25 * 0.75)
    assert min(factors) >= 2 - 1e-9
    assert max(factors) <= 3 + 1e-9
    assert all(job.deadline_s is None for job in generate(dataclasses.replace(RIGID, deadlines="none"))[0])


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "parquet"])
def test_jobs_on_disk_are_written_like_jobs_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    monkeypatch.setattr("traces.native.sorted_jobs.RUN_JOBS", 1000)
    monkeypatch.setattr("traces.native.sorted_jobs.IN_MEMORY_BYTES", 100_000)
    recipe = Recipe(jobs=5000, seed=4, deadlines="1:2:0.5")
    stored, report = generate_stored(recipe)
    jobs, same = generate(recipe)
    assert (report, len(stored), list(submission_order(stored))) == (same, 5000, jobs)
    for name, some in (("stored", stored), ("list", jobs), ("once", iter(jobs))):
        write_trace(some, tmp_path / f"{name}.{ending}")
    files = {(tmp_path / f"{name}.{ending}").read_bytes() for name in ("stored", "list", "once")}
    assert len(files) == 1
    assert read_trace(tmp_path / f"stored.{ending}") == jobs


def test_the_trace_of_a_seed_does_not_change() -> None:
    """Regression: tests/traces/synthetic/golden/generated.csv."""
    recipe = Recipe(jobs=25, arrivals="day-night", cv=2, rules="none", deadlines="0.5:1.5:0.5", seed=7)
    jobs, _ = generate(dataclasses.replace(recipe, load_of="process"))
    golden = read_trace(GOLDEN)
    assert fields(jobs, "job_id", "gpus") == fields(golden, "job_id", "gpus")
    for name in ("submit_s", "duration_s"):
        assert np.allclose(fields(jobs, name), fields(golden, name), rtol=1e-9)
    found, kept = ([j.deadline_s or -1.0 for j in some] for some in (jobs, golden))
    assert np.allclose(found, kept, rtol=1e-9)


def test_bundled_sizes_are_listed() -> None:
    assert list_sizes() == ["exponential", "itp", "itp-8h", "kalos"]


def test_bundled_itp_sizes_are_those_of_the_published_logs(shared_traces: Path) -> None:
    """Published: the seven ITP logs in ../shared/data/traces/itp_raw, to the digits of the sizes file."""
    import pandas as pd

    log = pd.concat([pd.read_csv(path) for path in sorted((shared_traces / "itp_raw").glob("*.csv.gz"))])
    for size in load_sizes("itp").sizes:
        law = size.run_time
        assert isinstance(law, LogNormal)
        assert size.share == (log.num_gpu == size.gpus).sum()
        pooled = [2, 4] if size.gpus in (2, 4) else [size.gpus]
        logs = np.log(log.duration[log.num_gpu.isin(pooled)])
        assert law.median_s == pytest.approx(math.exp(logs.mean()), abs=0.5)
        assert law.sigma == pytest.approx(logs.std(), abs=5e-4)
        assert (law.min_s, law.max_s) == (log.duration.min(), log.duration.max())


def test_weibull_gaps_are_as_short_as_those_of_a_log(shared_traces: Path) -> None:
    """Published: of cluster04's gaps 29 % are within a second; bursty arrivals like it have 25 %."""
    import pandas as pd

    gaps = np.diff(np.sort(pd.read_csv(shared_traces / "itp_raw" / "cluster04.csv.gz").submission_time))
    cv = gaps.std() / gaps.mean()
    made = np.diff(arrival_times("bursty", 50_000, 1 / gaps.mean(), np.random.default_rng(1), cv))
    assert abs((made <= 1).mean() - (gaps <= 1).mean()) < 0.06


def test_bundled_kalos_sizes_follow_the_published_curves(shared_traces: Path) -> None:
    """Published: the curves of Acme's Kalos cluster. Jobs and GPU time by GPUs, in per cent."""
    import json

    curves = json.loads((shared_traces / "derived" / "acme_digitised_cdfs.json").read_text())["cdf"]
    sizes = load_sizes("kalos")
    work = [size.share * size.gpus * size.run_time.expected_s() for size in sizes.sizes]
    ends = [1, 7, 12, 24, 48, 95, 191, 383, 767, 1024]  # GPUs up to which a size class stands for
    for i, end in enumerate(ends):
        for name, shares in (("jobs", [size.share for size in sizes.sizes]), ("gputime", work)):
            published = max(
                (share for gpus, share in curves[f"Kalos gpunum {name}"] if gpus <= end), default=0
            )
            assert abs(100 * sum(shares[: i + 1]) / sum(shares) - published) < 0.5, (end, name)
    assert gpu_seconds_per_job(sizes, None) == pytest.approx(267_905, rel=0.01)  # of Acme's summary table
    law = sizes.sizes[0].run_time
    seconds = [law.quantile_s(u) for u in (0.25, 0.5, 0.75, 0.95)]
    curve = curves["Kalos duration|Eval"]
    found = np.interp(np.log2(seconds), range(len(curve)), curve)
    assert np.allclose(found, [25, 50, 75, 95], atol=10)


def test_precisions_are_drawn_by_weight_and_leave_the_rest_alone() -> None:
    plain, _ = generate(Recipe(jobs=2000, seed=3))
    drawn, _ = generate(Recipe(jobs=2000, seed=3, precisions="bf16:3,fp8:1"))
    assert [dataclasses.replace(job, precision=None) for job in drawn] == plain
    assert {job.precision for job in drawn} == {None, "fp8"}
    share = sum(job.precision == "fp8" for job in drawn) / 2000
    assert share == pytest.approx(0.25, abs=4 * (0.25 * 0.75 / 2000) ** 0.5)
    assert all(job.precision is None for job in generate(dataclasses.replace(RIGID, precisions="fp8"))[0])


def test_users_misstate_work_and_the_rest_stays_as_it_is(tmp_path: Path) -> None:
    plain = dataclasses.replace(RIGID, jobs=40, rules="llm-mix")
    jobs, truth = generate(plain)
    found, report = generate(dataclasses.replace(plain, stated_sigma=0.5))
    assert [dataclasses.replace(job, stated_iterations=None) for job in found] == jobs
    assert (report["demand"], report["load"]) == (truth["demand"], truth["load"]), "of the true work"
    stated = summarise(found)["stated_work"]
    assert stated["jobs"] == 40
    assert 0.3 < stated["sigma"] < 0.7
    assert 0.7 < stated["median_factor"] < 1.4
    assert summarise(jobs)["stated_work"] is None
    write_trace(found, tmp_path / "t.csv")
    assert read_trace(tmp_path / "t.csv") == found
    rigid = dataclasses.replace(RIGID, stated_sigma=0.5)
    assert generate(rigid)[0] == generate(RIGID)[0], "a job of a duration states no work"
