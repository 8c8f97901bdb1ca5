"""The rules `outages` and `manifest` of `clustersim check`: the log agrees with the manifest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clustersim.audit.folder import check_run
from clustersim.cli import main
from clustersim.records import Run
from clustersim.rundir import write_run
from clustersim.runs import run
from tests.folders import rehashed
from traces.job import Job
from traces.native import write_trace

pytestmark = pytest.mark.usefixtures("wide_terminal")

JOBS = [Job(f"{i}", 7.3 + 40.0 * i, gpus=4, duration_s=400.0 + i) for i in range(20)]
FAILURES = {"mtbf_gpu_h": 0.7, "spare_nodes": 1, "repair_scale": 0.01}
CALENDAR = [
    {"at_s": 30, "maintenance": "0-1", "for_s": 100},
    {"at_s": 500, "remove": "3"},
    {"at_s": 60, "add": "2"},
]


def texts(run: Run, rule: str) -> str:
    finding = next(finding for finding in check_run(run) if finding.rule == rule)
    return "; ".join([violation.text for violation in finding.violations])


@pytest.fixture(scope="module")
def sound() -> Run:
    made = run(JOBS, "fifo-skip", cluster="n4g8", failures=FAILURES, calendar=CALENDAR, seed=4)
    details = {event.detail for event in made.events if event.event == "node_down"}
    assert {"maintenance", "capacity"} < details
    return made


def stated(**fields: Any) -> Callable[[Run], Run]:
    return lambda run: replace(run, manifest={**run.manifest, **fields})


def without_a_failure(run: Run) -> Run:
    """If nothing ran on the node, no other rule notices."""
    for i, down in enumerate(run.events):
        for j, up in enumerate(run.events[i:], i):
            if (down.event, up.event, down.placement) == ("node_down", "node_up", up.placement):
                return replace(run, events=[e for k, e in enumerate(run.events) if k not in (i, j)])
    raise AssertionError("no node came back")


def later(run: Run) -> Run:
    events = list(run.events)
    i = next(i for i, e in enumerate(events) if e.event == "node_down" and e.time_s > 100)
    events[i] = events[i]._replace(time_s=events[i].time_s + 5)
    return replace(run, events=events)


@pytest.mark.parametrize(
    ("falsify", "text"),
    [
        (without_a_failure, " is due next"),
        (later, " is due next"),
        (
            lambda run: replace(run, events=[e for e in run.events if not e.event.startswith("node_")]),
            "node_down of node 2 at t=7.3 (capacity) is due; the log has no such event",
        ),
    ],
)  # fmt: skip
def test_outages_that_the_seed_does_not_give(sound: Run, falsify: Callable[[Run], Run], text: str) -> None:
    assert text in texts(falsify(sound), "outages")


def test_outages_of_another_version(sound: Run) -> None:
    other = stated(seed=5, versions={"clustersim": "9.9", "code": "0" * 64})(sound)
    finding = next(finding for finding in check_run(other) if finding.rule == "outages")
    assert (finding.violations, "another version" in finding.unproved) == ((), True)


def cut(run: Run) -> Run:
    """Log and records are cut at a convenient time."""
    i = next(i for i, e in enumerate(run.events) if e.event == "finish")
    end_s = run.events[i].time_s
    gone = {e.job_id for e in run.events[: i + 1] if e.event == "finish"}
    jobs = [
        j if j.job_id in gone else replace(j, state="unfinished", finish_s=None, jct_s=None) for j in run.jobs
    ]
    kept = replace(run, events=run.events[: i + 1], jobs=jobs)
    return stated(end_s=end_s)(kept)


def test_an_end_that_the_log_does_not_have(sound: Run) -> None:
    assert " never ends, but the run states no earlier end" in texts(cut(sound), "manifest")


# The order of jobs


def reordered(run: Run) -> Run:
    """Two jobs of one instant, with their records in the other order."""
    jobs = [*run.jobs]
    jobs[0], jobs[1] = jobs[1], jobs[0]
    return replace(run, jobs=jobs)


def reordered_log(run: Run) -> Run:
    events = [*run.events]
    first, second = [i for i, event in enumerate(events) if event.event == "submit"][:2]
    events[first], events[second] = events[second], events[first]
    return replace(run, events=events)


@pytest.mark.parametrize(
    ("change", "rule", "says"),
    [
        (reordered, "records", "job b: the log submits it in another order than the records"),
        (reordered, "trace", "its record is not in the order of submission, which ids decide at equal times"),
        (reordered_log, "records", "job a: the log submits it in another order than the records"),
        (lambda run: reordered_log(reordered(run)), "trace", "its record is not in the order of submission"),
    ],
)  # fmt: skip
def test_the_order_of_jobs_is_proved(
    change: Callable[[Run], Run], rule: str, says: str, tmp_path: Path
) -> None:
    jobs = [Job(name, 0.0, gpus=4, duration_s=60.0 + i) for i, name in enumerate("abc")]
    write_trace([*jobs, Job("z", 5.0, gpus=4, duration_s=9.0)], tmp_path / "trace.csv")
    made = run(tmp_path / "trace.csv", "fifo", cluster="n1g8")
    assert all(not finding.violations for finding in check_run(made))
    assert says in texts(change(made), rule)
    write_run(tmp_path / "run", change(made))
    assert main(["check", str(tmp_path / "run")]) == 4


def test_another_format_is_not_read_as_ours(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = run([Job("a", 0.0, gpus=4, duration_s=60.0)], "fifo", cluster="n1g8")
    write_run(tmp_path / "run", made)
    rehashed(tmp_path / "run", format="clustersim-run-2")
    for command in (["check"], ["explain", "--job", "a"]):
        assert main([command[0], str(tmp_path / "run"), *command[1:]]) == 2
        said = capsys.readouterr().err
        assert "manifest.json: format='clustersim-run-2': this program reads clustersim-run-1" in said
        assert "run the simulation again, or use the version that made it" in said
