"""Metrics: by hand, laws, the page that documents them; paired differences and their corrections."""

import json
import re
from dataclasses import replace
from itertools import product
from math import fsum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import clustersim
from clustersim.analysis import (
    LEAST_PAIRS,
    METRICS,
    Usage,
    allocations,
    holm,
    measured_jobs,
    paired_difference,
    summarise,
    window_metrics,
    with_window,
)
from clustersim.analysis.statistics import bootstrap_t_interval, mean_difference, sign_flip_p  # fmt: skip
from clustersim.analysis.windows import UNDEFINED_IN_A_WINDOW
from clustersim.audit import check_run_folder
from clustersim.cluster import Cluster
from clustersim.grid.gridfile import NUMERIC_METRICS, ON_DEMAND
from clustersim.records import FINISHED, JobRecord, Run, Snapshot
from clustersim.scheduler import JobView, Scheduler, State
from itertime.errors import UserError
from policies.fifo import Fifo
from policies.srtf import Srtf
from tests.effort import examples
from tests.places import ROOT
from traces import Job

CLUSTER = Cluster(nodes=2, gpus_per_node=4)
NOTHING = JobRecord(
    job_id="", tenant="t", model="", state="finished", submit_s=0.0, start_s=None, finish_s=None, jct_s=None,
    queue_s=None, wait_s=0.0, gpus=None, gpu_seconds=0.0, overhead_gpu_s=0.0, isolated_s=None,
    deadline_s=None, deadline_met=None, preemptions=0, resizes=0, restarts=0, migrations=0, lost_s=0.0,
    reason="",
)  # fmt: skip

# A: 4 GPUs as 3 + 1 on both nodes, so that the other 4 are stranded; B: all 8 GPUs after A; C can never run.
A = replace(
    NOTHING, job_id="A", submit_s=0.0, start_s=0.0, finish_s=100.0, jct_s=100.0, queue_s=0.0, gpus=4,
    gpu_seconds=400.0, overhead_gpu_s=40.0, isolated_s=90.0, deadline_s=120.0, deadline_met=True,
    preemptions=1, restarts=1, migrations=2,
)  # fmt: skip
B = replace(
    NOTHING, job_id="B", submit_s=10.0, start_s=100.0, finish_s=160.0, jct_s=150.0, queue_s=90.0, wait_s=90.0,
    gpus=8,
    gpu_seconds=480.0, overhead_gpu_s=80.0, isolated_s=50.0, deadline_s=150.0, deadline_met=False, resizes=3,
)  # fmt: skip
C = replace(NOTHING, job_id="C", state="rejected", submit_s=20.0, deadline_s=500.0, deadline_met=False)
SNAPSHOTS = [
    Snapshot(0.0, 4, 4, 1, 0),
    Snapshot(10.0, 4, 4, 1, 1),
    Snapshot(100.0, 8, 0, 1, 0),
    Snapshot(160.0, 0, 0, 0, 0),
]

BY_HAND = {
    "jobs": 3, "finished": 2, "rejected": 1, "unfinished": 0, "failed": 0,
    "offered_load": (4 * 90 + 8 * 50) / (8 * 20), "arrival_window_s": 20.0, "load_jobs": 2,
    "jct_mean_s": 125.0, "jct_p50_s": 125.0, "jct_p90_s": 145.0, "jct_p99_s": 149.5,
    "queue_mean_s": 45.0, "queue_p99_s": 89.1,
    "wait_mean_s": 45.0, "wait_p99_s": 89.1, "waited_ratio": 1 / 2, "makespan_s": 160.0,
    "tail_jobs": 1, "tail_ratio": 60 / 160,  # B alone, once A has left
    "gpu_allocated_arrival_ratio": 1 / 2,
    "gpu_allocated_ratio": 880 / 1280, "gpu_useful_ratio": 760 / 1280, "fragmentation_ratio": 400 / 1280,
    "deadline_jobs": 3, "deadline_met_ratio": 1 / 3,
    "jct_over_bound": 125 / 100, "makespan_over_bound": 160 / 100, "deadlines_of_bound": 1 / 2,
    "preemptions": 1, "resizes": 3, "restarts": 1, "migrations": 2, "interruptions": 0,
    "lost_gpu_h": 120 / 3600,
    "slowdown_mean": (100 / 90 + 150 / 50) / 2,
    # N_B = (90 s x 2 + 60 s x 1) / 150 s = 1.6; A asks for less than its share.
    "finish_time_fairness_max": 150 / (50 * 1.6),
    "jain_index": (0.9 + 1 / 3) ** 2 / (2 * (0.9**2 + 1 / 9)), "cost_usd": 880 / 3600 * 5,
    "wall_s": None, "policy_wall_s": None, "events": 7,
    "covers": "jct_*, queue_*, wait_*: the 2 finished of 3 submitted jobs; offered_load: the 2 that can run "
    "here; waited_ratio: the 2 admitted; slowdown_mean, finish_time_fairness_max, jain_index: "
    "the same; deadline_met_ratio: all submitted jobs with a deadline; "
    "counts and sums: all submitted jobs",
}  # fmt: skip


BOUND = {"jct_mean_s": 100.0, "makespan_s": 100.0, "deadline_met_ratio": 2 / 3}


def test_three_jobs_by_hand() -> None:
    summary = summarise([A, B, C], SNAPSHOTS, CLUSTER, end_s=160.0, events=7, bound=BOUND)
    assert list(summary) == list(METRICS)
    for name, expected in BY_HAND.items():
        exact = type(expected) is not float
        assert summary[name] == (expected if exact else pytest.approx(expected, rel=1e-12)), name


@pytest.mark.parametrize("bound", [None, {}, dict.fromkeys(BOUND), dict.fromkeys(BOUND, 0.0)])
def test_without_a_bound_there_is_no_distance_from_it(bound: dict[str, float | None] | None) -> None:
    summary = summarise([A, B, C], SNAPSHOTS, CLUSTER, end_s=160.0, events=7, bound=bound)
    assert [summary[name] for name in METRICS if "bound" in name] == [None] * 3


@pytest.mark.parametrize("jobs", [[], [C], [replace(B, state="unfinished", finish_s=None, jct_s=None)]])
def test_undefined_is_none_and_never_nan(jobs: list[JobRecord]) -> None:
    summary = summarise(jobs, [], CLUSTER, end_s=5.0, events=0)
    json.dumps(summary, allow_nan=False)
    kinds = ("jct", "queue", "wait_", "tail_", "slowdown", "gpu_", "jain", "finish_time", "offered")
    averages = [name for name in METRICS if name.startswith(kinds)]
    assert len(averages) == 18
    assert [summary[name] for name in [*averages, "makespan_s", "fragmentation_ratio"]] == [None] * 20
    assert (summary["deadline_met_ratio"] is None) == (not jobs)


def test_jobs_that_took_no_time_have_no_slowdown_and_covers_says_so() -> None:
    instant = replace(A, finish_s=0.0, jct_s=0.0, isolated_s=0.0, gpu_seconds=0.0, overhead_gpu_s=0.0)
    summary = summarise([A, B, instant], SNAPSHOTS, CLUSTER, end_s=160.0, events=0)
    assert summary["slowdown_mean"] == pytest.approx(BY_HAND["slowdown_mean"])
    assert "the 3 finished of 3" in str(summary["covers"])
    assert "the 2 of them that took time" in str(summary["covers"])
    only = summarise([instant], SNAPSHOTS[-1:], CLUSTER, end_s=160.0, events=0)
    assert only["gpu_allocated_ratio"] is None  # a makespan of 0 has no utilisation


@settings(max_examples=examples(60), deadline=None)
@given(
    steps=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 9)), min_size=1, max_size=15),
    spans=st.lists(st.tuples(st.integers(0, 300), st.integers(1, 300)), min_size=1, max_size=5),
    origin=st.sampled_from([0, 1_500_000_000]),
)
def test_integrals_and_averages_equal_a_sum_over_seconds(
    steps: list[tuple[int, int]], spans: list[tuple[int, int]], origin: int
) -> None:
    times = origin + np.cumsum([gap for gap, _ in steps])
    snapshots = [Snapshot(float(t), v, 0, v, 0) for t, (_, v) in zip(times, steps, strict=True)]
    usage = Usage.of(snapshots, float(times[-1] + 20))
    second = np.arange(origin, origin + 1200)
    row = np.searchsorted(times, second, side="right") - 1
    values = np.where((row >= 0) & (second < usage.end_s), usage.jobs[row], 0.0)
    starts = np.array([float(origin + a) for a, _ in spans])
    ends = starts + [length for _, length in spans]
    expected = [values[int(a) - origin : int(b) - origin] for a, b in zip(starts, ends, strict=True)]
    averages = usage.averages(usage.jobs, starts, ends)
    assert averages == pytest.approx([part.mean() for part in expected], abs=1e-9)
    for a, b, part in zip(starts, ends, expected, strict=True):
        assert usage.integral(usage.allocated, a, b) == pytest.approx(part.sum(), abs=1e-6)


def test_the_page_gives_every_metric_one_formula() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if re.match(r"\| `", line)]
    documented = [name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])]
    assert sorted(documented) == sorted(METRICS)
    assert all(re.split(r"(?<!\\)\|", row)[3].strip() for row in rows), "a metric without a formula"


GPUS = 8


class Picky(Fifo):
    """Declines every job of tenant "unwelcome"."""

    def admit(self, job: JobView, state: State) -> bool:
        return job.tenant != "unwelcome"


def run_of(jobs: list[Job], policy: str | type[Scheduler] = "fifo", **settings: object) -> Run:
    return clustersim.run(jobs, policy, cluster="n2g4", **{"overheads": None, **settings})


TRACES = st.lists(
    st.tuples(st.integers(0, 400), st.integers(1, 10), st.integers(1, 200), st.booleans()),
    min_size=1,
    max_size=14,
).map(
    lambda rows: [
        Job(str(i), float(s), gpus=g, duration_s=float(d), tenant="unwelcome" if declined else "t")
        for i, (s, g, d, declined) in enumerate(rows)
    ]
)


@settings(max_examples=examples(50), deadline=None)
@given(jobs=TRACES)
def test_the_load_is_that_of_the_trace_whatever_the_policy_does(jobs: list[Job]) -> None:
    """Declined jobs offer load; jobs of more GPUs than there are do not."""
    can_run = [job for job in jobs if (job.gpus or 0) <= GPUS]
    length_s = max(job.submit_s for job in jobs) - min(job.submit_s for job in jobs)
    asked = fsum((job.gpus or 0) * (job.duration_s or 0.0) for job in can_run)
    for policy in (Fifo, Srtf, Picky):
        summary = run_of(jobs, policy).summary
        assert summary["load_jobs"] == len(can_run)
        assert summary["arrival_window_s"] == length_s
        expected = None if not length_s else pytest.approx(asked / (GPUS * length_s), rel=1e-12)
        assert summary["offered_load"] == expected


@settings(max_examples=examples(50), deadline=None)
@given(jobs=TRACES, scale=st.sampled_from([0.0, 0.1, 1.0]))
def test_waiting_is_jct_less_all_time_with_gpus(jobs: list[Job], scale: float) -> None:
    """Also where overheads are paid: they hold GPUs."""
    run = run_of(jobs, Srtf, overheads={"scale": scale})
    held: dict[str, float] = {}
    for one in allocations(run):
        held[one.given.job_id] = held.get(one.given.job_id, 0.0) + one.held_s
    waits = [job.jct_s - held[job.job_id] for job in run.jobs if job.state == FINISHED and job.jct_s]
    if not waits:
        return
    assert run.summary["wait_mean_s"] == pytest.approx(np.mean(waits), abs=1e-6)
    assert run.summary["wait_p99_s"] == pytest.approx(np.percentile(waits, 99), abs=1e-6)
    assert run.summary["wait_mean_s"] >= run.summary["queue_mean_s"] - 1e-9


def test_declined_jobs_did_not_wait_and_unfinished_ones_did() -> None:
    tenants = enumerate(("t", "t", "unwelcome"))
    jobs = [Job(str(i), float(i), gpus=8, duration_s=500.0, tenant=tenant) for i, tenant in tenants]
    summary = run_of(jobs, Picky, until_s=100.0).summary
    assert (summary["rejected"], summary["unfinished"], summary["waited_ratio"]) == (1, 2, 0.5)


def tail_by_seconds(run: Run, jobs: list[Job]) -> tuple[int, float]:
    """For runs with whole seconds: count the jobs in the system in every second."""
    first_s = min(job.submit_s for job in jobs)
    last_s = max(job.finish_s for job in run.jobs if job.finish_s is not None)
    arrivals_s = max(job.submit_s for job in jobs)
    lives = [(job.submit_s, job.finish_s) for job in run.jobs if job.finish_s is not None]
    count = [sum(a <= at < b for a, b in lives) for at in np.arange(first_s, last_s)]
    from_s = last_s
    while from_s > arrivals_s and count[int(from_s - first_s) - 1] <= max(1, len(jobs) / 100):
        from_s -= 1
    there = count[int(from_s - first_s)] if from_s < last_s else 0
    return there, (last_s - from_s) / (last_s - first_s)


@settings(max_examples=examples(60), deadline=None)
@given(jobs=TRACES)
def test_the_tail_is_what_counting_finds(jobs: list[Job]) -> None:
    run = run_of(jobs)
    if not run.summary["finished"]:
        assert run.summary["tail_ratio"] is None
        return
    there, share = tail_by_seconds(run, jobs)
    assert run.summary["tail_ratio"] == pytest.approx(share)
    assert run.summary["tail_jobs"] == there


def test_three_of_four_hundred_jobs_may_be_a_tail() -> None:
    short = [Job(f"s{i}", float(i), gpus=1, duration_s=1.0) for i in range(397)]
    long = [Job(f"l{i}", 100.0, gpus=1, duration_s=900.0) for i in range(3)]
    summary = run_of([*short, *long]).summary
    assert summary["tail_jobs"] == 4, "the three, and the one that is submitted last"
    assert summary["tail_ratio"] == pytest.approx((1000 - 396) / 1000)


def window(run: Run, warmup_s: float, measure_s: float | None) -> dict[str, object]:
    return window_metrics(
        run.jobs, run.snapshots, run.cluster, warmup_s=warmup_s, measure_s=measure_s,
        price_usd_per_gpu_h=run.manifest["price_usd_per_gpu_h"],
    )  # fmt: skip


def test_a_window_over_everything_gives_the_summary_and_one_over_nothing_no_values() -> None:
    run = run_of([Job(str(k), 7.0 * k, gpus=4, duration_s=20.0, deadline_s=7.0 * k + 30) for k in range(9)])
    values = window(run, 0.0, None)
    same = set(NUMERIC_METRICS) - {
        *ON_DEMAND,
        *UNDEFINED_IN_A_WINDOW,
        "gpu_allocated_ratio",
        "fragmentation_ratio",
    }
    assert {name: values[name] for name in same} == {name: run.summary[name] for name in same}
    empty = window(run, 1.0, 1.0)
    assert (empty["jobs"], empty["jct_mean_s"]) == (0, None)


def test_a_summary_has_the_window_beside_the_whole_run(tmp_path: Path) -> None:
    jobs = [Job(str(k), 10.0 * k, gpus=8, duration_s=20.0) for k in range(5)]
    whole, run = run_of(jobs), run_of(jobs, warmup_s=10.0, measure_s=20.0, out=tmp_path)
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


def test_energy_by_hand(tmp_path: Path) -> None:
    """16 GPUs of 400 W for 1,000 s: 4 train, and 12 are idle at 15 %."""
    jobs = [Job("a", 0.0, gpus=4, duration_s=1000.0)]
    settings: dict[str, Any] = {"cluster": "n2g8", "overheads": None, "out": tmp_path / "run"}
    run = clustersim.run(jobs, "fifo", energy={"load": 0.8, "pue": 1.5}, **settings)
    busy_w = 60 + 0.8 * 340
    assert run.summary["energy_kwh"] == pytest.approx(1.5 * (12 * 60 + 4 * busy_w) * 1000 / 3.6e6)
    assert [check for check in check_run_folder(tmp_path / "run") if check.violations] == []
    summary = tmp_path / "run" / "summary.json"
    summary.write_text(summary.read_text().replace('"energy_kwh": 0', '"energy_kwh": 1'))
    assert any("energy_kwh" in str(check.violations) for check in check_run_folder(tmp_path / "run"))
    with pytest.raises(UserError, match=r"state it: --set energy\.limit_w=W"):
        clustersim.run(jobs, "fifo", cluster=str(ROOT / "docs" / "fleet.yaml"), energy={"load": 1})


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
        run = run_of(jobs)
        early.append(window(run, 0.0, 20.0)["queue_mean_s"])
        late.append(window(run, 300.0, 1400.0)["queue_mean_s"])
    error = float(np.std(late, ddof=1) / np.sqrt(len(late)))  # type: ignore[arg-type]
    assert np.mean(late) == pytest.approx(4.0, abs=3.5 * error)  # type: ignore[arg-type]
    assert np.mean(early) < 2.5  # type: ignore[arg-type]


finite = st.floats(-1e6, 1e6, allow_nan=False)


def pairs(differences: np.ndarray) -> np.ndarray:
    return np.stack([np.zeros_like(differences), differences], axis=1)


@pytest.mark.parametrize(("draw", "mean", "least"), [("normal", 1.0, 0.88), ("lognormal", 1.6487, 0.84)])
def test_intervals_cover_the_truth_about_as_often_as_they_say(draw: str, mean: float, least: float) -> None:
    """Of intervals from ten pairs each. The bounds are three standard errors below what
    benchmarks/intervals.py measures over more cases, 94 % and 91 %.
    """
    rng = np.random.default_rng(7)
    hits = 0
    for seed in range(160):
        differences = rng.normal(1.0, 1.0, 10) if draw == "normal" else rng.lognormal(0.0, 1.0, 10)
        low, high = bootstrap_t_interval(pairs(differences), mean_difference, seed)
        assert low is not None
        assert high is not None
        hits += low <= mean <= high
    assert least <= hits / 160 <= 0.995


def test_an_interval_is_close_to_students_for_normal_differences() -> None:
    """For many normal differences bootstrap-t and Student's t interval agree (Efron and Tibshirani, 12.5)."""
    differences = np.random.default_rng(3).normal(5.0, 2.0, 60)
    low, high = bootstrap_t_interval(pairs(differences), mean_difference)
    expected = stats.t.interval(0.95, 59, differences.mean(), stats.sem(differences))
    assert (low, high) == pytest.approx(expected, abs=0.12)


def test_the_relative_difference_is_that_of_the_means() -> None:
    base = [10.0, 20.0, 30.0, 40.0, 50.0, 60.0]
    d = paired_difference(base, [0.8 * b for b in base])
    assert d.difference == pytest.approx(-7.0)
    assert d.relative == pytest.approx(-0.2)
    assert d.relative_low == pytest.approx(-0.2)
    assert d.relative_high == pytest.approx(-0.2)
    assert d.low is not None
    assert d.high is not None
    assert d.low < -7.0 < d.high


SKEWED = ([2.97, 25.4, 2.9, 3.1, 42.5, 2.81], [2.96, 2.44, 2.9, 2.9, 3.04, 2.81])
"""Mean JCT in hours under two policies over six traces, two of which hold a job as large as the cluster."""


def test_intervals_of_few_skewed_pairs_stay_within_what_is_possible() -> None:
    """Resamples that hold one pair several times have no spread; they once made this one 60,000 h long."""
    d = paired_difference(*SKEWED)
    assert None not in (d.low, d.high, d.relative_low, d.relative_high)
    assert -80 < d.low < d.difference < d.high < 5  # type: ignore[operator]
    assert -1 <= d.relative_low < d.relative < d.relative_high < 0  # type: ignore[operator]
    shares = paired_difference([0.88, 0.23, 0.9, 0.87, 0.58, 0.92], [1.0] * 6, limit=1.0)
    assert shares.high is not None
    assert shares.high <= 1.0
    some_zero = paired_difference([0.9, 0.3, 0.4, 0.5, 0.8, 0.6], [0.0, 0.1, 0.2, 0.01, 0.001, 0.3])
    assert some_zero.relative_low == -1.0


@settings(deadline=None, max_examples=examples(20))
@given(st.lists(st.tuples(st.floats(0.01, 1e4), st.floats(0.01, 1e4)), min_size=5, max_size=8))
def test_nothing_positive_falls_by_more_than_all_of_it(values: list[tuple[float, float]]) -> None:
    base, variant = zip(*values, strict=True)
    d = paired_difference(base, variant)
    if d.relative_low is not None:
        assert d.relative_low >= -1


def test_the_interval_of_a_ratio_covers_the_truth() -> None:
    """Ten pairs, log-normal baselines, a variant of 0.8 exp(0.3 Z) times as much: 90 % in 500 cases."""
    rng, hits, truth = np.random.default_rng(11), 0, 0.8 * np.exp(0.045) - 1
    for seed in range(160):
        base = rng.lognormal(0.0, 1.0, 10)
        d = paired_difference(base.tolist(), (0.8 * base * rng.lognormal(0.0, 0.3, 10)).tolist(), seed=seed)
        assert d.relative_low is not None
        assert d.relative_high is not None
        hits += d.relative_low <= truth <= d.relative_high
    assert 0.82 <= hits / 160 <= 0.995


def test_what_is_undefined_is_none() -> None:
    few = paired_difference([1.0] * 4, [2.0, 3.0, 4.0, 5.0])
    assert (few.pairs, few.low, few.p, few.relative) == (4, None, None, 2.5)
    assert few.pairs < LEAST_PAIRS
    zero = paired_difference([0.0] * 6, [1.0, 2.0, 1.0, 2.0, 1.0, 2.0])
    assert (zero.relative, zero.relative_low) == (None, None)
    assert zero.difference == pytest.approx(1.5)
    partly = paired_difference([1.0, None, 3.0], [2.0, 2.0, None])
    assert (partly.pairs, partly.left_out, partly.difference) == (1, 2, 1.0)
    nothing = paired_difference([None], [1.0])
    assert (nothing.pairs, nothing.left_out, nothing.difference, nothing.p) == (0, 1, None, None)
    alike = paired_difference([1.0] * 6, [1.5] * 6)
    assert (alike.low, alike.p, alike.difference) == (None, None, 0.5), "seeds changed nothing"


def test_a_difference_in_one_pair_of_many_gives_no_interval() -> None:
    """36 % of resamples do not hold the one pair that differs: their error has no scale."""
    one = paired_difference([1.0] * 20, [1.0] * 19 + [2.0])
    assert (one.low, one.high, one.relative_low, one.relative_high) == (None, None, None, None)
    assert one.difference == pytest.approx(0.05)
    assert one.p == 1.0


@settings(deadline=None, max_examples=examples(30))
@given(st.lists(st.tuples(finite, finite), min_size=1, max_size=8))
def test_exchanging_the_two_sides_changes_signs_alone(values: list[tuple[float, float]]) -> None:
    a, b = zip(*values, strict=True)
    forth, back = paired_difference(a, b), paired_difference(b, a)
    assert forth.difference == pytest.approx(-back.difference, abs=1e-6)  # type: ignore[operator]
    assert forth.p == back.p
    if forth.low is not None and forth.high is not None and forth.difference is not None:
        slack = 1e-9 * max(map(abs, (*a, *b)))
        assert forth.low - slack <= forth.difference <= forth.high + slack


# Tests


def test_the_sign_flip_test_by_hand() -> None:
    """Of the 8 sign patterns of (1, 2, 4) only +++ and --- reach a sum of 7; four reach 5 or more."""
    assert sign_flip_p(np.array([1.0, 2.0, 4.0])) == 2 / 8
    assert sign_flip_p(np.array([-1.0, 2.0, 4.0])) == 4 / 8
    assert sign_flip_p(np.zeros(5)) == 1.0
    assert sign_flip_p(np.arange(1.0, 11.0)) == 2 / 2**10


@pytest.mark.parametrize("n", [8, 20])
def test_the_sign_flip_test_keeps_its_level(n: int) -> None:
    """Without a difference p <= 0.05 in at most 5 % of cases; 300 cases scatter by 1.3 %."""
    rng = np.random.default_rng(n)
    rejected = np.mean([sign_flip_p(rng.normal(size=n), seed) <= 0.05 for seed in range(300)])
    assert rejected <= 0.05 + 3 * 0.0126


def test_drawn_flips_agree_with_all_of_them() -> None:
    differences = np.random.default_rng(5).normal(0.4, 1.0, 15)
    flips = np.array(list(product((1, -1), repeat=15)))
    exact = np.mean(np.abs(flips @ differences) >= abs(differences.sum()) - 1e-9)
    assert sign_flip_p(differences) == pytest.approx(exact, abs=4 * 0.5 / 100)


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.02, 0.03, 0.5]) == pytest.approx([0.04, 0.06, 0.06, 0.5])
    assert holm([0.6, 0.6]) == [1.0, 1.0]
    assert holm([None, 0.2]) == [None, 0.2]
    assert holm([]) == []


@settings(deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_holm_lies_between_no_correction_and_bonferroni(p_values: list[float]) -> None:
    adjusted = holm(p_values)
    for p, q in zip(p_values, adjusted, strict=True):
        assert q is not None
        assert p <= q <= min(1.0, p * len(p_values)) + 1e-12
    order = np.argsort(p_values, kind="stable")
    assert np.all(np.diff(np.array(adjusted, dtype=float)[order]) >= 0)
