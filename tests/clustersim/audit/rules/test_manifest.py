"""The rules `outages` and `manifest` of `clustersim check`: the log agrees with the manifest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from clustersim.audit.folder import check_run
from clustersim.records import Run
from clustersim.runs import run
from traces.job import Job

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


@pytest.mark.parametrize("options", [{}, {"until_s": 444.4}, {"until_s": 1.0}, {"overheads": None}], ids=str)
@pytest.mark.parametrize("calendar", [[], CALENDAR], ids=["failures", "both"])
def test_what_a_manifest_states_shows(options: dict[str, Any], calendar: list[dict[str, Any]]) -> None:
    made = run(JOBS, "fifo-skip", cluster="n4g8", failures=FAILURES, calendar=calendar, seed=4, **options)
    for rule in ("outages", "manifest", "service"):
        assert texts(made, rule) == ""


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
        (stated(seed=5), " is due next"),
        (stated(calendar=[]), " is due next"),
        (stated(calendar=CALENDAR[:2]), " is due next"),
        (stated(failures=None), " is due next"),
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


@pytest.mark.parametrize(
    ("falsify", "text"),
    [
        (cut, " never ends, but the run states no earlier end"),
        (stated(status="interrupted"), "status is 'interrupted', and complete True"),
        (stated(complete=False), "status is 'complete', and complete False"),
        (stated(end_s=500.0), "end_s is 500, before the last event at t="),
        (stated(until_s=500.0), "until_s is 500, and the last event at t="),
        (stated(until_s=1e6), "until_s ends the run at 1e+06"),
        (stated(versions=None), "versions is None, not what made the run"),
        (stated(versions={"clustersim": "9.9", "code": "junk"}), "versions.code is junk, which no"),
        (stated(versions={"clustersim": 7, "code": "0" * 64}), "versions.clustersim is 7, which no"),
        (stated(planner="zz"), "planner is zz; there are 3d, "),
        (stated(planner=["3d"]), "planner is ['3d']; there are 3d, "),
        (stated(cluster={"shape": "n99g8", "nodes": 4}), "cluster.shape is 'n99g8', 'n4g8'"),
    ],
)  # fmt: skip
def test_an_end_that_the_log_does_not_have(sound: Run, falsify: Callable[[Run], Run], text: str) -> None:
    assert text in texts(falsify(sound), "manifest")
