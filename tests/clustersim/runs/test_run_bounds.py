"""The bound of a run: over which jobs it is, where it is stated, and that processes share it."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

import clustersim
from clustersim.bounds import Bound, bound_of
from clustersim.cluster import Cluster
from clustersim.overheads import Overheads
from clustersim.records import Run
from clustersim.rundir import read_run
from clustersim.runs import best_possible, run_bounds
from clustersim.scheduler import JobView, State
from clustersim.speed import SpeedOnOneType
from policies.fifo import Fifo
from policies.srtf import Srtf
from traces import Job

CLUSTER = Cluster(1, 8)
SPEED = SpeedOnOneType(CLUSTER, None)
JOBS = (
    Job("first", 0.0, gpus=8, duration_s=50.0, deadline_s=40.0),
    Job("second", 100.0, gpus=8, duration_s=60.0, deadline_s=200.0),
    Job("third", 100.0, gpus=8, duration_s=20.0, deadline_s=1000.0),
    Job("wide", 100.0, gpus=99, duration_s=20.0, deadline_s=1000.0),
)


def bound(*finished: bool, **options: Any) -> Bound:
    return best_possible(JOBS, finished, CLUSTER, SPEED, Overheads.none(), **options)


def stream(count: int, gap_s: float) -> list[Job]:
    return [Job(f"{i}", gap_s * i, gpus=8, duration_s=50.0) for i in range(count)]


def near(value: float) -> Any:
    return pytest.approx(value, rel=1e-6)


def test_times_are_bounded_over_the_jobs_that_finished_and_deadlines_over_all() -> None:
    whole = bound(True, True, True, False)
    assert whole.jct_mean_s == near((50 + 80 + 20) / 3)  # the third job first
    assert whole.makespan_s == near(180.0)
    assert whole.deadline_met_ratio == near(2 / 4)  # not `first`, and not `wide`
    part = bound(False, False, True, False)
    assert part.jct_mean_s == near(20.0)
    assert part.makespan_s == near(120.0)  # from the first submission of all
    assert part.deadline_met_ratio == near(2 / 4)
    jobs = [replace(job, deadline_s=None) for job in JOBS]
    undue = best_possible(jobs, [True] * 4, CLUSTER, SPEED, Overheads.none())
    assert undue.deadline_met_ratio is None
    none = bound(False, False, False, False)
    assert (none.jct_mean_s, none.makespan_s) == (None, None)
    assert none.deadline_met_ratio == near(2 / 4)


def test_processes_share_bounds_in_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "bounds"
    forget()
    found = bound(True, True, True, True, folder=folder)
    (file,) = folder.glob("*.json")
    stated = {name: value for name, value in asdict(found).items() if name != "seconds"}
    assert json.loads(file.read_text()) == stated
    file.write_text(json.dumps(stated | {"jct_mean_s": 1.0}))  # as another process would have it
    forget()
    assert bound(True, True, True, True, folder=folder).jct_mean_s == 1.0
    for damaged in "", "[]", "{}", json.dumps(stated | {"jct_mean_s": "1"}):
        file.write_text(damaged)
        forget()
        again = bound(True, True, True, True, folder=folder)
        assert again.jct_mean_s == found.jct_mean_s
        assert json.loads(file.read_text()) == stated


def test_a_folder_that_cannot_be_written_is_read(tmp_path: Path) -> None:
    """Neither its lock nor a file of it can be opened for writing; the bound in it counts."""
    forget()
    found = bound(True, True, True, True, folder=tmp_path)
    (file,), (lock,) = tmp_path.glob("*.json"), tmp_path.glob("*.lock")
    file.write_text(json.dumps(json.loads(file.read_text()) | {"jct_mean_s": 1.0}))
    lock.unlink()
    lock.mkdir()
    forget()
    assert bound(True, True, True, True, folder=tmp_path).jct_mean_s == 1.0
    file.unlink()
    file.mkdir()
    for folder in (tmp_path, lock / "file" / "bounds"):
        (lock / "file").write_text("")
        forget()
        assert bound(True, True, True, True, folder=folder).jct_mean_s == found.jct_mean_s


def test_a_process_computes_the_bound_of_the_same_jobs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def counted(instance: Any, method: str, *, times: bool) -> Bound:
        calls.append(method)
        return bound_of(instance, method, times=times)

    forget()
    monkeypatch.setattr("clustersim.runs.run_bounds.bound_of", counted)
    for policy in Fifo, Srtf:
        clustersim.run(stream(5, 10.0), policy, cluster="n2g4")
    assert len(calls) == 1
    clustersim.run(stream(5, 11.0), Fifo, cluster="n2g4")
    assert len(calls) == 2


def forget() -> None:
    """The bounds that this process has computed."""
    run_bounds._recent.clear()


def run_of(jobs: list[Job], **settings: Any) -> Run:
    return clustersim.run(jobs, "fifo", cluster="n1g8", overheads=None, **settings)


def test_a_run_states_its_bound_and_how_far_it_is_from_it(tmp_path: Path) -> None:
    made = run_of(list(JOBS), out=tmp_path)
    stated = made.manifest["bound"]
    assert stated["jct_mean_s"] == near((50 + 80 + 20) / 3)
    assert made.summary["jct_over_bound"] == made.summary["jct_mean_s"] / stated["jct_mean_s"]
    assert made.summary["makespan_over_bound"] == made.summary["makespan_s"] / stated["makespan_s"]
    assert made.summary["deadlines_of_bound"] == near(1.0)
    assert made.manifest["timings"]["bound_s"] > 0
    in_memory = run_of(list(JOBS))
    assert in_memory.summary == read_run(tmp_path).summary
    assert in_memory.manifest["bound"] == read_run(tmp_path).manifest["bound"]


def test_no_bound_is_computed_where_none_is_wanted_or_a_run_is_cut_short() -> None:
    made = run_of(list(JOBS), bound="none")
    assert made.manifest["bound"] is None
    assert [made.summary[name] for name in made.summary if "bound" in name] == [None] * 3
    assert run_of(list(JOBS), until_s=120.0).summary["jct_over_bound"] == near(1.0)  # of the first job


class Broken(Fifo):
    def admit(self, job: JobView, state: State) -> bool:
        return 1 / (2 - len(job.job_id)) > 5  # ZeroDivisionError for a job `zz`


def test_a_run_that_its_policy_stops_has_no_bound() -> None:
    with pytest.raises(clustersim.PolicyError) as caught:
        clustersim.run(
            [Job("a", 0.0, gpus=1, duration_s=1.0), Job("zz", 5.0, gpus=1, duration_s=1.0)], Broken
        )
    assert caught.value.partial.manifest["bound"] is None  # type: ignore[attr-defined]


def test_whoever_stops_the_computation_of_a_bound_keeps_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def impatient(*_: Any, times: bool) -> Bound:
        raise KeyboardInterrupt

    forget()
    monkeypatch.setattr("clustersim.runs.run_bounds.bound_of", impatient)
    with pytest.raises(KeyboardInterrupt) as caught:
        run_of(list(JOBS))
    partial: Run = caught.value.partial  # type: ignore[attr-defined]
    assert (partial.manifest["bound"], partial.manifest["status"]) == (None, "complete")
    assert partial.summary["finished"] == 3
