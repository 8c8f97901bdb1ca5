"""Logs become jobs: what a selection and rules change, and nothing else. Rows one by one are in `golden`."""

from __future__ import annotations

import csv
import gzip
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from itertime.errors import TableError, UserError
from tests.effort import examples
from tests.traces.importing import import_log, imported
from tests.traces.planner import FakePlanner
from traces import read_trace, write_trace
from traces.logs import Selection
from traces.logs.importer import convert
from traces.logs.log import Log, LoggedJob
from traces.workload import WorkMaker
from traces.workload.rules import load_rules

pytestmark = pytest.mark.usefixtures("wide_terminal")

ITP = "job_id,submission_time,duration,num_gpu\n"
RULES = load_rules("llm-mix")


def write(folder: Path, text: str, name: str = "log.csv") -> Path:
    (folder / name).write_text(text)
    return folder / name


def a_log(count: int, seed: int = 0, deadline_s: float | None = None) -> Log:
    """Jobs every 50 s, in any order."""
    rng = random.Random(seed)
    rows = [
        LoggedJob(
            i + 2, f"job-{i}", 1000.0 + 50 * i, rng.choice([1, 2, 4, 8, 16, 32, 64]), rng.uniform(600, 9e4)
        )
        for i in range(count)
    ]
    rng.shuffle(rows)
    if deadline_s is not None:
        rows = [replace(row, deadline_s=row.submit_s + deadline_s) for row in rows]
    return Log("itp", (), deadline_s is not None, tuple(rows), (), ())


@given(
    limit=st.none() | st.integers(1, 60),
    window=st.tuples(st.integers(0, 49), st.integers(1, 60)),
    seed=st.integers(0, 2**70),
    scale=st.sampled_from((1.0, 2.5)),
    order=st.integers(0, 3),
)
@settings(deadline=None, max_examples=examples(60))
def test_counts_add_up_and_the_selection_changes_no_job(
    limit: int | None, window: tuple[int, int], seed: int, scale: float, order: int
) -> None:
    """Nor does the order of rows; a stretched clock moves submissions alone. The window is of some 50 s."""
    log = a_log(50)
    jobs, _ = convert(log, WorkMaker(RULES, FakePlanner()), seed, Selection())
    full_jobs = {job.job_id: job for job in jobs}
    rows = list(log.jobs)
    random.Random(order).shuffle(rows)
    first_row, last_row = window[0], window[0] + window[1]
    selection = Selection(50.0 * first_row, 50.0 * last_row, limit, scale)
    window_rows = [i for i in range(50) if first_row <= i < last_row]
    selected_ids = {f"job-{i}" for i in window_rows[:limit]}
    maker = WorkMaker(RULES, FakePlanner(limit=256))
    try:
        jobs, report = convert(replace(log, jobs=tuple(rows)), maker, seed, selection)
    except UserError:
        reject()  # only jobs for 512 GPUs are submitted in the window
    counts = report["counts"]
    assert counts["left_out"] == {
        "window": 50 - len(window_rows),
        "limit": len(window_rows) - len(selected_ids),
    }
    assert counts["rows"] == 50 == counts["jobs"] + counts["dropped"] + sum(counts["left_out"].values())
    assert counts["jobs"] == len(jobs) == sum(choice["jobs"] for choice in report["choices"])
    assert counts["dropped"] == len(report["dropped"])
    assert jobs[0].submit_s == 0.0
    zero_s = full_jobs[jobs[0].job_id].submit_s
    assert report["clock"] == {"shift_s": 1000.0 + zero_s, "time_scale": scale}
    for job in jobs:
        full_job = full_jobs[job.job_id]
        assert job.job_id in selected_ids
        assert job.submit_s == pytest.approx(scale * (full_job.submit_s - zero_s))
        assert (job.model, job.gpus, job.iterations) == (full_job.model, full_job.gpus, full_job.iterations)
        assert job.duration_s == full_job.duration_s
        assert 0.5 * job.duration_s <= full_job.deadline_s - full_job.submit_s <= 1.5 * job.duration_s
        assert job.deadline_s - job.submit_s == pytest.approx(
            full_job.deadline_s - full_job.submit_s, abs=1e-6
        )
        assert job.iterations * job.global_batch / job.gpus == pytest.approx(job.duration_s, rel=1e-12)


def test_rules_keep_the_deadlines_of_the_log() -> None:
    jobs, report = convert(
        a_log(9, deadline_s=60.0), WorkMaker(RULES, FakePlanner()), 0, Selection(time_scale=3)
    )
    assert [job.deadline_s - job.submit_s for job in jobs] == pytest.approx([60.0] * 9)
    assert jobs[1].submit_s == 150.0
    assert "deadlines are the log's, at their logged distance from the submission" in report["assumptions"]


def test_a_share_of_jobs_without_deadline() -> None:
    half_rules = replace(RULES, deadlines=replace(RULES.deadlines, share=0.5))
    jobs, _ = convert(a_log(1000), WorkMaker(half_rules, FakePlanner()), 0, Selection())
    missing_deadlines = sum(job.deadline_s is None for job in jobs)
    assert abs(missing_deadlines - 500) < 4 * (1000 * 0.25) ** 0.5  # binomial, 4 standard deviations
    rules_without_deadlines = replace(RULES, deadlines=None)
    jobs, report = convert(a_log(9), WorkMaker(rules_without_deadlines, FakePlanner()), 0, Selection())
    assert all(job.deadline_s is None for job in jobs)
    assert "no deadlines: the log and the rules state none" in report["assumptions"]


def test_the_clock_starts_with_the_first_job_that_rules_cover(tmp_path: Path) -> None:
    rows = "too-large,100,60,128\na,150,60,1\nb,170,60,1\n"
    jobs, report = imported(tmp_path, ITP + rows, rules="llm-mix")
    assert [job.submit_s for job in jobs] == [0.0, 20.0]
    assert report["clock"]["shift_s"] == 150.0
    assert report["dropped"] == [{"line": 2, "job_id": "too-large", "reason": "no rule covers 128 GPUs"}]


def test_rules_that_give_a_job_other_gpus_give_it_as_much_of_a_host_beside_each(tmp_path: Path) -> None:
    rows = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
    rows += "1,u,v,4,32,1,COMPLETED,2020-05-01 10:00:00,2020-05-01 10:00:10,2020-05-01 10:10:10,600,10\n"
    ((job,), _) = imported(tmp_path, rows, host=True, rules="llm-mix", planner="data-parallel")
    assert job.gpus != 4
    assert job.cpus == 8 * job.gpus


def test_the_planner_reproduces_the_logged_run_time(tmp_path: Path) -> None:
    from itertime import load_model, load_system, make_planner

    path = write(tmp_path, ITP + "".join(f"{n},{n},7200,{n}\n" for n in (1, 2, 4, 8, 16, 32, 64)))
    for name in ("data-parallel", "3d"):
        planner = make_planner(name, load_system("dgx-a100-80gb"))
        jobs, report = import_log(path, rules="llm-mix", planner=name, seed=4)
        assert report["planner"] == name
        for job in jobs:
            run = planner.curve(load_model(str(job.model)), int(job.global_batch or 0), [int(job.gpus or 0)])
            assert run[int(job.gpus or 0)].iteration_s * job.iterations == pytest.approx(7200.0, rel=1e-12)


@pytest.mark.long
def test_cluster04_loads_1024_gpus_fully(shared_traces: Path, tmp_path: Path) -> None:
    """FORMATS.md and the log itself: 15,802 jobs over 59.45 days."""
    log = shared_traces / "itp_raw" / "cluster04.csv.gz"
    jobs, report = import_log(log, rules="llm-mix", planner="data-parallel")
    assert report["counts"] == {
        "rows": 15802,
        "jobs": 15802,
        "dropped": 0,
        "left_out": {"window": 0, "limit": 0},
    }
    assert 0.9 < report["demand"]["mean_gpus"] / 1024 < 1.1
    assert report["demand"]["span_s"] == pytest.approx(59.454 * 86400, rel=1e-4)
    assert {job.gpus for job in jobs} == {8, 16, 32, 64, 512}
    write_trace(jobs, tmp_path / "trace.csv")
    assert read_trace(tmp_path / "trace.csv") == jobs


@pytest.mark.long
def test_every_published_elasticflow_trace_is_read_whole(shared_traces: Path) -> None:
    expected = {
        "195job.csv": 195,
        "cluster01.csv.gz": 1595,
        "cluster04.csv.gz": 15802,
        "elasticVpollux_e.csv": 195,
        "philly_103959.csv": 876,
        "resnet_cifar_trace.csv": 5,
    }
    for name, count in expected.items():
        path = shared_traces / "itp_elasticflow" / name
        for rules in ("none", "llm-mix"):
            jobs, report = import_log(path, rules=rules, planner="data-parallel")
            assert (len(jobs), report["counts"]["dropped"]) == (count, 0), name
            assert all(job.deadline_s is not None for job in jobs)
            assert jobs[0].submit_s == 0.0


@pytest.mark.parametrize(
    ("name", "columns", "count"),
    [
        ("philly/philly_jobs_12vc.csv.gz",
         "submit_s=timestamp,gpus=num_gpus,duration_s=duration,tenant=cluster", 70_060),
        ("formats/helios_cluster_log_sample.csv",
         "job_id=job_id,submit_s=submit_time,gpus=gpu_num,duration_s=duration,tenant=vc,state=state", 3),
        ("formats/acme_seren_sample.csv",
         "job_id=job_id,submit_s=submit_time,gpus=gpu_num,start_s=start_time,end_s=end_time,tenant=user", 2),
    ],
)  # fmt: skip
def test_published_logs_by_their_columns(shared_traces: Path, name: str, columns: str, count: int) -> None:
    jobs, report = import_log(shared_traces / name, columns=columns, rules="none")
    assert (len(jobs) + report["counts"]["dropped"], report["counts"]["rows"]) == (count, count)
    assert jobs[0].submit_s == 0.0
    assert "default" not in {job.tenant for job in jobs}


def test_a_strange_header_is_shown_short_and_printable(tmp_path: Path) -> None:
    header = ",".join(["a\x1b[2J", *(f"column{i}" for i in range(20_000))])
    log = write(tmp_path, f"{header}\n1\n")
    with pytest.raises(TableError, match=r"unknown column 'when'.* and 19951 more") as caught:
        import_log(log, columns="submit_s=when,gpus=n,duration_s=took")
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 1000


def test_shares_of_a_gpu_count_as_gpus_and_the_report_says_so(shared_traces: Path) -> None:
    named = "job_id=name,submit_s=creation_time,gpus=num_gpu,start_s=scheduled_time,end_s=deletion_time"
    pods = shared_traces / "alibaba" / "openb_pod_list_default.csv.gz"
    report = import_log(pods, columns=named, rules="none")[1]
    with gzip.open(pods, "rt") as file:
        shares = {
            i for i, row in enumerate(csv.DictReader(file), 2) if 0 < float(row["gpu_milli"] or 0) < 1000
        }
    assert report["parts_of_gpus"] == len(shares - {row["line"] for row in report["dropped"]}) > 1000
    first = import_log(pods, columns=named, rules="none", selection=Selection(limit=10))
    assert first[1]["parts_of_gpus"] <= len(first[0]) == 10


def test_a_job_whose_deadline_no_trace_can_hold_is_dropped(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text("job_id,submission_time,duration,num_gpu\na,0,4000000000,8\nb,5,600,8\n")
    jobs, report = import_log(log, rules="llm-mix")
    assert [job.job_id for job in jobs] == ["b"]
    (dropped,) = report["dropped"]
    assert (dropped["line"], dropped["job_id"]) == (2, "a")
    assert re.fullmatch(r"deadline_s=\S+: is above 4e\+09 seconds", dropped["reason"])
    write_trace(jobs, tmp_path / "trace.csv")
    assert read_trace(tmp_path / "trace.csv") == jobs
