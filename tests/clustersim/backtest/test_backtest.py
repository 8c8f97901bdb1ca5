"""Backtests of logs of which the truth is known."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clustersim.backtest import JOB_COLUMNS, SiteFacts, backtest, read_logged, write_backtest
from clustersim.cluster import Cluster
from itertime.errors import UserError
from itertime.io import without_guard
from tests.clustersim.backtest.logs import GPUS, jobs_of, logged, start_up_of, written
from traces import Job
from traces.logs import ReadOptions


def judged(folder: Path, jobs: list[Job], facts: SiteFacts | None = None, **options: Any) -> dict[str, Any]:
    """The summary of a backtest of these jobs."""
    log = read_logged(written(folder, jobs))
    return backtest(log, *([] if facts is None else [facts]), **options).summary


@pytest.mark.parametrize("policy", ["fifo", "easy", "sjf"])
def test_the_policy_that_made_a_log_reproduces_it(policy: str, tmp_path: Path) -> None:
    log = read_logged(written(tmp_path, logged(jobs_of(), policy)))
    result = backtest(log, policies=[policy])
    assert result.made.pools == {"all": GPUS}
    waits = result.summary["parts"]["all"]["wait"]
    assert waits["logged"]["mean_s"] > 600, "a log in which nothing waits shows nothing"
    assert waits["absolute_s"] == waits["bias_s"] == waits["distance_s"] == 0
    assert (waits["spearman"], waits["kendall"]) == pytest.approx((1, 1))
    assert result.summary["parts"]["all"]["jct"]["absolute_s"] == 0
    use = result.summary["use"]
    assert (use["logged"], use["mean_difference"]) == (use["simulated"], 0)
    assert backtest(log, policies=["fifo-skip"]).summary["parts"]["all"]["score"] > 0.05


@pytest.mark.parametrize(
    ("policy", "tenants", "start_up_s"),
    [*((name, 1, 0.0) for name in ("fifo", "fifo-skip", "easy", "conservative", "sjf")),
     ("multifactor", 3, 0.0), ("easy", 1, 20.0)],
)  # fmt: skip
def test_a_fit_finds_what_made_the_log(policy: str, tenants: int, start_up_s: float, tmp_path: Path) -> None:
    overheads = start_up_of(start_up_s) if start_up_s else None
    jobs = logged(jobs_of(tenants=tenants), policy, start_up_s, overheads=overheads)
    summary = judged(tmp_path, jobs, fitted=True)
    site = summary["site"]
    assert (site["policy"], site["start_up_s"], site["capacity_factor"]) == (policy, start_up_s, 1)
    assert {part: errors["jobs"] for part, errors in summary["parts"].items()} == {"fitted": 60, "judged": 60}
    assert summary["parts"]["judged"]["score"] == 0
    assert summary["parts"]["fitted"]["score"] == 0 or tenants > 1


def test_gpus_are_held_during_the_start_up(tmp_path: Path) -> None:
    jobs = [
        Job("a", 0.0, gpus=1, duration_s=100.0, logged_start_s=20.0),
        Job("b", 10.0, gpus=1, duration_s=50.0, logged_start_s=140.0),
    ]
    result = backtest(read_logged(written(tmp_path, jobs)), start_up_s=20.0)
    assert (result.made.start_s.tolist(), result.made.end_s.tolist()) == ([20.0, 140.0], [120.0, 190.0])
    assert result.summary["parts"]["all"]["jct"]["absolute_s"] == 0


def test_a_fit_does_not_see_the_judged_part(tmp_path: Path) -> None:
    jobs = logged(jobs_of(), "easy")
    later = [
        replace(job, logged_start_s=job.submit_s + 7 * int(job.job_id)) if int(job.job_id) >= 60 else job
        for job in jobs
    ]
    one, two = (judged(tmp_path, log, fitted=True) for log in (jobs, later))
    assert one["site"] == two["site"]
    trials = [[trial | {"judged_score": 0} for trial in s["fit"]["trials"]] for s in (one, two)]
    assert trials[0] == trials[1]
    assert one["parts"]["judged"]["score"] != two["parts"]["judged"]["score"]


def test_capacity_of_the_fit_is_that_of_the_first_part(tmp_path: Path) -> None:
    jobs = logged(jobs_of(), "fifo")
    alone = [replace(job, logged_start_s=job.submit_s) if int(job.job_id) >= 60 else job for job in jobs]
    log = read_logged(written(tmp_path, alone))
    assert backtest(log).made.gpus > GPUS
    summary = backtest(log, policies=["fifo"], fitted=True).summary
    assert summary["site"]["gpus"] == GPUS
    assert summary["parts"]["fitted"]["score"] == 0 < summary["parts"]["judged"]["score"]


def test_pools_do_not_compete(tmp_path: Path) -> None:
    jobs = jobs_of(tenants=2)
    halves = [logged([job for job in jobs if job.tenant == tenant], "fifo") for tenant in ("t0", "t1")]
    log = read_logged(written(tmp_path, [*halves[0], *halves[1]]))
    apart = backtest(log, SiteFacts("tenant", {name: Cluster(GPUS, 1) for name in ("t0", "t1")}))
    assert apart.summary["parts"]["all"]["wait"]["absolute_s"] == 0
    assert apart.made.pools == {"t0": GPUS, "t1": GPUS}
    assert [group["group"] for group in apart.summary["groups"]["pool"]] == ["t0", "t1"]
    assert backtest(log).summary["parts"]["all"]["score"] > 0


def test_jobs_that_are_load_are_counted_and_not_compared(tmp_path: Path) -> None:
    jobs = logged(jobs_of())
    summary = judged(tmp_path, jobs, warmup_s=10_000)
    early = sum(job.submit_s < 10_000 for job in jobs)
    assert summary["not_compared"]["warm-up"] == early > 0
    assert (summary["parts"]["all"]["jobs"], summary["parts"]["all"]["score"]) == (len(jobs) - early, 0)
    some = [replace(job, logged_start_s=None) if i % 10 == 0 else job for i, job in enumerate(jobs)]
    summary = judged(tmp_path, some, SiteFacts(clusters={"": Cluster(GPUS, 1)}))
    assert summary["not_compared"]["no logged start"] == 12
    assert (summary["parts"]["all"]["jobs"], summary["parts"]["all"]["score"]) == (108, 0)
    summary = judged(tmp_path, jobs, SiteFacts(clusters={"": Cluster(8, 1)}), policies=["fifo-skip"])
    large = sum(job.gpus == 12 for job in jobs)
    assert summary["not_compared"]["never started in the simulation"] == large > 0


def test_the_order_of_rows_does_not_matter(tmp_path: Path) -> None:
    jobs = logged(jobs_of(tenants=3), "easy")
    one, two = (judged(tmp_path, rows) for rows in (jobs, jobs[::-1]))
    for summary in (one, two):
        for key in ("sha256", "input"):
            summary["log"].pop(key, None)
    assert one == two


def test_what_is_written(tmp_path: Path) -> None:
    jobs = logged(jobs_of(40))
    jobs[3] = replace(jobs[3], user="=1+1")
    log = read_logged(written(tmp_path, jobs))
    write_backtest(backtest(log, policies=["sjf"]), tmp_path / "new" / "out")
    folder = tmp_path / "new" / "out"
    assert sorted(path.name for path in folder.iterdir()) == ["jobs.csv", "report.html", "summary.json"]
    with (folder / "jobs.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == JOB_COLUMNS
    assert [row["job_id"] for row in rows] == [job.job_id for job in log.jobs]
    assert rows[3]["user"].startswith("'")
    assert without_guard(rows[3]["user"]) == log.jobs[3].user
    for row in rows:
        off = float(row["simulated_wait_s"]) - float(row["logged_wait_s"])
        assert float(row["error_s"]) == pytest.approx(off, abs=0.002)
    stated = json.loads((folder / "summary.json").read_text())
    mean = sum(float(row["error_s"]) for row in rows) / len(rows)
    assert stated["parts"]["all"]["wait"]["bias_s"] == pytest.approx(mean, abs=0.002)


# What cannot be backtested

HEAD = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"


def test_impossible_times_are_counted_by_reason(tmp_path: Path) -> None:
    rows = [
        "a,u,v,4,0,1,COMPLETED,1600000000,1600000010,1600000110,100,10",
        "b,u,v,4,0,1,COMPLETED,1600000050,1600000040,1600000140,100,0",  # starts before its submission
        "c,u,v,4,0,1,COMPLETED,1600000060,1600000070,1600000065,100,10",  # ends before its start
        "d,u,v,x,0,1,COMPLETED,1600000060,1600000070,1600000065,100,10",
    ]
    path = tmp_path / "log.csv"
    path.write_text(HEAD + "\n".join(rows) + "\n")
    summary = backtest(read_logged(path)).summary
    assert summary["log"]["with_start"] == 2
    assert summary["log"]["jobs"] == 3
    said = " ".join(summary["log"]["assumptions"])
    assert "left out of 1 jobs: logged start: lies before the submission" in said
    assert "left out of 1 jobs: logged end: lies before the start or the submission" in said
    assert sum(summary["log"]["dropped_by_reason"].values()) == 1


@pytest.mark.parametrize("seed", range(60))
def test_a_damaged_log_is_refused_or_backtested(seed: int, tmp_path: Path) -> None:
    draw = np.random.default_rng(seed)
    rows = [f"{i} {40 * i} {i % 7} {60 + i} 4 -1 -1 4 900 -1 1 {i % 3} 1 -1 1 1 -1 -1" for i in range(1, 30)]
    content = bytearray("\n".join(rows).encode())
    for place in draw.integers(0, len(content), 1 + seed % 12):
        content[place] = draw.choice(list(b"0123456789-. \n;,e"))
    path = tmp_path / "log.swf"
    path.write_bytes(content)
    try:
        summary = backtest(read_logged(path, ReadOptions("swf")), policies=["easy"]).summary
    except UserError:
        return
    assert summary["parts"]["all"]["jobs"] + sum(summary["not_compared"].values()) == summary["log"]["jobs"]
    json.dumps(summary, allow_nan=False)
