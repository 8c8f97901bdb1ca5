"""EDF with admission: no admitted job is late, and no job is declined without need."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import clustersim
from clustersim.overheads import Overheads
from clustersim.testing import simulate
from policies.edf import Edf
from policies.edf_admission import EdfAdmission
from policies.toolkit.gpu_calendar import FreeGpus
from tests.builders import finishes, rigid
from tests.effort import examples
from traces.job import Job


def test_a_job_that_would_make_another_late_is_declined() -> None:
    """`a` needs the GPU until 50 s and is due at 60 s: there is room for 10 s before it, not for 11 s; and
    behind it for what is due late enough.
    """
    jobs = [
        rigid("a", 0, 1, 50, 60), rigid("urgent", 5, 1, 11, 30), rigid("short", 6, 1, 10, 30),
        rigid("behind", 7, 1, 20, 80), rigid("free", 8, 1, 5),
    ]  # fmt: skip
    outcome = simulate(jobs, EdfAdmission(), "n1g1")
    assert finishes(outcome) == {"a": 60, "urgent": None, "short": 16, "behind": 80, "free": 85}
    assert outcome.of("urgent").state == "rejected"


def test_a_job_that_is_late_even_alone_is_declined() -> None:
    outcome = simulate([rigid("a", 0, 1, 10, 9), rigid("b", 0, 2, 10, 100)], EdfAdmission(), "n1g1")
    assert [record.state for record in outcome.records] == ["rejected", "rejected"]


def test_a_job_that_is_late_in_any_case_keeps_no_job_out() -> None:
    """`wide` never has its nodes again; `long` would be in time but for what comes before it."""
    jobs = [
        rigid("wide", 0, 16, 100, 1000), rigid("long", 30, 8, 400, 500), rigid("first", 40, 8, 50, 300),
        rigid("second", 50, 8, 50, 300),
    ]  # fmt: skip
    run = clustersim.run(
        jobs, "edf-admission", cluster="n2g8", overheads=None, calendar=[{"at_s": 20, "remove": "1"}]
    )
    states = {record.job_id: record.state for record in run.jobs}
    assert states == {"wide": "unfinished", "long": "finished", "first": "finished", "second": "rejected"}


def test_restarts_count() -> None:
    """`long` (100 s, due at 200 s) runs from 0 s after 10 s of launch. 20 s of `short` at 50 s take 30 s with
    its launch, then `long` pays 10 + 30 s for its restart and ends at 180 s: admitted. 41 s would make 201 s.
    """
    charged = Overheads(launch_s=10.0, plain_restart_s=30.0)
    for run_s, state in ((20.0, "finished"), (40.0, "finished"), (41.0, "rejected")):
        jobs = [rigid("long", 0, 1, 100, 200), rigid("short", 50, 1, run_s, 110)]
        outcome = simulate(jobs, EdfAdmission(), "n1g1", overheads=charged)
        assert outcome.of("short").state == state
        assert outcome.of("long").finish_s == (110 if state == "rejected" else 160 + run_s)


def test_a_launch_that_is_cut_short_costs_another_launch_only() -> None:
    """`long` (100 s) is preempted 5 s into its launch of 10 s. `short` ends at 35 s, then `long`
    launches again and ends at 145 s. With a save and a load it would end at 175 s.
    """
    charged = Overheads(launch_s=10.0, plain_restart_s=30.0)
    for deadline_s, state in ((145, "finished"), (144, "rejected")):
        jobs = [rigid("long", 0, 1, 100, deadline_s), rigid("short", 5, 1, 20, 40)]
        outcome = simulate(jobs, EdfAdmission(), "n1g1", overheads=charged)
        assert outcome.of("short").state == state
        assert outcome.of("long").finish_s == (145 if state == "finished" else 110)


def random_jobs(seed: int, sizes: tuple[int, ...]) -> list[Job]:
    random, now, jobs = Random(seed), 0.0, []
    for i in range(random.randint(3, 40)):
        now += random.choice((0.0, random.expovariate(1 / 80)))
        run_s = random.choice((20.0, random.uniform(1, 900)))
        deadline_s = now + run_s * random.uniform(0.9, 5) + random.choice((0.0, 100.0))
        jobs.append(
            rigid(str(i), now, random.choice(sizes), run_s, deadline_s if random.random() < 0.8 else None)
        )
    return jobs


def test_small_jobs_move_together_for_the_job_that_counted_on_their_gpus() -> None:
    """At 10 s each node has 2 GPUs free: `wide` was admitted by their number, and needs 4 of one node."""
    jobs = [
        rigid("a", 0, 2, 10, 10), rigid("b", 0, 2, 50, 50), rigid("c", 1, 2, 9, 10), rigid("d", 1, 2, 50, 51),
        rigid("wide", 5, 4, 30, 60), rigid("free", 6, 2, 5),
    ]  # fmt: skip
    outcome = simulate(jobs, EdfAdmission(), "n2g4")
    ends = {"a": 10, "b": 50, "c": 10, "d": 51, "wide": 40, "free": 45}
    assert finishes(outcome) == ends
    assert sum(record.migrations for record in outcome.records) == 1


@given(st.integers(0, 10**9), st.sampled_from(("pack", "spread")))
@example(63, "pack")
@settings(max_examples=examples(150), deadline=None)
def test_no_admitted_job_is_late_in_nodes_where_moves_are_free(seed: int, placement: str) -> None:
    """Of sizes that divide a node or are whole nodes."""
    jobs = random_jobs(seed, (1, 1, 2, 2, 4, 8, 16))
    outcome = simulate(jobs, EdfAdmission(), "n2g4", placement=placement)
    for record in outcome.records:
        if record.state == "finished" and record.deadline_s is not None:
            assert record.finish_s is not None
            assert record.finish_s <= record.deadline_s + 1e-6


@given(st.integers(0, 10**9), st.sampled_from((0.0, 1.0)))
@settings(max_examples=examples(150), deadline=None)
def test_no_admitted_job_is_late_where_any_gpus_will_do(seed: int, scale: float) -> None:
    jobs = random_jobs(seed, (1, 2, 3, 4, 5, 8, 16))
    outcome = simulate(jobs, EdfAdmission(), "n4g4", overheads=Overheads(scale=scale), placement="any")
    for record in outcome.records:
        if record.state == "finished" and record.deadline_s is not None:
            assert record.finish_s is not None
            assert record.finish_s <= record.deadline_s + 1e-6


@given(st.integers(0, 10**9))
@settings(max_examples=examples(60), deadline=None)
def test_on_one_gpu_no_job_is_declined_that_could_be_served(seed: int) -> None:
    """EDF, which is optimal there, makes one of the jobs late that are admitted or declined so far."""
    jobs = random_jobs(seed, (1,))
    outcome = simulate(jobs, EdfAdmission(), "n1g1")
    declined = {record.job_id for record in outcome.records if record.state == "rejected"}
    for i, candidate in enumerate(jobs):
        if candidate.job_id in declined:
            known = [j for j in jobs[:i] if j.job_id not in declined and j.deadline_s is not None]
            tried = simulate([*known, candidate], Edf(), "n1g1")
            assert any((record.finish_s or 0) > (record.deadline_s or 0) for record in tried.records)


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 30), st.integers(1, 4))), st.integers(1, 8))
def test_gaps_are_where_there_is_room(bookings: list[tuple[int, int, int]], gpus: int) -> None:
    """Against a plain list second by second."""
    free, used = FreeGpus(0.0, 8), [0] * 100
    for start, span, count in bookings:
        if all(used[t] + count <= 8 for t in range(start, start + span)):
            free.take(float(start), float(start + span), count)
            used[start : start + span] = [n + count for n in used[start : start + span]]
    gaps = list(free.gaps(gpus, 5.0))
    inside = [t for t in range(100) if any(start <= t < end for start, end in gaps)]
    assert inside == [t for t in range(5, 100) if used[t] + gpus <= 8]
    assert all(a[1] < b[0] for a, b in zip(gaps, gaps[1:], strict=False)), "as long as they last"  # noqa: RUF007


def test_the_oracle_is_noted() -> None:
    run = clustersim.run([rigid("a", 0, 1, 10, 100)], "edf-admission", cluster="n1g8")
    assert run.manifest["oracle_used"]


def test_nodes_out_of_service_are_not_counted_on() -> None:
    """One of two nodes is gone from 5 s to 50 s: a job that arrives at 10 s cannot have both, at 60 s
    it can.
    """
    calendar = ({"at_s": 5, "remove": 1}, {"at_s": 50, "add": 1})
    jobs = [
        rigid("early", 10, 8, 10, 100),
        rigid("half", 10, 4, 10, 100),
        rigid("late", 60, 8, 10, 100),
    ]
    outcome = simulate(jobs, EdfAdmission(), "n2g4", calendar=calendar)
    assert [record.state for record in outcome.records] == ["rejected", "finished", "finished"]


@pytest.mark.parametrize("deadline_s", [0.0, 10.0])
def test_a_deadline_that_has_passed(deadline_s: float) -> None:
    outcome = simulate([rigid("a", 10, 1, 1, deadline_s)], EdfAdmission(), "n1g1")
    assert outcome.of("a").state == "rejected"
