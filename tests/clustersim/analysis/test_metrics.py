"""Metrics: by hand, laws that hold for every run, and the page that documents them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from math import fsum
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import clustersim
from clustersim.analysis import (
    METRICS,
    Usage,
    allocations,
    measured_jobs,
    summarise,
    window_metrics,
    with_window,
)
from clustersim.analysis.windows import UNDEFINED_IN_A_WINDOW
from clustersim.cluster import Cluster
from clustersim.grid.gridfile import NUMERIC_METRICS
from clustersim.records import FINISHED, JobRecord, Run, Snapshot
from clustersim.scheduler import JobView, Scheduler, State
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
    return window_metrics(run.jobs, run.snapshots, run.cluster, warmup_s=warmup_s, measure_s=measure_s)


def test_a_window_over_everything_gives_the_summary_and_one_over_nothing_no_values() -> None:
    run = run_of([Job(str(k), 7.0 * k, gpus=4, duration_s=20.0, deadline_s=7.0 * k + 30) for k in range(9)])
    values = window(run, 0.0, None)
    same = set(NUMERIC_METRICS) - {*UNDEFINED_IN_A_WINDOW, "gpu_allocated_ratio", "fragmentation_ratio"}
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
