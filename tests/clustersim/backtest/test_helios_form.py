"""A log in the form of Helios' cluster_log.csv, of which the policy of each virtual cluster is known."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from clustersim.backtest import read_logged
from clustersim.cli import main
from tests.clustersim.backtest.logs import jobs_of, logged

FIRST = datetime(2020, 8, 28, tzinfo=UTC).timestamp()
COLUMNS = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue"
SITES = {"vcvGl": ("sjf", 160, 3), "vcJkd": ("fifo", 100, 4)}


@pytest.fixture(scope="module")
def cluster_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two virtual clusters of 16 GPUs, and jobs that use CPUs alone."""
    rows = []
    for vc, (policy, count, seed) in SITES.items():
        for job in logged(jobs_of(count, seed), policy, cluster="n2g8"):
            start_s, run_s = job.logged_start_s or 0.0, job.duration_s or 0.0
            dates = [_date(t) for t in (job.submit_s, start_s, start_s + run_s)]
            wait_s = round(start_s - job.submit_s)
            row = f"{vc}{job.job_id},{job.user},{vc},{job.gpus},4,1,COMPLETED,{','.join(dates)},{run_s:.0f}"
            rows.append(f"{row},{wait_s}")
    rows.append(f"cpu,u0,vcvGl,0,4,1,COMPLETED,{_date(0)},{_date(0)},{_date(60)},60,0")
    path = tmp_path_factory.mktemp("helios") / "cluster_log.csv"
    path.write_text("\n".join([COLUMNS, *rows]) + "\n", encoding="utf-8")
    return path


def _date(time_s: float) -> str:
    return datetime.fromtimestamp(FIRST + time_s, UTC).strftime("%Y-%m-%d %H:%M:%S")


def summary_of(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main(["backtest", *arguments, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_virtual_cluster_is_fitted_and_judged(
    cluster_log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--pools", "tenant", "--cluster", "vcvGl=n2g8", "--only", "tenant=vcvGl", "--fit"]
    summary = summary_of([str(cluster_log), *given], capsys)
    assert summary["site"]["policy"] == "sjf"
    assert summary["site"]["pools"] == {"vcvGl": 16}
    assert summary["log"]["jobs"] == 160
    judged = summary["parts"]["judged"]
    assert judged["jobs"] == 80
    for figure in ("mean_s", "p90_s"):
        assert judged["wait"]["logged"][figure] > 60
        assert judged["wait"]["simulated"][figure] == pytest.approx(judged["wait"]["logged"][figure], rel=0.2)
    dropped = summary["log"]["dropped_by_reason"]
    assert sum(dropped.values()) == 1, "the job without GPUs"


def test_the_jobs_of_some_days(cluster_log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = read_logged(cluster_log)
    some = log.part("tenant=vcvGl", "2020-08-28 06:00", "2020-08-28 12:00")
    dates = [datetime.fromtimestamp(some.zero_s + t, UTC) for t in some.submit_s.tolist()]
    assert {(date.day, 6 <= date.hour < 12) for date in dates} == {(28, True)}
    assert some.submit_s[0] == 0
    assert {job.tenant for job in some.jobs} == {"vcvGl"}
    places = {job.job_id: i for i, job in enumerate(log.jobs)}
    assert all(some.wait_s[i] == log.wait_s[places[job.job_id]] for i, job in enumerate(some.jobs))
    assert log.part() is log
    assert summary_of([str(cluster_log), "--before", "2020-08-28 12:00"], capsys)["log"]["jobs"] < len(
        log.jobs
    )
