"""Chronus: leases by hand, promises that are kept, and what is declined."""

from __future__ import annotations

import pytest

import clustersim
from tests.builders import drawn_jobs
from tests.effort import rotated
from traces.job import Job

SCALES = (0.0, 1.0, 10.0)


def mixed(seed: int, gpus: tuple[int, ...] = (1, 2, 4, 8)) -> list[Job]:
    """Jobs too many for the cluster, most of them with a deadline."""
    return drawn_jobs(seed, 60, 800, gpus, (100, 4000), (1.2, 3.5))


@pytest.mark.parametrize(("seed", "scale"), rotated(range(4), SCALES))
def test_no_promised_job_is_late(seed: int, scale: float) -> None:
    """On any free GPUs, and with what starts and restarts cost."""
    jobs = mixed(seed)
    run = clustersim.run(
        jobs, "chronus", cluster="n2g8", placement="any", bound="none",
        overheads={"scale": scale} if scale else None, params={"lease_s": 600},
    )  # fmt: skip
    late = [r.job_id for r in run.jobs if r.deadline_met is False and r.state != "rejected"]
    assert not late
    promised = [r for r in run.jobs if r.deadline_met]
    assert len(promised) > 5
    assert any(r.state == "rejected" for r in run.jobs)


@pytest.mark.parametrize("seed", range(2))
def test_no_promised_job_of_whole_nodes_is_late_where_jobs_are_packed(seed: int) -> None:
    run = clustersim.run(mixed(seed, gpus=(8, 16)), "chronus", cluster="n4g8", bound="none")
    assert not [r for r in run.jobs if r.deadline_met is False and r.state != "rejected"]
