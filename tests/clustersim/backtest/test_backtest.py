"""Backtests of logs of which the truth is known, and capacity, start-up and use by hand."""

import csv
import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clustersim.backtest import JOB_COLUMNS, SiteFacts, backtest, read_logged, write_backtest
from clustersim.backtest.use import Reduced, in_use, mean_difference, mean_use, peak, reduced
from clustersim.cli import main
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
    assert result.summary["verdict"]["trusted_for"] == ["waits of single jobs", "mean waits"]
    assert backtest(log, policies=["fifo-skip"]).summary["parts"]["all"]["score"] > 0.05
    other = backtest(log, policies=["fifo" if policy == "sjf" else "sjf"]).summary
    assert other["verdict"]["sentence"].startswith("Do not trust it, because the score is ")


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


def test_use_by_hand() -> None:
    start, run, gpus = np.array([0.0, 5.0, np.nan]), np.array([10.0, 10.0, 99.0]), np.array([4, 2, 8])
    moments, used = in_use(start, run, gpus)
    assert moments.tolist() == [0, 5, 10, 15]
    assert used.tolist() == [4, 6, 2, 0]
    assert mean_use(start, run, gpus, 0.0, 20.0) == (40 + 20) / 20
    assert mean_use(start, run, gpus, 7.0, 7.0) == 0
    other = in_use(np.array([0.0]), np.array([10.0]), np.array([4]))
    assert mean_difference((moments, used), other, 20.0) == (5 * 2 + 5 * 2) / 20


def test_all_runs_of_a_job_use_gpus_and_its_wait_counts_from_when_it_was_eligible(tmp_path: Path) -> None:
    rows = "job_id,submit_s,gpus,duration_s,logged_start_s,eligible_s,attempts\n"
    rows += "a,0,8,300,20,10,20-120:PREEMPTED 500-800:COMPLETED\nb,0,8,300,120,,\n"
    (tmp_path / "log.csv").write_text(rows)
    log = read_logged(tmp_path / "log.csv")
    assert peak(*log.runs_of(np.arange(2))) == 8
    assert log.wait_s.tolist() == [10, 120]
    assert log.held_s.tolist() == [10, 0]


def test_a_second_of_overlap_is_no_capacity() -> None:
    start = np.array([0.0, 3599.0, 7198.0])
    assert peak(start, np.full(3, 3600.0), np.full(3, 8)) == 8
    assert peak(start, np.array([3600.0, 3600.0, 3600.0]) + 100, np.full(3, 8)) == 16
    assert peak(np.array([np.nan]), np.array([1.0]), np.array([8])) == 0
    assert peak(np.array([0.0]), np.array([1.0]), np.array([8])) == 8


def test_an_outage_is_reduced_capacity_and_a_blocked_queue_is_not() -> None:
    hour = 3600.0
    # from 10 h to 20 h nothing runs although a job of 4 waits on 8 GPUs
    submit, start, run = [0.0, 9 * hour, 11 * hour], [0.0, 20 * hour, 22 * hour], [10 * hour, hour, hour]
    arrays = (np.array(submit), np.array(start), np.array(run))
    found = reduced(*arrays, np.array([8, 4, 4]), 8, np.inf)
    assert found == [Reduced(10 * hour, 20 * hour, 0)]
    assert reduced(*arrays, np.array([8, 4, 4]), 8, 15 * hour) == []  # five hours are too few
    # the largest job that waits does not fit: any scheduler may keep GPUs for it
    blocked = (
        np.array([0.0, hour, hour]),
        np.array([0.0, 20 * hour, 20 * hour]),
        np.array([20.0, 1.0, 1.0]) * hour,
    )
    assert reduced(*blocked, np.array([4, 8, 2]), 8, np.inf) == []


def test_an_outage_explains_waits(tmp_path: Path) -> None:
    hour = 3600.0
    jobs = [
        Job("a", 0.0, gpus=8, duration_s=2 * hour, logged_start_s=0.0),
        Job("b", 3 * hour, gpus=4, duration_s=hour, logged_start_s=15 * hour),
        Job("c", 4 * hour, gpus=8, duration_s=hour, logged_start_s=16 * hour),
    ]
    log = read_logged(written(tmp_path, jobs))
    result = backtest(log)
    assert any("less capacity in 1 times, 12 h" in text for text in result.summary["assumptions"])
    assert result.summary["parts"]["all"]["wait"]["absolute_s"] == 0
    constant = backtest(log, SiteFacts(look_for_reduced=False)).summary["parts"]["all"]["wait"]
    assert constant["bias_s"] == -8 * hour


@pytest.mark.parametrize(("delay_s", "seen_s"), [(12.0, 12.0), (400.0, 0.0)])
def test_start_up_is_the_wait_of_jobs_that_find_room(delay_s: float, seen_s: float, tmp_path: Path) -> None:
    jobs = [
        Job(f"{i}", 1000.0 * i, gpus=4, duration_s=100.0, logged_start_s=1000.0 * i + delay_s)
        for i in range(9)
    ]
    summary = backtest(read_logged(written(tmp_path, jobs))).summary
    assert summary["site"]["start_up_s"] == seen_s
    assert summary["parts"]["all"]["wait"]["bias_s"] == seen_s - delay_s


@pytest.mark.parametrize(
    ("sizes", "shape"), [((1, 8, 16), "n2g8"), ((1, 8, 12), "n12g1"), ((1, 4), "n4g1"), ((8, 9), "n9g1")]
)
def test_nodes_of_eight_where_no_request_contradicts(
    sizes: tuple[int, ...], shape: str, tmp_path: Path
) -> None:
    jobs = [
        Job(f"{i}", 1000.0 * i, gpus=gpus, duration_s=900.0, logged_start_s=1000.0 * i)
        for i, gpus in enumerate(sizes)
    ]
    pool = backtest(read_logged(written(tmp_path, jobs))).pools[0]
    assert pool.cluster.shape == shape


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
