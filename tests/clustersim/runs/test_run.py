"""From a trace and settings to a run, its bound, and comparisons."""

import json
import os
from dataclasses import asdict, replace
from pathlib import Path
from random import Random
from threading import Thread
from typing import Any

import pandas as pd
import pytest

import clustersim
from clustersim.bounds import Bound, bound_of
from clustersim.cluster import Cluster
from clustersim.errors import PolicyError
from clustersim.overheads import Overheads
from clustersim.records import Run
from clustersim.rundir import read_run
from clustersim.runs import RunConfig, Trace, best_possible, compare, run, run_bounds
from clustersim.scheduler import JobView, State
from clustersim.speed import SpeedOnOneType
from itertime.io import sha256
from policies.fifo import Fifo
from policies.srtf import Srtf
from tests.tables import TEXTS
from traces import Job, write_trace

JOBS = [
    Job("a", 0.0, gpus=8, duration_s=60.0),
    Job("b", 0.0, gpus=8, duration_s=30.0),
    Job("c", 10.0, gpus=4, duration_s=5.0),
    Job("llm", 20.0, model="gpt3-1.3b", global_batch=64, iterations=20.0, gpus=8),
    Job("wide", 30.0, gpus=9, duration_s=5.0),
]
FREE: dict[str, Any] = {"cluster": "n1g8", "overheads": None}
FAILS = TEXTS["a policy that fails"]


def test_the_manifest_says_how_a_run_came_about(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    write_trace(JOBS, path)
    result = run(path, "elasticflow", cluster="n1g8", params={"guard_s": 2.0}, seed=5, until_s=1e6)
    manifest = result.manifest
    assert (manifest["policy"], manifest["params"]) == ("elasticflow", {"guard_s": 2.0})
    assert manifest["planner"] == "data-parallel"
    assert (manifest["seed"], manifest["until_s"], manifest["placement"]) == (5, 1e6, "pack")
    assert manifest["trace"] == {"path": str(path), "sha256": Trace.read(path).sha256, "jobs": 5}
    assert manifest["overheads"]["launch_s"] == 30.0
    assert manifest["oracle_used"] is True
    assert manifest["complete"] is True
    assert len(manifest["profile"]["sha256"]) == 64
    assert manifest["timings"]["wall_s"] > 0
    json.dumps(manifest, allow_nan=False)


def test_a_trace_on_disk_a_pipe_and_jobs_in_memory_give_one_result(tmp_path: Path) -> None:
    """Byte for byte, in processes of their own too, whatever the order of the rows."""
    jobs = [Job(str(i), 7.0 * (i // 3), gpus=1 + i % 8, duration_s=5.0 + i) for i in range(60)]
    run(jobs, "srtf", out=tmp_path / "list", **FREE)
    Random(2).shuffle(jobs)
    write_trace(jobs, tmp_path / "t.csv")
    run(tmp_path / "t.csv", "srtf", out=tmp_path / "file", **FREE)
    os.mkfifo(tmp_path / "pipe")
    content = (tmp_path / "t.csv").read_bytes()
    writer = Thread(target=(tmp_path / "pipe").write_bytes, args=(content,), daemon=True)
    writer.start()
    configs = [RunConfig(policy=policy, **FREE) for policy in ("fifo", "srtf")]
    compare(tmp_path / "pipe", configs, workers=2, out=[tmp_path / "fifo", tmp_path / "compared"])
    writer.join(timeout=10)
    for name in ("jobs.csv", "events.csv", "usage.csv", "summary.json"):
        one = (tmp_path / "list" / name).read_bytes()
        assert (tmp_path / "file" / name).read_bytes() == one
        assert (tmp_path / "compared" / name).read_bytes() == one
    stated = json.loads((tmp_path / "compared" / "manifest.json").read_text())["trace"]
    assert stated == {"path": str(tmp_path / "pipe"), "sha256": sha256(tmp_path / "t.csv"), "jobs": 60}
    # In memory, too, a whole number of seconds is a number of seconds.
    whole = [Job(name, 0, gpus=8, duration_s=100, deadline_s=s) for name, s in (("a", 110), ("b", 120))]
    assert [job.state for job in run(whole, "elasticflow", **FREE).jobs] == ["finished", "rejected"]
    assert type(Trace.of(whole).jobs[0].deadline_s) is float


# Mistakes


def test_a_failing_policy_leaves_the_records_so_far(tmp_path: Path) -> None:
    """Out of a worker too comes the error, of which the exit code is 4."""
    (tmp_path / "fails.py").write_text(FAILS)
    text = r"policy Fails at t=10 s: schedule raised RuntimeError at .*fails\.py:6: enough"
    with pytest.raises(PolicyError, match=text) as caught:
        run(JOBS, f"{tmp_path}/fails.py:Fails", **FREE)
    partial = caught.value.partial  # type: ignore[attr-defined]
    assert partial.manifest["complete"] is False
    assert [job.state for job in partial.jobs] == ["unfinished"] * 5
    assert partial.jobs[0].gpu_seconds == 80.0
    with pytest.raises(PolicyError, match="enough") as caught:
        compare(JOBS, ["fifo", f"{tmp_path}/fails.py:Fails"], workers=2, **FREE)
    assert caught.value.exit_code == 4


# Comparisons


def test_the_public_names() -> None:
    assert clustersim.run is clustersim.notebook.run
    assert all(getattr(clustersim, name) for name in clustersim.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'walk'"):
        _ = clustersim.walk


# What a notebook meets


def test_a_comparison_by_names_and_a_data_frame(tmp_path: Path) -> None:
    frame = pd.DataFrame({"job_id": ["a", "b"], "submit_s": [0, 0], "gpus": [8, 8], "duration_s": [60, 30]})
    path = tmp_path / "trace.csv"
    frame.to_csv(path, index=False)
    by_path = clustersim.compare(path, ["fifo", "srtf"], workers=1, **FREE)
    by_frame = clustersim.compare(
        frame, [RunConfig.make(policy=p, **FREE) for p in ("fifo", "srtf")], workers=1
    )
    assert [run.jobs for run in by_path] == [run.jobs for run in by_frame]
    assert [run.summary["jct_mean_s"] for run in by_path] == [75.0, 60.0]
    assert clustersim.run(iter(JOBS[:2]), "fifo", **FREE).jobs == by_path[0].jobs


@pytest.mark.parametrize("workers", [1, 2])
def test_a_comparison_reports_the_progress_of_each_run(workers: int) -> None:
    jobs = [Job(str(i), 60.0 * i, gpus=4, duration_s=600.0) for i in range(30)]
    seen: dict[int, list[int]] = {0: [], 1: []}
    clustersim.runs.compare(
        jobs, ["fifo", "srtf"], cluster="n1g8", workers=workers,
        on_progress=lambda run, done: seen[run].append(done),
        on_done=lambda run, _: seen[run].append(30),
    )  # fmt: skip
    for done in seen.values():
        assert done == sorted(done)
        assert done[-1] == 30


CLUSTER = Cluster(1, 8)
SPEED = SpeedOnOneType(CLUSTER, None)
DUE = (
    Job("first", 0.0, gpus=8, duration_s=50.0, deadline_s=40.0),
    Job("second", 100.0, gpus=8, duration_s=60.0, deadline_s=200.0),
    Job("third", 100.0, gpus=8, duration_s=20.0, deadline_s=1000.0),
    Job("wide", 100.0, gpus=99, duration_s=20.0, deadline_s=1000.0),
)


def bound(*finished: bool, **options: Any) -> Bound:
    return best_possible(DUE, finished, CLUSTER, SPEED, Overheads.none(), **options)


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
    jobs = [replace(job, deadline_s=None) for job in DUE]
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

    def counted(instance: Any, method: str, **options: Any) -> Bound:
        calls.append(method)
        return bound_of(instance, method, **options)

    forget()
    monkeypatch.setattr("clustersim.runs.run_bounds.bound_of", counted)
    small = [Job(f"small {i}", 0.0, gpus=5, duration_s=50.0) for i in range(3)]
    for policy in Fifo, Srtf:
        run = clustersim.run([*small, *stream(5, 10.0)], policy, cluster="n2g4")
        assert run.manifest["bound"]["method"] == "quick"
    assert calls == ["area", "quick", "area"]
    clustersim.run([*small, *stream(5, 11.0)], Fifo, cluster="n2g4")
    assert calls[3:] == ["area", "quick"]


def test_a_run_as_good_as_a_cheap_bound_needs_no_other() -> None:
    """Within 1 % of the mean JCT, and with every deadline met that can be met."""
    times, deadline = {"jct_mean_s": 50.0}, {"deadline_met_ratio": 2 / 4}
    for values, method in (
        (None, "quick"),
        (times, "area"),
        (times | deadline, "area"),
        ({"jct_mean_s": 51.0} | deadline, "quick"),
        (times | {"deadline_met_ratio": 1 / 4}, "quick"),
    ):
        assert bound(True, True, True, False, run_values=values).method == method, values
        assert bound(True, True, True, False, method="quick", run_values=values).method == "quick"


def forget() -> None:
    """The bounds that this process has computed."""
    run_bounds._recent.clear()


def run_of(jobs: list[Job], **settings: Any) -> Run:
    return clustersim.run(jobs, "fifo", cluster="n1g8", overheads=None, **settings)


def test_a_run_states_its_bound_and_how_far_it_is_from_it(tmp_path: Path) -> None:
    made = run_of(list(DUE), out=tmp_path)
    stated = made.manifest["bound"]
    assert stated["jct_mean_s"] == near((50 + 80 + 20) / 3)
    assert made.summary["jct_over_bound"] == made.summary["jct_mean_s"] / stated["jct_mean_s"]
    assert made.summary["makespan_over_bound"] == made.summary["makespan_s"] / stated["makespan_s"]
    assert made.summary["deadlines_of_bound"] == near(1.0)
    assert made.manifest["timings"]["bound_s"] > 0
    in_memory = run_of(list(DUE))
    assert in_memory.summary == read_run(tmp_path).summary
    assert in_memory.manifest["bound"] == read_run(tmp_path).manifest["bound"]


def test_no_bound_is_computed_where_none_is_wanted_or_a_run_is_cut_short() -> None:
    made = run_of(list(DUE), bound="none")
    assert made.manifest["bound"] is None
    assert [made.summary[name] for name in made.summary if "bound" in name] == [None] * 3
    assert run_of(list(DUE), until_s=120.0).summary["jct_over_bound"] == near(1.0)  # of the first job


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
        run_of(list(DUE))
    partial: Run = caught.value.partial  # type: ignore[attr-defined]
    assert (partial.manifest["bound"], partial.manifest["status"]) == (None, "complete")
    assert partial.summary["finished"] == 3
