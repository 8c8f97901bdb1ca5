from __future__ import annotations

import csv
import gzip
import random
import re
from pathlib import Path

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from itertime.errors import TableError, UserError
from tests.effort import examples
from tests.traces.importing import import_log
from tests.traces.planner import FakePlanner
from traces import Job, read_trace, write_trace
from traces.logs import FORMATS, Selection
from traces.logs.cells import span
from traces.logs.importer import convert, format_of
from traces.logs.log import Log, LoggedJob, ReadOptions
from traces.logs.source import open_log
from traces.workload import Rules, WorkMaker
from traces.workload.rules import load_rules

pytestmark = pytest.mark.usefixtures("wide_terminal")

ITP = "job_id,submission_time,duration,num_gpu\n"
TESTBED = "job_id,submit_time,iteration,model_name,ddl,batch_size,num_gpu,duration,best_effort\n"
SIMULATOR = "job_id,submission_time,num_iteration,model_name,deadline,batch_size,num_gpu,duration\n"
EVERYTHING = Selection()


def write(folder: Path, text: str, name: str = "log.csv") -> Path:
    (folder / name).write_text(text)
    return folder / name


def read_log(path: Path, name: str) -> Log:
    with open_log(path) as source:
        return FORMATS[name].read(source, ReadOptions())


def detect_format(path: Path) -> str:
    with open_log(path) as source:
        return format_of(path, source.head)


def a_log(jobs: list[LoggedJob]) -> Log:
    return Log("itp", (), False, tuple(jobs), (), ())


def some_jobs(count: int, seed: int = 0) -> list[LoggedJob]:
    rng = random.Random(seed)
    sizes = [1, 2, 4, 8, 16, 32, 64]
    return [
        LoggedJob(i + 2, f"job-{i}", 1000.0 + 50 * i, rng.choice(sizes), rng.uniform(600, 9e4))
        for i in range(count)
    ]


@pytest.fixture
def maker() -> WorkMaker:
    return WorkMaker(load_rules("llm-mix"), FakePlanner())


def test_each_format_knows_its_header_only(tmp_path: Path) -> None:
    headers = {"itp": ITP, "elasticflow": SIMULATOR}
    for name, header in [*headers.items(), ("elasticflow", TESTBED)]:
        with open_log(write(tmp_path, header)) as source:
            assert [n for n, known in FORMATS.items() if known.matches(source.head)] == [name]
        assert detect_format(write(tmp_path, header)) == name
    with pytest.raises(
        TableError,
        match=r"log.csv:1: a, b: is the header of no known log format \(itp, elasticflow, .*, swf\); name",
    ):
        detect_format(write(tmp_path, "a,b\n"))


def test_an_itp_row_becomes_a_job(tmp_path: Path, maker: WorkMaker) -> None:
    log = read_log(write(tmp_path, ITP + "b,500,7200,32\na,400,3600,1\n"), "itp")
    jobs, report = convert(log, maker, 0, EVERYTHING)
    assert [job.job_id for job in jobs] == ["a", "b"]
    assert [job.submit_s for job in jobs] == [0.0, 100.0]
    assert [job.gpus for job in jobs] == [8, 64]
    assert [job.duration_s for job in jobs] == [3600.0, 7200.0]
    for job in jobs:
        assert job.global_batch
        assert job.iterations
        assert job.gpus
        assert job.iterations * job.global_batch / job.gpus == pytest.approx(job.duration_s, rel=1e-12)
        assert job.submit_s + 0.5 * job.duration_s <= job.deadline_s <= job.submit_s + 1.5 * job.duration_s
    assert report["clock"] == {"shift_s": 400.0, "time_scale": 1.0}
    assert report["counts"] == {"rows": 2, "jobs": 2, "dropped": 0, "left_out": {"window": 0, "limit": 0}}


def test_dropped_rows_carry_line_and_reason(tmp_path: Path, maker: WorkMaker) -> None:
    rows = [
        "a,0,60,1",
        "b,0,60,0",
        "c,-1,60,1",
        "d,0,,1",
        "e,0,60",
        "a,9,60,1",
        "f,0,nan,1",
        "g,0,60,128",
        "h,0,60,1.5",
    ]
    jobs, report = convert(read_log(write(tmp_path, ITP + "\n".join(rows)), "itp"), maker, 0, EVERYTHING)
    assert [job.job_id for job in jobs] == ["a"]
    assert [(d["line"], d["job_id"], d["reason"]) for d in report["dropped"]] == [
        (3, "b", "num_gpu=0: must be at least 1"),
        (4, "c", "submission_time=-1: must not be negative; shift the trace so that its clock starts at 0"),
        (5, "d", "duration is empty"),
        (6, "", "has 3 cells where the header has 4"),
        (7, "a", "the job of line 2 again"),
        (8, "f", "duration=nan: must be finite; leave an optional cell empty instead"),
        (9, "g", "no rule covers 128 GPUs"),
        (10, "h", "num_gpu=1.5: must be a whole number; round it"),
    ]
    assert report["counts"] == {"rows": 9, "jobs": 1, "dropped": 8, "left_out": {"window": 0, "limit": 0}}


def test_the_clock_starts_with_the_first_job_that_is_imported(tmp_path: Path, maker: WorkMaker) -> None:
    log = read_log(write(tmp_path, ITP + "too-large,100,60,128\na,150,60,1\nb,170,60,1\n"), "itp")
    jobs, report = convert(log, maker, 0, EVERYTHING)
    assert [job.submit_s for job in jobs] == [0.0, 20.0]
    assert report["clock"]["shift_s"] == 150.0


@given(
    limit=st.none() | st.integers(1, 60),
    window=st.tuples(st.integers(0, 2450), st.integers(1, 3000)),
    seed=st.integers(0, 2**70),
)
@settings(deadline=None, max_examples=examples(40))
def test_counts_add_up_and_the_selection_changes_no_job(
    limit: int | None, window: tuple[int, int], seed: int
) -> None:
    rules = load_rules("llm-mix")
    log = a_log(some_jobs(50))
    everything = {
        job.job_id: job for job in convert(log, WorkMaker(rules, FakePlanner()), seed, EVERYTHING)[0]
    }
    selection = Selection(window[0], window[0] + window[1], limit)
    try:
        jobs, report = convert(log, WorkMaker(rules, FakePlanner(limit=256)), seed, selection)
    except UserError:
        reject()  # nothing is submitted in the window, or only jobs for 512 GPUs are
    counts = report["counts"]
    assert counts["rows"] == 50 == counts["jobs"] + counts["dropped"] + sum(counts["left_out"].values())
    assert counts["jobs"] == len(jobs) == sum(choice["jobs"] for choice in report["choices"])
    assert counts["dropped"] == len(report["dropped"])
    assert jobs[0].submit_s == 0.0
    for job in jobs:
        whole = everything[job.job_id]
        assert (job.model, job.gpus, job.iterations) == (whole.model, whole.gpus, whole.iterations)
        assert job.deadline_s - job.submit_s == pytest.approx(whole.deadline_s - whole.submit_s, abs=1e-6)


def test_the_order_of_rows_does_not_matter(maker: WorkMaker) -> None:
    rows = some_jobs(80)
    jobs, _ = convert(a_log(rows), maker, 5, EVERYTHING)
    random.Random(1).shuffle(rows)
    assert convert(a_log(rows), maker, 5, EVERYTHING)[0] == jobs


def test_stretching_moves_submissions_and_nothing_else(maker: WorkMaker) -> None:
    plain, _ = convert(a_log(some_jobs(30)), maker, 0, EVERYTHING)
    stretched, report = convert(a_log(some_jobs(30)), maker, 0, Selection(time_scale=2.5))
    for before, after in zip(plain, stretched, strict=True):
        assert after.submit_s == pytest.approx(2.5 * before.submit_s)
        assert (after.iterations, after.duration_s) == (before.iterations, before.duration_s)
        assert after.deadline_s - after.submit_s == pytest.approx(before.deadline_s - before.submit_s)
    assert report["clock"]["time_scale"] == 2.5


def test_a_share_of_jobs_without_deadline() -> None:
    rules = load_rules("llm-mix")
    half = Rules(rules.source, rules.sizes, type(rules.deadlines)(0.5, 1.5, 0.5), rules.gpus_multiple_of)  # type: ignore[misc]
    jobs, _ = convert(a_log(some_jobs(1000)), WorkMaker(half, FakePlanner()), 0, EVERYTHING)
    without = sum(job.deadline_s is None for job in jobs)
    assert abs(without - 500) < 4 * (1000 * 0.25) ** 0.5  # binomial, 4 standard deviations
    bare = Rules(rules.source, rules.sizes, None, rules.gpus_multiple_of)
    jobs, report = convert(a_log(some_jobs(9)), WorkMaker(bare, FakePlanner()), 0, EVERYTHING)
    assert all(job.deadline_s is None for job in jobs)
    assert "no deadlines: the log and the rules state none" in report["assumptions"]


ELASTICFLOW_ROWS = {
    SIMULATOR: "x,100,500,vgg16,160,64,8,50\ny,130,9,bert,,128,1,60\nz,140,9,bert,90,128,1,60\n",
    TESTBED: "x,100,500,vgg16,160,64,8,50,0\ny,130,9,bert,999,128,1,60,1\nz,140,9,bert,90,128,1,60,0\n",
}


@pytest.mark.parametrize("header", ELASTICFLOW_ROWS, ids=["simulator", "testbed"])
def test_elasticflow_as_logged(tmp_path: Path, header: str) -> None:
    log = read_log(write(tmp_path, header + ELASTICFLOW_ROWS[header]), "elasticflow")
    jobs, report = convert(log, None, 0, EVERYTHING)
    assert jobs == [
        Job(
            "x",
            0.0,
            model="vgg16",
            gpus=8,
            global_batch=64,
            iterations=500.0,
            duration_s=50.0,
            deadline_s=60.0,
        ),
        Job("y", 30.0, model="bert", gpus=1, global_batch=128, iterations=9.0, duration_s=60.0),
    ]
    assert [d["reason"] for d in report["dropped"]] == ["deadline 90 is before the submission 140"]


def test_elasticflow_by_rules_keeps_the_logged_deadlines(tmp_path: Path, maker: WorkMaker) -> None:
    log = read_log(write(tmp_path, TESTBED + ELASTICFLOW_ROWS[TESTBED]), "elasticflow")
    jobs, report = convert(log, maker, 0, Selection(time_scale=3))
    assert [job.deadline_s for job in jobs] == [60.0, None]
    assert [job.submit_s for job in jobs] == [0.0, 90.0]
    assert all(job.model not in ("vgg16", "bert") for job in jobs)
    assert "deadlines are the log's, at their logged distance from the submission" in report["assumptions"]


def test_best_effort_must_be_a_flag(tmp_path: Path) -> None:
    rows = "x,0,5,vgg16,60,64,8,50,0\ny,0,5,vgg16,60,64,8,50,2\n"
    log = read_log(write(tmp_path, TESTBED + rows), "elasticflow")
    assert [d.reason for d in log.dropped] == ["best_effort=2: must be 0 or 1"]


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


# Logs of any layout


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


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("3-04:05:06", 273906.0), ("3 days, 4:05:06", 273906.0), ("1 day 00:00:00.5", 86400.5),
     ("100:00:01", 360001.0), (" 7 ", 7.0), ("1e3", 1000.0)],
)  # fmt: skip
def test_run_times_in_days_hours_and_minutes(text: str, seconds: float) -> None:
    assert span(text) == seconds


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
