"""`clustersim backtest` on the command line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from clustersim.cli import main
from tests.clustersim.backtest.logs import jobs_of, logged, written
from traces import Job


def test_json_is_the_summary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = written(tmp_path, logged(jobs_of(40)))
    assert main(["backtest", str(log), "--json", "-o", str(tmp_path / "out")]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads((tmp_path / "out/summary.json").read_text())


def test_clusters_by_pool(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    jobs = jobs_of(40, tenants=2)
    log = written(tmp_path, [replace(job, logged_start_s=job.submit_s) for job in jobs])
    given = ["--cluster", "t0=n4g8", "--cluster", "t1=n2g8", "--pools", "tenant", "--json"]
    assert main(["backtest", str(log), *given]) == 0
    assert json.loads(capsys.readouterr().out)["site"]["pools"] == {"t0": 32, "t1": 16}


def test_a_calendar_of_the_user_replaces_the_inferred_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = [Job(f"{i}", 0.0, gpus=8, duration_s=600.0, logged_start_s=600.0 * i) for i in range(3)]
    log = written(tmp_path, [*jobs, Job("3", 100.0, gpus=8, duration_s=600.0, logged_start_s=4000.0)])
    given = ["backtest", str(log), "--cluster", "n1g8", "--json"]
    assert main(given) == 0
    plain = json.loads(capsys.readouterr().out)["parts"]["all"]["wait"]["simulated"]["mean_s"]
    assert plain == pytest.approx((0 + 600 + 1200 + 1700) / 4)
    assert main([*given, "--set", "calendar=[{at_s: 1800, maintenance: 0, for_s: 2200}]"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["parts"]["all"]["wait"]["absolute_s"] == 0
    assert any(text.startswith("nodes are out of service as") for text in summary["assumptions"])
