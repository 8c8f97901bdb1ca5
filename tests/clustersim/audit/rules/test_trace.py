"""The rule `trace` of `clustersim check`: the records of jobs agree with what was submitted."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clustersim.audit import Finding, check_run_folder
from clustersim.audit.folder import check_run
from clustersim.cli import main
from clustersim.records import EventRecord, Run
from clustersim.rundir import csv_in, read_run, write_run
from clustersim.runs import run
from traces.job import Job
from traces.native import write_trace

pytestmark = pytest.mark.usefixtures("wide_terminal")

JOBS = [
    Job("a", 0.0, gpus=16, duration_s=300.0, deadline_s=350.0, tenant="blue"),
    Job("b", 10.0000004, gpus=8, duration_s=20.0),
    Job("llm", 20.0, model="megatron-1.7b", global_batch=64, iterations=50.5, gpus=6, seq_len=1024),
    Job("big", 30.0, model="gpt3-175b", global_batch=64, iterations=5.0, gpus=8),
    Job("wide", 40.0, gpus=99, duration_s=20.0),
    Job("c", 50.0, gpus=8, duration_s=20.0, deadline_s=1000.0),
]


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trace") / "trace.csv"
    write_trace(JOBS, path)
    return path


@pytest.fixture(scope="module")
def sound(trace: Path) -> Run:
    return run(trace, "srtf", cluster="n2g8")


def found(run: Run, trace: Path | None = None) -> Finding:
    return next(finding for finding in check_run(run, trace) if finding.rule == "trace")


def texts(run: Run, trace: Path | None = None) -> str:
    return "; ".join(violation.text for violation in found(run, trace).violations)


# Falsified runs

Falsify = Callable[[Run], Run]


def record(job: str, **fields: Any) -> Falsify:
    return lambda run: replace(run, jobs=[replace(j, **fields) if j.job_id == job else j for j in run.jobs])


def invented(run: Run) -> Run:
    last = run.jobs[-1]
    jobs = [*run.jobs, replace(last, job_id="z", submit_s=last.submit_s + 1)]
    return replace(run, jobs=jobs, manifest={**run.manifest, "trace": {**run.manifest["trace"], "jobs": 7}})


def declined(run: Run) -> Run:
    """A job that missed its deadline is made to look rejected."""
    jobs = [
        replace(j, state="rejected", start_s=None, finish_s=None, jct_s=None, queue_s=None, gpu_seconds=0.0,
                wait_s=0.0, reason="too large") if j.job_id == "a" else j
        for j in run.jobs
    ]  # fmt: skip
    events: list[EventRecord] = [e for e in run.events if e.job_id != "a" or e.event == "submit"]
    return replace(run, jobs=jobs, events=events)


@pytest.mark.parametrize(
    ("falsify", "text"),
    [(invented, "job z is not in the trace"), (declined, "job a: it can run, and is rejected: too large")],
)
def test_jobs_that_are_invented_or_declined(sound: Run, falsify: Falsify, text: str) -> None:
    assert text in texts(falsify(sound))


def test_gpus_that_a_user_ruled_out(tmp_path: Path) -> None:
    work: dict[str, Any] = {"model": "megatron-1.7b", "global_batch": 64, "iterations": 900.0, "min_gpus": 2}
    jobs = [Job("a", 0.0, gpus=4, max_gpus=8, **work), Job("b", 0.0, gpus=2, **work)]
    write_trace(jobs, tmp_path / "t.csv")
    made = run(tmp_path / "t.csv", "max-min", cluster="n2g8")
    assert 8 in {event.gpus for event in made.events if event.job_id == "a"}
    assert (texts(made), found(made).unproved) == ("", "")
    write_trace([replace(jobs[0], max_gpus=4), jobs[1]], tmp_path / "narrow.csv")
    assert "job a on 8 GPUs; its user allows 2 to 4" in texts(made, tmp_path / "narrow.csv")


def test_a_failed_job_that_is_said_to_have_finished(tmp_path: Path) -> None:
    jobs = [Job(f"{i}", 40.0 * i, gpus=4, duration_s=400.0 + i) for i in range(20)]
    write_trace(jobs, tmp_path / "t.csv")
    made = run(tmp_path / "t.csv", "fifo", cluster="n2g8", failures={"job_failed_share": 0.5})
    job = next(job for job in made.jobs if job.state == "failed")
    text = f"job {job.job_id}: it finished, and was to end before: failed, as drawn"
    assert text in texts(record(job.job_id, state="finished", reason="")(made))
    job = next(job for job in made.jobs if job.state == "finished")
    assert "nothing says that it fails: bad luck" in texts(
        record(job.job_id, state="failed", reason="bad luck")(made)
    )


# Where the trace is


def test_a_trace_that_moved_or_changed(
    sound: Run, trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "t.csv"
    other.write_bytes(trace.read_bytes())
    made = run(other, "srtf", cluster="n2g8", out=tmp_path / "run")
    other.unlink()
    assert "t.csv: cannot be read: No such file" in found(made).unproved
    assert main(["check", str(tmp_path / "run")]) == 0
    assert "not proved: " in capsys.readouterr().out
    assert main(["check", str(tmp_path / "run"), "--trace", str(trace)]) == 0
    assert "not proved: " not in capsys.readouterr().out
    write_trace([replace(JOBS[0], deadline_s=700.0), *JOBS[1:]], other)
    assert "is not the trace of the run any more" in found(made).unproved
    assert main(["check", str(tmp_path / "run"), "--trace", str(other)]) == 4
    out = capsys.readouterr().out
    assert "t.csv is not the trace whose hash manifest.json states" in out
    assert "job a: deadline_s is 350.0 in its record, 700.0 in the trace" in out
    assert main(["check", str(tmp_path / "run"), "--trace", str(tmp_path / "nowhere")]) == 2


def test_a_trace_made_in_memory(trace: Path) -> None:
    made = run(JOBS, "srtf", cluster="n2g8")
    assert "made in memory" in found(made).unproved
    assert (texts(made, trace), found(made, trace).unproved) == ("", "")


@pytest.mark.parametrize("path", ["/dev/zero", "/", "", 7, "x\0y", None])
def test_hostile_places(sound: Run, path: object) -> None:
    stated = {**sound.manifest["trace"], "path": path}
    finding = found(replace(sound, manifest={**sound.manifest, "trace": stated}))
    assert finding.unproved
    assert not finding.violations


def test_records_in_another_order_are_matched(sound: Run) -> None:
    turned = replace(sound, jobs=sound.jobs[::-1])
    assert texts(turned).count("; ") == 0
    assert "its record is not in the order of submission" in texts(turned)


def test_a_trace_of_many_blocks_is_read_beside_the_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_in, "_BLOCK", 100)
    with (tmp_path / "t.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["job_id", "submit_s", "gpus", "duration_s"])
        writer.writerows([i, 10 * (299 - i) + 0.123456789, 1 + i % 8, 20 + i % 7] for i in range(300))
    run(tmp_path / "t.csv", "fifo", cluster="n2g8", out=tmp_path / "run")
    assert not [f for f in check_run_folder(tmp_path / "run") if f.violations or f.unproved]
    made = read_run(tmp_path / "run")
    write_run(tmp_path / "other", record("123", deadline_s=1e9, deadline_met=True)(made))
    assert [f.rule for f in check_run_folder(tmp_path / "other") if f.violations] == ["trace", "summary"]
