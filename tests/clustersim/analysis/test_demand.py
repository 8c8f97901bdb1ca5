"""Offered load, waiting and the tail of a run, by hand and against counting second by second."""

from __future__ import annotations

from math import fsum
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import clustersim
from clustersim.analysis import allocations
from clustersim.records import FINISHED, Run
from clustersim.scheduler import JobView, Scheduler, State
from policies.fifo import Fifo
from policies.srtf import Srtf
from tests.effort import examples
from traces import Job

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


def test_jobs_after_the_end_of_the_run_are_neither_in_the_load_nor_in_its_window() -> None:
    jobs = [Job(str(k), 100.0 * k, gpus=4, duration_s=50.0) for k in range(5)]
    summary = run_of(jobs, until_s=250.0).summary  # reaches those submitted at 0, 100 and 200
    assert (summary["arrival_window_s"], summary["load_jobs"]) == (200.0, 3)
    assert summary["offered_load"] == pytest.approx(3 * 4 * 50 / (GPUS * 200))
    assert summary["gpu_allocated_arrival_ratio"] == pytest.approx(2 * 4 * 50 / (GPUS * 200))


def test_a_job_that_is_cut_off_offers_all_of_its_work() -> None:
    jobs = [Job("long", 0.0, gpus=8, duration_s=1e6), Job("next", 100.0, gpus=8, duration_s=1.0)]
    summary = run_of(jobs, until_s=150.0).summary
    assert summary["offered_load"] == pytest.approx((8e6 + 8) / (GPUS * 100))
    assert summary["gpu_allocated_arrival_ratio"] == 1.0
    assert summary["makespan_s"] is None


def test_on_several_gpu_types_the_load_is_that_of_the_best_type(tmp_path: Path) -> None:
    """`old` needs 4 GPUs, 100 iterations at 1/s; `new` is twice as fast. A request of 2 GPUs that only `new`
    can run counts there, and a missing request with the fewest GPUs that can run the job.
    """
    (tmp_path / "cluster.yaml").write_text(
        "groups:\n  - {name: old, gpu_type: a100, nodes: 1, gpus_per_node: 4}\n"
        "  - {name: new, gpu_type: h100, nodes: 1, gpus_per_node: 4}\n"
    )
    (tmp_path / "table.csv").write_text(
        "model,global_batch,gpus,iterations_per_s,gpu_type\nm,8,4,1.0,a100\nm,8,4,2.0,h100\nm,8,2,1.25,h100\n"
    )
    jobs = [
        Job(name, at, model="m", global_batch=8, iterations=100.0, gpus=gpus)
        for name, at, gpus in (("four", 0.0, 4), ("two", 10.0, 2), ("any", 20.0, None), ("many", 40.0, 9))
    ]
    summary = clustersim.run(
        jobs, "fifo-skip", cluster=str(tmp_path / "cluster.yaml"), table=str(tmp_path / "table.csv")
    ).summary
    asked = 4 * 100 / 2 + 2 * 100 / 1.25 + 2 * 100 / 1.25
    assert summary["load_jobs"] == 3, "9 GPUs are more than the cluster has"
    assert summary["offered_load"] == pytest.approx(asked / (GPUS * 40), rel=1e-12)


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


def test_a_preempted_job_waits_though_it_started_at_once() -> None:
    jobs = [Job("long", 0.0, gpus=8, duration_s=100.0), Job("short", 10.0, gpus=8, duration_s=30.0)]
    summary = run_of(jobs, Srtf).summary
    assert (summary["queue_mean_s"], summary["wait_mean_s"]) == (0.0, 15.0)
    assert summary["wait_p99_s"] == pytest.approx(29.7)
    assert summary["waited_ratio"] == 0.5


def test_waits_of_a_hundredth_of_the_run_time_do_not_count() -> None:
    first = Job("first", 0.0, gpus=8, duration_s=100.0)
    waits = {0.5: 0.0, 1.5: 0.5}  # seconds of waiting before a run of 100 s
    for wait_s, share in waits.items():
        summary = run_of([first, Job("second", 100.0 - wait_s, gpus=8, duration_s=100.0)]).summary
        assert summary["waited_ratio"] == share


def test_declined_jobs_did_not_wait_and_unfinished_ones_did() -> None:
    jobs = [
        Job("a", 0.0, gpus=8, duration_s=500.0),
        Job("b", 1.0, gpus=8, duration_s=500.0),
        Job("c", 2.0, gpus=8, duration_s=500.0, tenant="unwelcome"),
    ]
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
