"""Gavel's policies with packing: what runs beside what, and what it is worth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import clustersim
from clustersim.audit import check_run_folder
from clustersim.runs import find_policy
from clustersim.testing import check_scheduler
from tests.builders import drawn_jobs, rigid
from traces.job import Job

POLICIES = ["gavel-max-min", "gavel-ftf", "gavel-makespan", "gavel-throughput"]
PAIRS = {
    "x": {"x": 1.1, "y": 1.3, "z": 1.6},
    "y": {"x": 1.2, "y": 1.8, "z": 1.9},
    "z": {"x": 1.9, "y": 2.0, "z": 2.5},
}


def run_of(jobs: list[Job], policy: str, sharing: Any, cluster: str = "n1g1", **more: Any) -> clustersim.Run:
    params = {"packing": True, **more.pop("params", {})}
    return clustersim.run(
        jobs, policy, cluster=cluster, sharing=sharing, params=params, **{"overheads": None, **more}
    )


def many(seed: int) -> list[Job]:
    return drawn_jobs(seed, 45, 480, (1, 1, 2, 4, 8), (300, 4000), model="xyz")


@pytest.mark.long
@pytest.mark.parametrize("policy", [*POLICIES, "gandiva"])
def test_the_kit_finds_no_broken_rule(policy: str) -> None:
    check_scheduler(lambda: find_policy(policy)(packing=True))  # type: ignore[call-arg]


@pytest.mark.parametrize("policy", POLICIES)
def test_two_equal_jobs_without_interference_do_twice_the_work(policy: str) -> None:
    jobs = [rigid(name, 0, 1, 3600.0, model="x") for name in "ab"]
    assert run_of(jobs, policy, {}).summary["makespan_s"] == 3600
    assert run_of(jobs, policy, {"slowdown": 1.5}).summary["makespan_s"] == pytest.approx(5400)
    alone = run_of(jobs, policy, {}, params={"packing": False})
    assert alone.summary["makespan_s"] == 7200


@pytest.mark.parametrize("policy", POLICIES)
def test_with_full_interference_every_event_is_that_without_packing(policy: str) -> None:
    runs = [
        run_of(
            many(1), policy, {"slowdown": 2.0}, "n2g8", params={"packing": on}, overheads={"launch_s": 9.0}
        )
        for on in (False, True)
    ]
    assert [repr(event) for event in runs[0].events] == [repr(event) for event in runs[1].events]
    assert runs[0].jobs == runs[1].jobs


@pytest.mark.parametrize("policy", POLICIES)
def test_packing_serves_a_queue_sooner_and_keeps_every_rule(policy: str, tmp_path: Path) -> None:
    alone, packed = (
        run_of(
            many(2), policy, {"pairs": PAIRS}, "n2g8",
            overheads={"launch_s": 10.0}, params={"packing": on}, out=tmp_path / f"run{on}",
        )
        for on in (False, True)
    )  # fmt: skip
    assert packed.summary["finished"] == 45
    assert packed.summary["makespan_s"] < 0.95 * alone.summary["makespan_s"]
    assert packed.summary["jct_mean_s"] < 0.95 * alone.summary["jct_mean_s"]
    assert not [v for finding in check_run_folder(tmp_path / "runTrue") for v in finding.violations]


def test_three_jobs_on_one_gpu_take_turns_in_pairs() -> None:
    """At 1.25 times their time beside each other, two run at a time: each does 2/3 x 0.8 of a job's work."""
    jobs = [rigid(name, 0, 1, 36_000.0, model="x") for name in "abc"]
    run = run_of(jobs, "gavel-max-min", {"slowdown": 1.25}, params={"round_s": 60.0})
    assert [job.finish_s for job in run.jobs] == pytest.approx([36_000 / (2 / 3 * 0.8)] * 3, rel=0.01)


def test_a_wide_job_gets_its_turns_beside_small_ones_that_share() -> None:
    """However the small jobs share, the cluster is owed to the wide job for a part of the time."""
    small = [rigid(f"s{i}", 0, 1, 50_000.0, model="x") for i in range(24)]
    run = run_of([rigid("wide", 0, 16, 5000.0, model="y"), *small], "gavel-max-min", {}, "n2g8")
    wide = next(job for job in run.jobs if job.job_id == "wide")
    assert wide.finish_s < 50_000
