"""Failures from the command line: what is written, proved and shown."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from clustersim.cli import main
from clustersim.rundir import read_run

pytestmark = pytest.mark.usefixtures("wide_terminal")

TRACE = (
    "job_id,submit_s,model,gpus,global_batch,iterations,duration_s,state\n"
    + "".join(f"m{i},{600 * i},megatron-1.7b,{8 << i % 2},512,{2000 + 500 * i},,\n" for i in range(8))
    + "".join(
        f"d{i},{900 * i},,{1 << i % 4},,,{9000 + 700 * i},{'Failed' if i == 2 else ''}\n" for i in range(6)
    )
)
ADVERSE = (
    "--cluster", "n4g8", "--seed", "3", "--set", "failures.mtbf_gpu_h=60",
    "--set", "failures.repair_scale=0.1", "--set", "failures.spare_nodes=1",
    "--set", "failures.end_as_logged=true",
    "--set", "overheads.storage_shared=true", "--set", "overheads.storage_bytes_per_s=2e9",
    "--set", "calendar=[{at_s: 5000, maintenance: 0-1, for_s: 900}]",
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("failures")
    (home / "trace.csv").write_text(TRACE)
    arguments = ["compare", str(home / "trace.csv"), "--policies", "fifo,srtf,elasticflow", *ADVERSE]
    with redirect_stdout(io.StringIO()) as shown:
        assert main([*arguments, "--workers", "1", "--out", str(home / "out")]) == 0
    assert "Jobs that ended as failed: fifo 1, srtf 1, elasticflow 1." in shown.getvalue()
    return home / "out"


def test_adverse_runs_are_proved_from_their_folders(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["check", str(folder), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [run["ok"] for run in document["runs"]] == [True] * 3
    for name in ("fifo", "srtf", "elasticflow"):
        run = read_run(folder / name)
        kinds = {event.event for event in run.events}
        assert {"node_down", "node_up", "interrupt", "restart", "fail"} <= kinds, name
        assert run.summary["failed"] == 1
        assert run.summary["interruptions"] == sum(job.interruptions for job in run.jobs) > 3
        lost = sum(job.overhead_gpu_s + job.lost_work_gpu_s for job in run.jobs)
        assert run.summary["lost_gpu_h"] == pytest.approx(lost / 3600)
        assert run.manifest["failures"]["mtbf_gpu_h"] == 60
        assert run.manifest["calendar"] == [{"at_s": 5000, "maintenance": "0-1", "for_s": 900}]
    assert any(event.event == "loaded" for event in read_run(folder / "fifo").events)


def test_explain_tells_what_each_failure_cost(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = read_run(folder / "fifo")
    worst = max(run.jobs, key=lambda job: job.lost_work_s)
    capsys.readouterr()
    assert main(["explain", str(folder / "fifo"), "--job", worst.job_id]) == 0
    told = capsys.readouterr().out
    interrupts = [e for e in run.events if e.event == "interrupt" and e.job_id == worst.job_id]
    for event in interrupts:
        assert f"({event.detail})" in told
        assert f"lost the work of {event.overhead_s:,.1f}".removesuffix(".0") in told
    many = "s" * (worst.interruptions > 1)
    assert f"cost of {worst.interruptions} failure{many}: " in told
    assert f"{worst.lost_work_s:,.1f}".removesuffix(".0") + " s of work" in told
    assert "s of work that was lost" in told


def test_the_gpu_time_of_the_report_is_whole(folder: Path) -> None:
    from clustersim.analysis import gpu_time

    for name in ("fifo", "elasticflow"):
        run = read_run(folder / name)
        split = gpu_time(run)
        assert split is not None
        assert sum(split.seconds.values()) == pytest.approx(split.total)
        lost = sum(job.lost_work_gpu_s for job in run.jobs)
        assert split.seconds["lost"] == pytest.approx(lost, rel=1e-3)
        assert split.seconds["down"] > 0
        assert split.seconds["overhead"] == pytest.approx(
            sum(job.overhead_gpu_s for job in run.jobs), rel=1e-3
        )
