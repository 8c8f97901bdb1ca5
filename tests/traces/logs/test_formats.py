"""Every format by hand: a few rows, and the jobs that they are; how logs are laid out; what is hostile."""

import gzip
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from clustersim.cli import main
from clustersim.speed import read_throughput_table
from itertime.errors import TableError
from tests.places import ROOT
from tests.tables import TABLES, table_rows
from tests.traces.importing import import_log, imported, write
from tests.traces.logs.golden_logs import FILES, cases, result
from traces import Job, read_trace, write_trace
from traces.logs import FORMATS, read_throughputs, write_throughputs
from traces.logs.cells import span
from traces.logs.importer import read
from traces.logs.log import ReadOptions
from traces.logs.source import open_log
from traces.logs.throughputs import TableRow
from traces.logs.units import UNITS, seconds, unit_of_name

SAMPLES: dict[str, str | dict[str, str]] = yaml.safe_load(
    Path(__file__).with_name("samples.yaml").read_text(encoding="utf-8")
)
WITHOUT_RUN_TIMES = {"gavel", "pollux"}


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=case["name"]) for file in FILES for case in cases(file)]
)
def test_a_log_becomes_these_jobs(case: dict[str, Any], tmp_path: Path) -> None:
    assert result(case, tmp_path) == case["becomes"]


@pytest.mark.parametrize("name", list(FORMATS))
def test_a_log_is_recognised_as_its_format_only(tmp_path: Path, name: str) -> None:
    with open_log(write(tmp_path / "log", SAMPLES[name])) as source:
        assert [known for known, form in FORMATS.items() if form.matches(source.head)] == [name]


@pytest.mark.parametrize("name", sorted(set(FORMATS) - WITHOUT_RUN_TIMES))
def test_ten_minutes_on_a_gpu_are_a_sixth_of_a_gpu_hour_in_every_format(tmp_path: Path, name: str) -> None:
    """What is imported is a trace that reads back, too."""
    jobs, report = imported(tmp_path, SAMPLES[name])
    assert (report["format"], len(jobs), jobs[0].gpus, jobs[0].duration_s) == (name, 1, 1, 600.0)
    assert report["times"]
    write_trace(jobs, tmp_path / "trace.csv")
    assert read_trace(tmp_path / "trace.csv", known_models=["bert"]) == jobs


@pytest.mark.parametrize("name", sorted(set(FORMATS) - {"philly", "pollux"}))
def test_a_log_of_a_format_may_have_any_line_ends_and_a_byte_order_mark(tmp_path: Path, name: str) -> None:
    sample = SAMPLES[name]
    plain, _ = imported(tmp_path, sample)
    if isinstance(sample, str):
        marked: str | dict[str, str] = "\ufeff" + sample.replace("\n", "\r\n")
    else:
        marked = {file: "\ufeff" + text.replace("\n", "\r\n") for file, text in sample.items()}
    assert imported(tmp_path, marked, "other")[0] == plain


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[{"jobid": "a", "attempts": ' + "9" * 5000 + "}]", "is not JSON that can be read"),
        ('[{"jobid": "a", "attempts": ' + "[" * 100_000 + "]", "nested too deeply"),
    ],
    ids=range(2),
)
def test_huge_json_is_no_philly_log(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(TableError) as caught:
        imported(tmp_path, text)
    assert says in str(caught.value)


@pytest.mark.parametrize("name", ["acme", "dlrm", "helios", "openb", "pai", "philly"])
def test_logs_that_state_start_and_end_keep_both(tmp_path: Path, name: str) -> None:
    with open_log(write(tmp_path / "log", SAMPLES[name])) as source:
        (job,) = read(source, ReadOptions()).jobs
    assert job.logged_start_s is not None
    assert job.logged_end_s == job.logged_start_s + 600


def test_the_digest_of_a_folder_is_that_of_its_files(tmp_path: Path) -> None:
    first, again = (imported(tmp_path, SAMPLES["pai"], "pai")[1]["input"] for _ in range(2))
    assert first == again
    assert first["file"] == "pai"
    (tmp_path / "pai" / "README").write_text("tables of PAI\n")
    assert import_log(tmp_path / "pai")[1]["input"]["sha256"] != first["sha256"]


def test_the_command_takes_a_zone_and_a_folder(tmp_path: Path) -> None:
    out = str(tmp_path / "out.csv")
    helios, pai = (str(write(tmp_path / name, SAMPLES[name])) for name in ("helios", "pai"))
    assert main(["trace", "import", helios, "-o", out, "--time-zone", "Asia/Shanghai"]) == 0
    assert main(["trace", "import", pai, "-o", out]) == 0
    assert json.loads((tmp_path / "out.import.json").read_text())["format"] == "pai"


def test_a_log_gives_a_throughput_table_with_which_jobs_of_iterations_run(tmp_path: Path) -> None:
    """Of three speeds of a kind the median."""
    shockwave, gavel = "python3 a.py\tfolder\t--steps\t1", "cd %s && python3 a.py \t-n\t1"
    log, table, trace = tmp_path / "log", tmp_path / "table.csv", tmp_path / "gavel.csv"
    log.write_text("".join(
        f"{kind}\t{shockwave}\t{steps}\t{gpus}\tstatic\t1\t-1.0\t{seconds}\t0\n"
        for kind, steps, gpus, seconds in (
            *(("LM (batch size 5)", steps, 1, 100) for steps in (1000, 500, 900)), ("A3C", 30, 4, 10),
        )
    ))  # fmt: skip
    (tmp_path / "jobs").write_text(f"LM (batch size 5)\t{gavel}\t90\t0\t1\nA3C\t{gavel}\t30\t1\t4\n")
    assert main(["trace", "import-table", str(log), "-o", str(table)]) == 0
    rows = ["model,global_batch,gpus,iterations_per_s", "A3C,1,4,3.0", "LM,5,1,9.0"]
    assert table.read_text().splitlines() == rows
    assert main(["trace", "import", str(tmp_path / "jobs"), "-o", str(trace)]) == 0
    assert main(["trace", "check", str(trace), "--table", str(table)]) == 0


# Throughput tables of the ElasticFlow log


def folder_with(path: Path, **files: str) -> Path:
    for name, text in files.items():
        (path / f"{name}.csv").write_text(text)
    return path


def test_cells_become_rows_and_cells_without_speed_are_counted(tmp_path: Path) -> None:
    tables = folder_with(
        tmp_path,
        bert="global_batch_size,1,2,4\n64,6.5,,0\n128,3.25,nan,5\n",
        vgg16="global_batch_size,8\n32,1\n",
    )
    rows, report = read_throughputs(tables)
    assert rows == [
        TableRow("bert", 64, 1, 6.5),
        TableRow("bert", 128, 1, 3.25),
        TableRow("bert", 128, 4, 5.0),
        TableRow("vgg16", 32, 8, 1.0),
    ]
    assert report["counts"] == {"cells": 7, "rows": 4, "cells_without_speed": 3}


def test_the_written_table_is_one_that_the_simulator_reads(tmp_path: Path) -> None:
    rows = [TableRow("bert", 64, 1, 1 / 3), TableRow("bert", 64, 2, 0.5)]
    write_throughputs(rows, tmp_path / "table.csv")
    assert read_throughput_table(tmp_path / "table.csv") == {("bert", 64): {1: 1 / 3, 2: 0.5}}


def test_published_traces_and_tables_agree(shared_traces: Path) -> None:
    """In ElasticFlow's own traces iterations = duration x the table's speed at (model, batch, GPUs), rounded.

    So `batch_size` is the global batch, the cells are iterations/s, and `duration` is the run time on
    num_gpu GPUs.
    """
    published = shared_traces / "itp_elasticflow"
    speeds = {row[:3]: row.iterations_per_s for row in read_throughputs(published / "throughputs_A100")[0]}
    jobs = import_log(published / "cluster04.csv.gz")[0]
    for job in jobs:
        assert job.model
        assert job.global_batch
        assert job.iterations
        speed = speeds[job.model, job.global_batch, job.gpus]
        assert job.iterations == pytest.approx(job.duration_s * speed, abs=1.0)


NAMED = "submit_s=at,gpus=n,duration_s=took,tenant=owner"
HEADER, ROWS = "at,n,took,owner", ["0,8,60,red", "30,1,120,blue"]
WANTED = [("red", 0.0, 8, 60.0), ("blue", 30.0, 1, 120.0)]


def facts(jobs: list[Job]) -> list[tuple[Any, ...]]:
    return [(job.tenant, job.submit_s, job.gpus, job.duration_s) for job in jobs]


def named_jobs(folder: Path, text: str | bytes, columns: str = NAMED) -> list[Job]:
    path = folder / "log"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return import_log(path, columns=columns, time_unit="s")[0]


def test_compressed_logs_and_byte_order_marks(tmp_path: Path) -> None:
    text = "\r\n".join([HEADER, *ROWS]).encode()
    for content in (text, b"\xef\xbb\xbf" + text, gzip.compress(b"\xef\xbb\xbf" + text)):
        assert facts(named_jobs(tmp_path, content)) == WANTED


@pytest.mark.parametrize(
    "content",
    ["\n".join([HEADER, *ROWS]).encode(), gzip.compress("\n".join([HEADER, *ROWS]).encode(), mtime=0)],
)
def test_a_log_may_come_through_a_pipe(tmp_path: Path, content: bytes) -> None:
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=lambda: (tmp_path / "pipe").write_bytes(content))
    writer.start()
    jobs, report = import_log(tmp_path / "pipe", columns=NAMED, time_unit="s")
    writer.join()
    assert facts(jobs) == WANTED
    plain = tmp_path / "log"
    plain.write_bytes(content)
    assert report["input"]["sha256"] == import_log(plain, columns=NAMED, time_unit="s")[1]["input"]["sha256"]


def test_the_command_reads_standard_input(tmp_path: Path) -> None:
    arguments = ["import", "/dev/stdin", "-o", "out.csv"]
    program = f"import sys; from clustersim.cli import main; sys.exit(main(['trace', *{arguments}]))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        input="job_id,submission_time,duration,num_gpu\na,0,600,1\n",
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, "1 jobs of 1 rows (itp)" in done.stdout) == (0, True), done.stderr
    assert [job.duration_s for job in read_trace(tmp_path / "out.csv")] == [600.0]


HUGE = "9" * 5000


@pytest.mark.parametrize(
    "row",
    ["1e999,1,60,a", "nan,1,60,a", "0,1e999,60,a", f"0,{HUGE},60,a", f"{HUGE},1,60,a", "0,1,inf,a",
     "0,1,-5,a",
     "0,1,1e-30,a", "-1,1,60,a", "0,1e400,60,a", "5000000000,1,60,a", "0,1,4000000001,a", "0,10000001,60,a",
     f"0,1,60,{'x' * 100_001}", "99999-01-01,1,60,a", "0,1_0,60,a", "0x10,1,60,a", ",1,60,a", "0,1",
     "0,1,60,a,"],
    ids=range(20),
)  # fmt: skip
def test_rows_without_a_job_are_dropped_with_a_reason_and_the_rest_reads_back(
    tmp_path: Path, row: str
) -> None:
    path = tmp_path / "log.csv"
    path.write_text(f"{HEADER}\n{ROWS[0]}\n{row}\n")
    jobs, report = import_log(path, columns=NAMED, time_unit="s")
    assert len(jobs) == 1
    assert report["dropped"][0]["line"] == 3
    assert len(report["dropped"][0]["reason"]) < 300
    assert sum(report["dropped_by_reason"].values()) == 1
    write_trace(jobs, tmp_path / "out.csv")
    assert read_trace(tmp_path / "out.csv") == jobs


# The unit of times


@given(st.integers(0, 10**15), st.sampled_from(["s", "ms", "us"]))
def test_seconds_are_correctly_rounded(value: int, unit: str) -> None:
    per_second = {"s": 1, "ms": 1000, "us": 1_000_000}[unit]
    assert seconds(float(value), unit) == value / per_second


@pytest.mark.parametrize(("name", "unit"), table_rows("a column may name its unit"))
def test_a_column_may_name_its_unit(name: str, unit: str | None) -> None:
    assert unit_of_name(name) == unit


def test_every_unit_is_a_fraction_of_seconds() -> None:
    assert {unit: seconds(1.0, unit) for unit in UNITS} == TABLES["seconds of a unit"]


@pytest.mark.parametrize(("text", "seconds"), table_rows("run times in days hours and minutes"))
def test_run_times_in_days_hours_and_minutes(text: str, seconds: float) -> None:
    assert span(text) == seconds
