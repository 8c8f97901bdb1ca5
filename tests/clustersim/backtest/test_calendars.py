"""Calendars from logs: outages that are known, found again."""

import csv
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import clustersim
from clustersim.backtest import LogCalendar, calendar_of, read_logged
from clustersim.cli import main
from clustersim.cluster import Cluster
from clustersim.failures.maintenance import Maintenance, read_calendar
from clustersim.records import INTERRUPT, NODE_DOWN, NODE_UP, RELEASES, Run
from itertime.errors import UserError
from tests.clustersim.backtest.logs import jobs_of, logged, written
from tests.traces.logs.live_samples import kube_list, pod
from traces import Job
from traces.logs.importer import read
from traces.logs.log import LoggedJob, ReadOptions
from traces.logs.source import open_log

NODES, SIZE, HOUR = 6, 4, 3600.0
FIRST = 1_700_000_000
PLAN = [
    {"at_s": 20 * HOUR, "maintenance": "1", "for_s": 10 * HOUR},
    {"at_s": 60 * HOUR, "maintenance": "2-3", "for_s": 8 * HOUR},
    {"at_s": 48 * HOUR, "add": "5"},
    {"at_s": 100 * HOUR, "remove": "0"},
]


def busy(count: int = 1000, seed: int = 3) -> list[Job]:
    """Jobs of at most a node that keep more than six nodes busy for some days."""
    draw = np.random.default_rng(seed)
    submit_s = np.cumsum(draw.exponential(400, count)).round()
    sizes, run_s = draw.choice([1, 2, 4], count), draw.exponential(4500, count).round() + 60
    return [
        Job(f"{i}", float(submit_s[i]), gpus=int(sizes[i]), duration_s=float(run_s[i])) for i in range(count)
    ]


def simulated(policy: str, **settings: Any) -> Run:
    free = {"overheads": None, "bound": "none", "cluster": f"n{NODES}g{SIZE}"}
    return clustersim.run(busy(), policy, **{**free, **settings})


def sacct_of(run: Run, folder: Path) -> Path:
    """The allocations of a run as sacct prints jobs: one that was stopped is a job of its own each time."""
    rows = ["JobIDRaw|Account|Submit|Start|End|ElapsedRaw|AllocTRES|State|NodeList"]
    since = {record.job_id: record.submit_s for record in run.jobs}
    held: dict[str, tuple[float, Any]] = {}
    for event in run.events:
        if event.event in RELEASES and event.job_id in held:
            start_s, placement = held.pop(event.job_id)
            if round(event.time_s) > round(start_s):
                state = "NODE_FAIL" if event.event == INTERRUPT else "COMPLETED"
                nodes = ",".join(f"gpu{node + 1:02d}" for node, _ in placement)
                gpus = sum(count for _, count in placement)
                dates = [_date(since[event.job_id]), _date(start_s), _date(event.time_s)]
                run_s = round(event.time_s) - round(start_s)
                rows.append(f"{len(rows)}|a|{'|'.join(dates)}|{run_s}|gres/gpu={gpus}|{state}|{nodes}")
            since[event.job_id] = event.time_s
        if event.placement and event.job_id and event.event not in RELEASES:
            held.setdefault(event.job_id, (event.time_s, event.placement))
    path = folder / "log.txt"
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


def _date(time_s: float) -> str:
    return datetime.fromtimestamp(FIRST + round(time_s), UTC).strftime("%Y-%m-%dT%H:%M:%S")


def found(run: Run, folder: Path) -> tuple[LogCalendar, float]:
    """The calendar of the run's log, and what to add to its times to have those of the run."""
    log = read_logged(sacct_of(run, folder))
    return calendar_of(log), log.zero_s - FIRST


@pytest.mark.parametrize("policy", ["easy", "fifo-skip", "sjf"])
def test_planned_changes_are_found_again(policy: str, tmp_path: Path) -> None:
    made, zero_s = found(simulated(policy, calendar=PLAN), tmp_path)
    assert made.names == tuple(f"gpu0{i}" for i in range(1, 7))
    assert made.cluster.shape == f"n{NODES}g{SIZE}"
    seen = {(one.why, node): one for one in made.outages for node in one.nodes}
    assert set(seen) == {("gap", 1), ("gap", 2), ("gap", 3), ("appears", 5), ("vanishes", 0)}
    for node, from_h, until_h in ((1, 20, 30), (2, 60, 68), (3, 60, 68)):
        one = seen["gap", node]
        assert one.from_s + zero_s == pytest.approx(from_h * HOUR, abs=0.5 * HOUR)
        assert one.until_s + zero_s == pytest.approx(until_h * HOUR, abs=0.1 * HOUR)
    assert seen["appears", 5].until_s + zero_s == pytest.approx(48 * HOUR, abs=0.1 * HOUR)
    assert seen["vanishes", 0].from_s + zero_s == pytest.approx(100 * HOUR, abs=0.1 * HOUR)


@pytest.mark.parametrize("policy", ["easy", "fifo"])
def test_a_cluster_that_is_always_there_has_no_outage(policy: str, tmp_path: Path) -> None:
    """An idle night is no outage, nor is the time that a large job waits for."""
    made, _ = found(simulated(policy), tmp_path)
    assert made.outages == ()
    quiet = [Job(f"{i}", i * 12 * HOUR, gpus=1, duration_s=HOUR) for i in range(8)]
    other, _ = found(clustersim.run(quiet, policy, cluster="n2g4", overheads=None, bound="none"), tmp_path)
    assert other.outages == ()


def test_failures_are_counted_and_placed(tmp_path: Path) -> None:
    failures = {"mtbf_gpu_h": 300, "kinds": {"gpu": [1, 9]}, "repair_sigma": 0.3}
    run = simulated("easy", failures=failures, seed=4)
    last_s = max(record.start_s or 0.0 for record in run.jobs)
    down = [e for e in run.events if e.event == NODE_DOWN and e.time_s < last_s]
    up = {(e.placement[0][0], e.time_s) for e in run.events if e.event == NODE_UP}
    made, zero_s = found(run, tmp_path)
    placed = {
        (node, one.from_s + zero_s): one for one in made.outages if one.why == "failure" for node in one.nodes
    }
    hit = 0
    for event in down:
        node = event.placement[0][0]
        back = min((at for other, at in up if other == node and at > event.time_s), default=last_s)
        near = [one for (n, at), one in placed.items() if n == node and abs(at - event.time_s) < 2]
        hit += bool(near) and abs(near[0].until_s + zero_s - back) < HOUR
    assert len(down) >= 8
    assert hit >= 0.85 * len(down), (hit, len(down))
    assert len(placed) <= len(down)
    assert made.summary["failures"] == pytest.approx(len(down), abs=1)
    assert made.summary["mtbf_gpu_h"] == pytest.approx(300, rel=0.5)


def test_the_file_is_one_that_run_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, path = sacct_of(simulated("easy", calendar=PLAN), tmp_path), tmp_path / "plan.yaml"
    assert main(["trace", "calendar", str(log), "-o", str(path), "--json"]) == 0
    stated = json.loads(capsys.readouterr().out)
    assert read_calendar(str(path)) == stated["entries"]
    assert stated["cluster"] == f"n{NODES}g{SIZE}"
    assert Maintenance.of(stated["entries"], NODES).absent == {5}
    trace = tmp_path / "trace.csv"
    assert main(["trace", "import", str(log), "-o", str(trace)]) == 0
    out = tmp_path / "run"
    given = ["--cluster", f"n{NODES}g{SIZE}", "--set", f"calendar={path}", "-o", str(out)]
    given += ["--no-report", "--set", "bound=none"]
    assert main(["run", str(trace), "--policy", "easy", *given]) == 0
    with (out / "events.csv").open(newline="") as file:
        kinds = [row["event"] for row in csv.DictReader(file)]
    assert kinds.count(NODE_DOWN) == 5, "three are maintained, one is removed, one absent at first"


def test_without_names_of_nodes_the_last_ones_go(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = [{"at_s": 3 * HOUR, "maintenance": "0-3", "for_s": 9 * HOUR}]
    jobs = logged(jobs_of(400), "fifo-skip", calendar=plan, cluster="n16g1")
    path = tmp_path / "plan.yaml"
    assert main(["trace", "calendar", str(written(tmp_path, jobs)), "-o", str(path)]) == 0
    assert "the log names no nodes" in capsys.readouterr().out
    for entry in read_calendar(str(path)):
        assert set(entry) == {"at_s", "maintenance", "for_s"}
    assert main(["trace", "calendar", str(tmp_path / "log.csv"), "-o", str(tmp_path / "plan.json")]) == 2


def test_clusters_that_the_log_contradicts(tmp_path: Path) -> None:
    log = read_logged(sacct_of(simulated("easy"), tmp_path))
    assert calendar_of(log, Cluster(8, 8)).cluster.shape == "n8g8"
    for wrong in (Cluster(5, 4), Cluster(6, 2)):
        with pytest.raises(UserError, match="the log has jobs on 6 nodes, and 4 GPUs of one"):
            calendar_of(log, wrong)
    with pytest.raises(UserError, match="--least-s 0"):
        calendar_of(log, least_s=0.0)


# Which logs name nodes


def read_rows(text: str, folder: Path) -> list[LoggedJob]:
    (folder / "log").write_text(text, encoding="utf-8")
    with open_log(folder / "log") as source:
        return list(read(source, ReadOptions()).jobs)


def test_slurm_names_nodes(tmp_path: Path) -> None:
    head = "JobIDRaw|Account|Submit|Start|End|ElapsedRaw|AllocTRES|State|NodeList"
    row = "2024-01-01T00:00:00|2024-01-01T00:01:00|2024-01-01T00:02:00|60|gres/gpu=8|COMPLETED"
    lists = ["n[09-10],x1", "None assigned", "n[3-1]", "n[1-99999999]", "n[1", "a[1-2]b[0,7]"]
    jobs = read_rows("\n".join([head, *(f"{i}|a|{row}|{one}" for i, one in enumerate(lists))]), tmp_path)
    assert len(jobs) == len(lists), "a list that cannot be read leaves the job"
    assert [[one.node for one in job.on_nodes] for job in jobs] == [
        ["n09", "n10", "x1"], [], [], [], [], ["a1b0", "a1b7", "a2b0", "a2b7"],
    ]  # fmt: skip
    assert {one.gpus for one in jobs[0].on_nodes} == {8 / 3}
    assert jobs[0].on_nodes[0].until_s - jobs[0].on_nodes[0].from_s == 60


def test_philly_names_machines_of_each_attempt(tmp_path: Path) -> None:
    def attempt(start: str, end: str, *nodes: tuple[str, int]) -> dict[str, Any]:
        detail = [{"ip": ip, "gpus": [f"gpu{i}" for i in range(count)]} for ip, count in nodes]
        return {"start_time": f"2017-10-03 {start}", "end_time": f"2017-10-03 {end}", "detail": detail}

    attempts = [
        attempt("01:00:00", "02:00:00", ("m1", 1)),
        attempt("03:00:00", "04:00:00", ("m2", 2), ("m3", 1)),
    ]
    entry = {"status": "Pass", "vc": "v", "jobid": "j", "attempts": attempts, "user": "u"}
    entry["submitted_time"] = "2017-10-03 00:30:00"
    (job,) = read_rows(json.dumps([entry]), tmp_path)
    zero_s = job.submit_s - 1800
    assert [(one.node, (one.from_s - zero_s) / HOUR, one.gpus) for one in job.on_nodes] == [
        ("m1", 1, 1), ("m2", 3, 2), ("m3", 3, 1),
    ]  # fmt: skip


def test_pods_name_their_node(tmp_path: Path) -> None:
    one = pod("a", "Succeeded", ("12:01:00", "12:11:00"), 4)
    one["spec"]["nodeName"] = "worker-7"
    other = pod("b", "Running", ("12:01:00", None), 4)
    other["spec"]["nodeName"] = ["no name"]
    jobs = read_rows(kube_list(one, other), tmp_path)
    assert [(held.node, held.until_s - held.from_s, held.gpus) for held in jobs[0].on_nodes] == [
        ("worker-7", 600, 4)
    ]
    assert jobs[1].on_nodes == ()
