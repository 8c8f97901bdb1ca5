"""What rules of `clustersim check` say where a folder alone does not decide. Falsified runs: `forgeries/`."""

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clustersim.audit import Finding, check_run_folder
from clustersim.audit.folder import check_run
from clustersim.audit.rules import better_than
from clustersim.bounds import Bound
from clustersim.cli import main
from clustersim.records import Run
from clustersim.rundir import csv_in, read_run, write_run
from clustersim.runs import run
from itertime.io import sha256
from itertime.spec.profile import FOLDER as PROFILES
from itertime.spec.profile import read_profile
from itertime.spec.system import SYSTEMS, variant_of
from tests.folders import rehashed
from traces.job import Job
from traces.native import write_trace

pytestmark = pytest.mark.usefixtures("wide_terminal")

JOBS = [
    Job("long", 0.0, gpus=16, duration_s=300.0, deadline_s=350.0),
    Job("short", 10.0, gpus=8, duration_s=20.0),
    Job("llm", 15.0, model="megatron-1.7b", global_batch=64, iterations=50.5, gpus=8),
    Job("wide", 18.0, gpus=99, duration_s=20.0, deadline_s=50.0),
]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    write_trace(JOBS, tmp_path / "trace.csv")
    return tmp_path / "trace.csv"


def verdict(made: Run | Path, rule: str, trace: Path | None = None) -> tuple[str, str]:
    """What a rule finds in a run or a folder, and what it does not prove."""
    findings = check_run_folder(made, trace) if isinstance(made, Path) else check_run(made, trace)
    finding: Finding = next(finding for finding in findings if finding.rule == rule)
    return "; ".join(violation.text for violation in finding.violations), finding.unproved


# Traces


def test_a_trace_that_moved_or_changed(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "t.csv"
    other.write_bytes(trace.read_bytes())
    made = run(other, "srtf", cluster="n2g8", out=tmp_path / "run")
    other.unlink()
    for rule in ("trace", "bound"):
        assert "t.csv: cannot be read: No such file" in verdict(made, rule)[1]
    assert main(["check", str(tmp_path / "run")]) == 0
    assert "not proved: " in capsys.readouterr().out
    assert main(["check", str(tmp_path / "run"), "--trace", str(trace)]) == 0
    assert "not proved: " not in capsys.readouterr().out
    write_trace([replace(JOBS[0], deadline_s=700.0), *JOBS[1:]], other)
    assert "is not the trace of the run any more" in verdict(made, "trace")[1]
    assert main(["check", str(tmp_path / "run"), "--trace", str(other)]) == 4
    out = capsys.readouterr().out
    assert "t.csv is not the trace whose hash manifest.json states" in out
    assert "job long: deadline_s is 350.0 in its record, 700.0 in the trace" in out
    assert main(["check", str(tmp_path / "run"), "--trace", str(tmp_path / "nowhere")]) == 2


def test_a_trace_made_in_memory(trace: Path) -> None:
    made = run(JOBS, "srtf", cluster="n2g8")
    assert "made in memory" in verdict(made, "trace")[1]
    assert verdict(made, "trace", trace) == ("", "")


def test_gpus_that_a_user_ruled_out(tmp_path: Path) -> None:
    work: dict[str, Any] = {"model": "megatron-1.7b", "global_batch": 64, "iterations": 900.0, "min_gpus": 2}
    jobs = [Job("a", 0.0, gpus=4, max_gpus=8, **work), Job("b", 0.0, gpus=2, **work)]
    write_trace(jobs, tmp_path / "t.csv")
    made = run(tmp_path / "t.csv", "max-min", cluster="n2g8")
    assert 8 in {event.gpus for event in made.events if event.job_id == "a"}
    assert verdict(made, "trace") == ("", "")
    write_trace([replace(jobs[0], max_gpus=4), jobs[1]], tmp_path / "narrow.csv")
    assert "job a on 8 GPUs; its user allows 2 to 4" in verdict(made, "trace", tmp_path / "narrow.csv")[0]


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
    jobs = [
        replace(job, deadline_s=1e9, deadline_met=True) if job.job_id == "123" else job for job in made.jobs
    ]
    write_run(tmp_path / "other", replace(made, jobs=jobs))
    assert [f.rule for f in check_run_folder(tmp_path / "other") if f.violations] == ["trace", "summary"]


# Bounds


METRICS = ("jct_mean_s", "jct_p99_s", "makespan_s", "deadline_met_ratio")


def test_a_run_of_faster_jobs_than_those_of_the_trace_is_below_the_bound(trace: Path, tmp_path: Path) -> None:
    rigid = [job for job in JOBS if job.kind == "duration"]
    write_trace(rigid, trace)
    run(trace, "fifo", cluster="n2g8", out=tmp_path / "run")
    write_trace([replace(job, duration_s=10 * (job.duration_s or 0.0)) for job in rigid], trace)
    folder = rehashed(tmp_path / "run", trace={"path": str(trace), "jobs": 3, "sha256": sha256(trace)})
    named = [text.partition(" is ")[0] for text in verdict(folder, "bound")[0].split("; ") if " is " in text]
    assert named == [*METRICS, *(f"bound.{name}" for name in METRICS)]


def test_what_is_better_than_a_bound_is_named() -> None:
    records = run(JOBS, "fifo", cluster="n2g8").jobs
    possible = Bound(0.0, 0.0, 0.0, 1.0, "alone", 0.0)
    assert better_than(possible, records) == []
    assert better_than(Bound(None, None, None, None, "alone", 0.0), records) == []
    texts = better_than(Bound(1e6, 1e6, 1e6, 0.0, "alone", 0.0), records)
    assert [text.partition(" is ")[0] for text in texts] == list(METRICS)


# Formats, systems and profiles


def test_another_format_is_not_read_as_ours(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run([Job("a", 0.0, gpus=4, duration_s=60.0)], "fifo", cluster="n1g8", out=tmp_path / "run")
    rehashed(tmp_path / "run", format="clustersim-run-2")
    for command in (["check"], ["explain", "--job", "a"]):
        assert main([command[0], str(tmp_path / "run"), *command[1:]]) == 2
        said = capsys.readouterr().err
        assert "manifest.json: format='clustersim-run-2': this program reads clustersim-run-1" in said
        assert "run the simulation again, or use the version that made it" in said


def forget() -> None:
    """Profiles are read again."""
    read_profile.cache_clear()
    variant_of.cache_clear()


def test_a_system_and_a_profile_of_files(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Either may have changed since the run, which is no violation."""
    text = (SYSTEMS / "dgx-a100-80gb.yaml").read_text()
    assert "profile: a100-80gb" in text
    system, profile, out = tmp_path / "mine.yaml", tmp_path / "mine.json", tmp_path / "run"
    profile.write_text((PROFILES / "a100-80gb.json").read_text().replace('"a100-80gb"', '"my-own"', 1))
    system.write_text(text.replace("profile: a100-80gb", f"profile: {profile}"))
    made = run(trace, "srtf", cluster="n2g8", system=str(system), out=out)
    assert made.manifest["profile"] == {"name": "my-own", "sha256": sha256(profile)}
    assert main(["check", str(out), "--replay"]) == 0
    for file, old, new in ((system, "300.0e+9", "200.0e+9"), (profile, '"launch_s": 1', '"launch_s": 7')):
        before = file.read_text()
        assert old in before
        file.write_text(before.replace(old, new, 1))
        capsys.readouterr()
        forget()  # as in another process
        assert main(["check", str(out), "--replay"]) == 2
        printed = capsys.readouterr()
        assert "BROKEN" not in printed.out
        assert f"{system}, or its profile, is not what the run read" in printed.err
        file.write_text(before)
    forget()
    assert main(["check", str(out), "--replay"]) == 0
