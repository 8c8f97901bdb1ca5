"""EDF with admission and Chronus: no admitted job is late; of EDF, that no job is declined without need."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import clustersim
from clustersim.overheads import Overheads
from clustersim.testing import simulate
from policies.edf import Edf
from policies.edf_admission import EdfAdmission
from tests.builders import drawn_jobs
from tests.deadlines import late
from tests.effort import examples, rotated
from traces.job import Job


def random_jobs(seed: int, sizes: tuple[int, ...]) -> list[Job]:
    return drawn_jobs(seed, 3 + seed % 38, 160, sizes, (1, 900), (0.9, 5.0))


DIVISORS, ANY = (1, 1, 2, 2, 4, 8, 16), (1, 2, 3, 4, 5, 8, 16)


@given(
    st.integers(0, 10**9),
    st.sampled_from(
        [("pack", DIVISORS, 0.0), ("spread", DIVISORS, 0.0), ("any", ANY, 0.0), ("any", ANY, 1.0)]
    ),
)
@settings(max_examples=examples(300), deadline=None)
def test_no_admitted_job_is_late(seed: int, where: tuple[str, tuple[int, ...], float]) -> None:
    """In nodes, of sizes that divide a node or are whole nodes, where moves are free; and on any GPUs."""
    placement, sizes, scale = where
    jobs, overheads = random_jobs(seed, sizes), Overheads(scale=scale)
    outcome = simulate(jobs, EdfAdmission(), "n4g4", placement=placement, overheads=overheads)
    assert late(outcome) == []


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


# Chronus


SCALES = (0.0, 1.0, 10.0)


def mixed(seed: int, gpus: tuple[int, ...] = (1, 2, 4, 8)) -> list[Job]:
    """Jobs too many for the cluster, most of them with a deadline."""
    return drawn_jobs(seed, 60, 800, gpus, (100, 4000), (1.2, 3.5))


@pytest.mark.parametrize(("seed", "scale"), rotated(range(4), SCALES))
def test_no_lease_ends_late(seed: int, scale: float) -> None:
    """On any free GPUs, and with what starts and restarts cost."""
    jobs = mixed(seed)
    run = clustersim.run(
        jobs, "chronus", cluster="n2g8", placement="any", bound="none",
        overheads={"scale": scale} if scale else None, params={"lease_s": 600},
    )  # fmt: skip
    assert not [r for r in run.jobs if r.deadline_met is False and r.state != "rejected"]
    assert sum(bool(r.deadline_met) for r in run.jobs) > 5
    assert any(r.state == "rejected" for r in run.jobs)


@pytest.mark.parametrize("seed", range(2))
def test_no_promised_job_of_whole_nodes_is_late_where_jobs_are_packed(seed: int) -> None:
    run = clustersim.run(mixed(seed, gpus=(8, 16)), "chronus", cluster="n4g8", bound="none")
    assert not [r for r in run.jobs if r.deadline_met is False and r.state != "rejected"]
