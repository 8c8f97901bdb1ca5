"""The rule on summary.json: forged metrics and windows are found, other versions are not accused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clustersim.analysis import METRICS
from clustersim.audit import check_run_folder
from clustersim.audit.folder import check_run
from clustersim.records import Run
from clustersim.rundir import read_run, write_run
from clustersim.runs import RunConfig, Trace, run
from itertime.errors import UserError
from traces.job import Job

JOBS = (
    Job("long", 0.0, gpus=16, duration_s=300.0),
    Job("short", 10.0, gpus=8, duration_s=20.0),
    Job("last", 15.0, gpus=8, duration_s=20.5),
    Job("wide", 18.0, gpus=99, duration_s=20.0),
)
NEW = (
    "offered_load", "arrival_window_s", "load_jobs", "wait_mean_s", "wait_p99_s", "waited_ratio", "tail_jobs",
    "tail_ratio", "gpu_allocated_arrival_ratio",
)  # fmt: skip


def simulated(jobs: tuple[Job, ...] = JOBS, policy: str = "srtf", **settings: Any) -> Run:
    return run(Trace.of(jobs), config=RunConfig(policy=policy, cluster="n2g8", **settings))


def verdict(made: Run) -> tuple[list[str], str]:
    finding = next(found for found in check_run(made) if found.rule == "summary")
    return [violation.text for violation in finding.violations], finding.unproved


@pytest.fixture(scope="module")
def windowed() -> Run:
    return simulated(warmup_s=5.0, measure_s=12.0)


@pytest.mark.parametrize("stated", [3, {"warmup_s": 5.0}, {"warmup_s": "5", "measure_s": None}])
def test_a_window_that_no_program_writes_is_an_error(windowed: Run, stated: Any) -> None:
    with pytest.raises(UserError, match=r"manifest.json: (window|warmup_s)="):
        check_run(replace(windowed, manifest={**windowed.manifest, "window": stated}))


def _of_an_older_version(made: Run) -> Run:
    summary = {name: value for name, value in made.summary.items() if name not in NEW}
    summary["covers"] = "jct_*, queue_*: the 3 finished of 4 submitted jobs"
    manifest = {name: value for name, value in made.manifest.items() if name != "window"}
    versions = {**made.manifest["versions"], "code": "0" * 64}
    return replace(made, summary=summary, manifest={**manifest, "versions": versions})


def test_a_folder_of_an_older_version_is_read_and_not_accused(tmp_path: Path) -> None:
    write_run(tmp_path, _of_an_older_version(simulated()))
    read_run(tmp_path)
    findings = check_run_folder(tmp_path)
    assert not [found for found in findings if found.violations]
    said = next(found.unproved for found in findings if found.rule == "summary")
    assert said.startswith("another version made the run; its summary lacks or words otherwise offered")
    assert set(NEW) <= set(said.replace(",", "").split())


def test_what_an_older_version_states_is_still_proved() -> None:
    old = _of_an_older_version(simulated())
    said, _ = verdict(replace(old, summary={**old.summary, "jct_mean_s": 1.0}))
    assert "jct_mean_s is 1.0 in summary.json" in said[0]


def test_this_version_must_state_every_metric() -> None:
    made = simulated()
    said, _ = verdict(replace(made, summary={n: v for n, v in made.summary.items() if n not in NEW}))
    assert len(said) == len(NEW)
    assert set(NEW) < set(METRICS)
