"""From a trace and settings to a run, and to comparisons."""

from __future__ import annotations

import json
import os
from pathlib import Path
from random import Random
from threading import Thread
from typing import Any

import pandas as pd
import pytest

import clustersim
from clustersim.errors import PolicyError
from clustersim.runs import RunConfig, Trace, compare, run
from itertime.io import sha256
from traces import Job, write_trace

JOBS = [
    Job("a", 0.0, gpus=8, duration_s=60.0),
    Job("b", 0.0, gpus=8, duration_s=30.0),
    Job("c", 10.0, gpus=4, duration_s=5.0),
    Job("llm", 20.0, model="gpt3-1.3b", global_batch=64, iterations=20.0, gpus=8),
    Job("wide", 30.0, gpus=9, duration_s=5.0),
]
FREE: dict[str, Any] = {"cluster": "n1g8", "overheads": None}
FAILS = """
from clustersim.scheduler import Scheduler
class Fails(Scheduler):
    def schedule(self, state):
        if state.now >= 10:
            raise RuntimeError("enough")
        proposal = state.proposal()
        for job in state.pending:
            proposal.start(job)
        return proposal
"""


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
