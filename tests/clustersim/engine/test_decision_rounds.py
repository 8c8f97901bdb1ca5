"""Decisions at multiples of an interval: usage, the end of the run, and what begins between rounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import clustersim
from clustersim.audit import check_run_folder
from clustersim.records import ALLOCATES, Run
from tests.builders import rigid
from traces.job import Job
from traces.native import write_trace


def simulated(jobs: list[Job], policy: str, **settings: Any) -> Run:
    return clustersim.run(jobs, policy, **{"cluster": "n1g8", "decision_interval_s": 60.0, **settings})


def test_usage_follows_each_event_and_not_only_rounds() -> None:
    jobs = [rigid("long", 5, 8, 300.0), rigid("short", 30, 8, 20.0)]
    found = simulated(jobs, "srtf", overheads=None)
    assert found.manifest["decision_interval_s"] == 60.0
    usage = [(s.time_s, s.allocated, s.running, s.pending) for s in found.snapshots]
    assert usage == [
        (5, 0, 0, 1), (30, 0, 0, 2), (60, 8, 1, 1), (80, 0, 0, 1), (120, 8, 1, 0), (420, 0, 0, 0),
    ]  # fmt: skip


def test_the_run_ends_with_its_last_job_when_a_round_is_expected_already() -> None:
    """`a` ends at 90 s, and asks for the round at 120 s; `b` ends before it."""
    found = simulated([rigid("a", 60, 4, 30.0), rigid("b", 60, 4, 45.0)], "fifo", overheads=None)
    assert found.manifest["end_s"] == 105.0


def test_phases_and_instances_of_services_begin_between_rounds_under_the_audit(tmp_path: Path) -> None:
    """Both are no decisions of the policy. An instance takes its time on slow nodes, too."""
    jobs = [
        rigid("phased", 0, 2, 100.0, phases="0.3:1 0.7:2"),
        rigid("served", 70, 1, 35.0, service="chat"),
        rigid("plain", 65, 4, 50.0),
    ]
    write_trace(jobs, tmp_path / "jobs.csv")
    found = clustersim.run(
        tmp_path / "jobs.csv", "srtf", cluster="n1g8", decision_interval_s=60.0,
        variability={"sigma": 0.2}, step_time={"slowdown": 1.2}, out=tmp_path / "run",
    )  # fmt: skip
    between = [(e.event, e.job_id) for e in found.events if e.event in ALLOCATES and e.time_s % 60.0]
    assert between == [("start", "served"), ("replan", "phased")]
    assert [f for f in check_run_folder(tmp_path / "run") if f.violations] == []
