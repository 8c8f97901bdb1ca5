"""`clustersim backtest` on the command line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from clustersim.cli import main
from tests.clustersim.backtest.logs import jobs_of, logged, written


def test_it_prints_tables_that_fit_and_writes_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = written(tmp_path, logged(jobs_of(tenants=2), "easy"))
    assert main(["backtest", str(log), "--fit", "--policy", "fifo,easy", "-o", str(tmp_path / "out")]) == 0
    shown = capsys.readouterr().out
    assert "Site: easy, start-up 0 s; 16 GPUs" in shown
    assert "Judged part: 60 jobs, score 0.000" in shown
    assert "Waits by user" in shown
    assert [s for s in shown.splitlines() if len(s) > 100 and not s.startswith("Written to")] == []
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "jobs.csv", "report.html", "summary.json",
    ]  # fmt: skip


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


@pytest.mark.parametrize(
    ("options", "code", "error"),
    [
        (["--cluster", "n1g8", "--cluster", "n2g8"], 2, "is the second for the only pool"),
        (["--cluster", "=n1g8"], 2, "write POOL=SHAPE"),
        (["--cluster", "a=n1g8", "--cluster", "n1g8"], 2, "give one for all"),
        (["--fit", "--start-up", "3"], 2, "is chosen by --fit"),
        (["--policy", "fifi"], 2, "did you mean fifo"),
        (["--pools", "user"], 2, "unknown division into pools"),
        (["--set", "colour=1"], 2, "colour"),
        (["--set", "cluster=n4g1"], 2, "use --cluster"),
        (["--set", "overheads.launch_s=10"], 2, "use --start-up"),
        (["--limit", "0"], 2, "--limit 0"),
    ],
)
def test_mistakes_are_named(
    options: list[str], code: int, error: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = written(tmp_path, logged(jobs_of(20)))
    assert main(["backtest", str(log), *options]) == code
    assert error in capsys.readouterr().err


def test_a_log_without_starts_is_a_bad_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = written(tmp_path, jobs_of(5))
    assert main(["backtest", str(log)]) == 3
    assert "states no start of any job" in capsys.readouterr().err
