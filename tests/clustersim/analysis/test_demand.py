"""Offered load, waiting and the tail of a run, by hand and against counting second by second."""

from __future__ import annotations

from math import fsum

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
