"""EDF with admission: no admitted job is late, and no job is declined without need."""

from __future__ import annotations

from random import Random

from hypothesis import example, given, settings
from hypothesis import strategies as st

import clustersim
from clustersim.overheads import Overheads
from clustersim.testing import simulate
from policies.edf import Edf
from policies.edf_admission import EdfAdmission
from policies.toolkit.gpu_calendar import FreeGpus
from tests.builders import rigid
from tests.effort import examples
from traces.job import Job


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
