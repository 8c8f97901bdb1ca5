"""Priced: theory where there is one, the bound on waiting, its parts one by one, and where it has to cope."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustersim.overheads import Overheads
from clustersim.testing import Outcome, decide
from policies.priced import Priced
from policies.srtf import Srtf
from tests.builders import Bench, elastic, finishes, mean_jct_s, rigid
from tests.effort import examples
from traces.job import Job

LINEAR = {("m", 8): {n: float(n) for n in (1, 2, 4, 8)}}
ROOT_OF_GPUS = {("m", 8): {n: n**0.5 for n in (1, 2, 4, 8)}}


def stream(count: int, seed: int = 0, mean_gap_s: float = 40.0) -> list[Job]:
    """Elastic jobs with work over two orders of magnitude, submitted at random."""
    random, now, jobs = Random(seed), 0.0, []
    for i in range(count):
        now += random.expovariate(1 / mean_gap_s)
        jobs.append(elastic(str(i), now, 4, 10 ** random.uniform(1, 3)))
    return jobs


# Theory


@settings(max_examples=examples(25), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 200), st.integers(1, 100)), min_size=1, max_size=8))
def test_jobs_that_take_the_whole_cluster_are_served_as_srtf_does(jobs: list[tuple[int, int]]) -> None:
    """SRPT has the least mean completion time on one machine (Schrage 1968)."""
    rows = [rigid(str(i), submit_s, 8, run_s) for i, (submit_s, run_s) in enumerate(jobs)]
    bench = Bench("n1g8", LINEAR)
    assert mean_jct_s(bench.run(rows, Priced())) == pytest.approx(mean_jct_s(bench.run(rows, Srtf())))


def first_shares(rows: list[Job], **parameters: float | bool) -> dict[str, int]:
    """What the first decision gives each job, on 8 GPUs, at a speed of n^0.5."""
    policy = Priced(**parameters)  # type: ignore[arg-type]
    decision = decide(policy, pending=rows, table=ROOT_OF_GPUS, overheads=Overheads.none())
    return {job: sum(gpus for _, gpus in place) for job, place in sorted(decision.starts.items())}


def test_two_jobs_share_as_the_price_says() -> None:
    """At a speed of n^0.5 the best size is 1 / lam; the shorter of two jobs has lam = `price` / 8."""
    rows = [elastic("a", 0, 4, 1000), elastic("b", 0, 4, 100_000)]
    assert first_shares(rows, price=2.0, leftover=False) == {"a": 4, "b": 4}
    assert first_shares(rows, price=4.0, leftover=False) == {"a": 2, "b": 4}
    assert first_shares(rows, price=8.0, leftover=False) == {"a": 1, "b": 4}
    assert first_shares(rows, price=4.0, leftover=False, rank=False) == {"a": 1, "b": 1}


# No job waits for ever


def bound_s(late: Job, due_s: Mapping[str, float], jobs: list[Job], outcome: Outcome) -> float:
    """The bound of docs/policies/priced.md on the time at which `late` is done, for speeds that are those of
    LINEAR and starts that take at most 10 s.
    """
    ends, due = finishes(outcome), due_s[late.job_id]
    before = [job for job in jobs if due_s[job.job_id] <= due and (ends[job.job_id] or 0.0) > due]
    return due + sum(3 * (job.iterations or 0.0) + 10.0 for job in before)


def test_a_long_job_is_done_however_many_short_ones_come() -> None:
    """Short jobs keep the GPU busy for ever. With a patience of 2, the long one overtakes them."""
    jobs = [elastic("long", 0.5, 1, 50)]
    jobs += [elastic(f"short{i}", 4.0 * i, 1, 4) for i in range(400)]
    jobs.sort(key=lambda job: job.submit_s)
    bench = Bench("n1g1", {("m", 8): {1: 1.0}})
    late = {patience: finishes(bench.run(jobs, Priced(patience=patience)))["long"] for patience in (2, 1e6)}
    assert late[1e6] == 1650.0  # after all others
    assert late[2] == 150.5  # it is overdue after 2 x 50 s, at an instant without another event


@settings(max_examples=examples(30), deadline=None)
@given(
    st.integers(0, 10_000), st.sampled_from([0.0, 1.0, 3.0, 10.0, 100.0]), st.sampled_from([1.0, 5.0, 50.0]),
    st.sampled_from([1, 4]),
)  # fmt: skip
def test_the_bound_on_completion_times_holds(
    seed: int, patience: float, mean_gap_s: float, overdue: int
) -> None:
    jobs = stream(25, seed, mean_gap_s)
    overheads = Overheads(launch_s=1.0, storage_node_bytes_per_s=1e9)
    policy = Priced(patience=patience, overdue=overdue)
    outcome = Bench("n1g8", LINEAR, {"m": 1e8}, overheads).run(jobs, policy)
    assert max(record.restarts for record in outcome.records) < 1000
    due_s = {j.job_id: j.submit_s + patience * (1.0 + (j.iterations or 0.0) / 8) for j in jobs}
    for job in jobs:
        done_s = finishes(outcome)[job.job_id]
        assert done_s is not None
        assert done_s <= bound_s(job, due_s, jobs, outcome)


# Its parts


def test_without_leftovers_gpus_stay_free() -> None:
    """A price of 10 a GPU-second is worth one GPU a job."""
    rows = [elastic("a", 0, 4, 1000), elastic("b", 0, 4, 100_000)]
    assert first_shares(rows, price=80.0, floor=80.0, leftover=False) == {"a": 1, "b": 1}
    assert first_shares(rows, price=80.0, floor=80.0) == {"a": 4, "b": 4}


# What it has to cope with
