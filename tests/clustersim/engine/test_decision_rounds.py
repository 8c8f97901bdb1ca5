"""Decisions at multiples of an interval: whole logs by hand, and what holds for every policy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import clustersim
from clustersim.audit import check_run_folder
from clustersim.records import ALLOCATES, Run
from clustersim.rundir import write_run
from itertime.errors import UserError
from tests.builders import rigid
from traces.job import Job
from traces.native import write_trace

JOBS = [
    rigid("long", 5, 8, 300.0),
    rigid("short", 30, 8, 20.0),
    rigid("late", 61, 4, 7.5),
    rigid("last", 600, 4, 10.0),
]


def simulated(jobs: list[Job], policy: str, **settings: Any) -> Run:
    return clustersim.run(jobs, policy, **{"cluster": "n1g8", "decision_interval_s": 60.0, **settings})


def test_jobs_start_and_stop_at_the_rounds_and_finish_in_between() -> None:
    """`short` takes the GPUs at 60 s, the first round after its submission, and leaves them idle from 80 s
    on. The run ends with its last job, before the next round.
    """
    found = simulated(JOBS, "srtf", overheads=None)
    log = [(e.time_s, e.event, e.job_id) for e in found.events if e.event != "submit"]
    assert log == [
        (60, "start", "short"), (80, "finish", "short"), (120, "start", "late"),
        (127.5, "finish", "late"), (180, "start", "long"), (480, "finish", "long"),
        (600, "start", "last"), (610, "finish", "last"),
    ]  # fmt: skip
    assert found.manifest["decision_interval_s"] == 60.0
    assert found.manifest["end_s"] == 610.0


def test_usage_follows_each_event_and_not_only_rounds() -> None:
    found = simulated(JOBS[:2], "srtf", overheads=None)
    usage = [(s.time_s, s.allocated, s.running, s.pending) for s in found.snapshots]
    assert usage == [
        (5, 0, 0, 1), (30, 0, 0, 2), (60, 8, 1, 1), (80, 0, 0, 1), (120, 8, 1, 0), (420, 0, 0, 0),
    ]  # fmt: skip


def test_the_audit_notices_a_start_between_rounds(tmp_path: Path) -> None:
    found = simulated(JOBS, "srtf", overheads=None)
    found.manifest["decision_interval_s"] = 45.0
    write_run(tmp_path / "run", found)
    texts = [v.text for f in check_run_folder(tmp_path / "run") for v in f.violations if f.rule == "manifest"]
    assert any("start of job short is no multiple of decision_interval_s, 45" in text for text in texts)


@pytest.mark.parametrize("forged", [0.0, 1e-320, -5, "often", [60]])
def test_a_forged_interval_is_named(forged: Any, tmp_path: Path) -> None:
    found = simulated(JOBS, "srtf", overheads=None)
    found.manifest["decision_interval_s"] = forged
    write_run(tmp_path / "run", found)
    with pytest.raises(UserError, match="decision_interval_s="):
        check_run_folder(tmp_path / "run")


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


def test_a_job_that_is_declined_in_a_round_has_waited_for_it(tmp_path: Path) -> None:
    jobs = [rigid("late", 65, 4, 100.0, deadline_s=70.0), rigid("plain", 0, 4, 300.0)]
    write_trace(jobs, tmp_path / "jobs.csv")
    found = clustersim.run(
        tmp_path / "jobs.csv", "chronus", cluster="n1g8", decision_interval_s=60.0, out=tmp_path / "run"
    )
    record = next(record for record in found.jobs if record.job_id == "late")
    assert (record.state, record.wait_s) == ("rejected", 55.0)
    assert [f for f in check_run_folder(tmp_path / "run") if f.violations] == []
