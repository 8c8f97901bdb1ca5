"""The rule on bounds: impossible results and forged bounds are found, other versions are not accused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clustersim.audit import check_run_folder
from clustersim.audit.rules import better_than
from clustersim.bounds import Bound
from clustersim.rundir import MANIFEST, SUMMARY, read_json
from clustersim.runs import RunConfig, Trace, run
from itertime.errors import UserError
from itertime.io import sha256
from tests.folders import rehashed
from traces.job import Job
from traces.native import write_trace

pytestmark = pytest.mark.usefixtures("wide_terminal")

JOBS = (
    Job("long", 0.0, gpus=16, duration_s=300.0, deadline_s=350.0),
    Job("short", 10.0, gpus=8, duration_s=20.0),
    Job("wide", 18.0, gpus=99, duration_s=20.0, deadline_s=50.0),
)
NOTHING = {
    "jct_mean_s": None, "jct_p99_s": None, "makespan_s": None, "deadline_met_ratio": None, "method": "area",
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return made(tmp_path)


def made(home: Path, **settings: Any) -> Path:
    write_trace(JOBS, home / "trace.csv")
    trace = Trace.read(home / "trace.csv")
    run(trace, config=RunConfig(policy="fifo", cluster="n2g8", **settings), out=home / "run")
    return home / "run"


def verdict(folder: Path, **options: Any) -> tuple[list[str], str]:
    finding = next(found for found in check_run_folder(folder, **options) if found.rule == "bound")
    return [violation.text for violation in finding.violations], finding.unproved


def state(folder: Path, **bound: Any) -> Path:
    """The folder, with other values of its bound in the manifest."""
    stated = read_json(folder / MANIFEST)["bound"]
    return rehashed(folder, bound={**stated, **bound})


def test_without_the_trace_nothing_is_proved(folder: Path) -> None:
    (folder.parent / "trace.csv").rename(folder.parent / "moved.csv")
    violations, unproved = verdict(folder)
    assert not violations
    assert "trace.csv" in unproved
    assert verdict(folder, trace=folder.parent / "moved.csv") == ([], "")


@pytest.mark.parametrize("name", ["jct_mean_s", "jct_p99_s", "makespan_s", "deadline_met_ratio"])
def test_a_forged_bound_is_found(name: str, folder: Path) -> None:
    was = read_json(folder / MANIFEST)["bound"][name]
    violations, _ = verdict(state(folder, **{name: was * 0.9}))
    assert len(violations) == 1
    assert violations[0].startswith(f"bound.{name} is {was * 0.9}")
    assert "computed again" in violations[0]


def test_a_forged_distance_is_found_by_the_rule_on_the_summary(folder: Path) -> None:
    summary = read_json(folder / SUMMARY)
    summary["jct_over_bound"] = 1.0
    (folder / SUMMARY).write_text(json.dumps(summary))
    (found,) = [f for f in check_run_folder(rehashed(folder)) if f.violations]
    assert (found.rule, len(found.violations)) == ("summary", 1)
    assert "jct_over_bound is 1.0 in summary.json" in found.violations[0].text


def test_a_run_of_faster_jobs_than_those_of_the_trace_is_below_the_bound(folder: Path) -> None:
    slower = [replace(job, duration_s=10 * (job.duration_s or 0.0)) for job in JOBS]
    path = folder.parent / "trace.csv"
    write_trace(slower, path)
    violations, _ = verdict(rehashed(folder, trace={"path": str(path), "jobs": 3, "sha256": sha256(path)}))
    assert [text.partition(" is ")[0] for text in violations] == [
        "jct_mean_s", "jct_p99_s", "makespan_s", "deadline_met_ratio",
        "bound.jct_mean_s", "bound.jct_p99_s", "bound.makespan_s", "bound.deadline_met_ratio",
    ]  # fmt: skip


def test_another_version_is_not_accused(folder: Path) -> None:
    versions = {**read_json(folder / MANIFEST)["versions"], "code": "0" * 64}
    rehashed(folder, versions=versions)
    assert verdict(folder) == ([], "")
    violations, unproved = verdict(state(folder, jct_mean_s=1.0))
    assert not violations
    assert unproved.startswith("another version made the run, and by this one bound.jct_mean_s is 1.0")


def test_a_folder_of_an_older_version_states_no_bound_and_is_sound(folder: Path) -> None:
    manifest = read_json(folder / MANIFEST)
    summary = read_json(folder / SUMMARY)
    old = {name: value for name, value in summary.items() if "bound" not in name}
    (folder / SUMMARY).write_text(json.dumps(old))
    del manifest["bound"]
    (folder / MANIFEST).write_text(json.dumps(manifest))
    rehashed(folder, versions={**manifest["versions"], "code": "0" * 64})
    assert [found.rule for found in check_run_folder(folder) if found.violations] == []
    assert verdict(folder) == ([], "")


@pytest.mark.parametrize(
    ("bound", "text"),
    [
        (7, "bound=7: must state jct_mean_s"),
        ({"method": "area"}, "must state jct_mean_s"),
        ({**NOTHING, "jct_mean_s": "x"}, "jct_mean_s='x': must be from 0"),
        ({**NOTHING, "makespan_s": -1.0}, "makespan_s=-1.0: must be from 0"),
    ],
)  # fmt: skip
def test_what_no_program_writes_is_refused(bound: object, text: str, folder: Path) -> None:
    with pytest.raises(UserError, match=text):
        verdict(rehashed(folder, bound=bound))


def test_an_unknown_method_is_found(folder: Path) -> None:
    violations, _ = verdict(state(folder, method="guess"))
    assert violations[0].startswith("bound.method is guess; there are ")


def test_what_is_better_than_a_bound_is_named() -> None:
    records = run(JOBS, "fifo", cluster="n2g8").jobs
    possible = Bound(0.0, 0.0, 0.0, 1.0, "alone", 0.0)
    assert better_than(possible, records) == []
    assert better_than(Bound(None, None, None, None, "alone", 0.0), records) == []
    texts = better_than(Bound(1e6, 1e6, 1e6, 0.0, "alone", 0.0), records)
    assert [text.partition(" is ")[0] for text in texts] == [
        "jct_mean_s", "jct_p99_s", "makespan_s", "deadline_met_ratio",
    ]  # fmt: skip
