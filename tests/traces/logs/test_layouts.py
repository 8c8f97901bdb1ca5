"""How logs are laid out: separators, comments, no header, compression, pipes; and what is hostile."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.places import ROOT
from tests.traces.importing import import_log
from traces import Job, read_trace, write_trace
from traces.logs.cells import span
from traces.logs.units import UNITS, seconds, unit_of_name

NAMED = "submit_s=at,gpus=n,duration_s=took,tenant=owner"
HEADER, ROWS = "at,n,took,owner", ["0,8,60,red", "30,1,120,blue"]
WANTED = [("red", 0.0, 8, 60.0), ("blue", 30.0, 1, 120.0)]


def facts(jobs: list[Job]) -> list[tuple[Any, ...]]:
    return [(job.tenant, job.submit_s, job.gpus, job.duration_s) for job in jobs]


def imported(folder: Path, text: str | bytes, columns: str = NAMED) -> list[Job]:
    path = folder / "log"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return import_log(path, columns=columns, time_unit="s")[0]


def test_compressed_logs_and_byte_order_marks(tmp_path: Path) -> None:
    text = "\r\n".join([HEADER, *ROWS]).encode()
    for content in (text, b"\xef\xbb\xbf" + text, gzip.compress(b"\xef\xbb\xbf" + text)):
        assert facts(imported(tmp_path, content)) == WANTED


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


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("duration_s", "s"), ("run time (min)", "min"), ("Elapsed_ms", "ms"), ("t.hours", "h"), ("us", "us"),
        ("start_microseconds", "us"), ("wait [sec]", "s"), ("walltime_limit_h", "h"),
        ("duration", None), ("gpus", None), ("ElapsedRaw", None), ("status", None), ("items", None),
        ("", None),
    ],
)  # fmt: skip
def test_a_column_may_name_its_unit(name: str, unit: str | None) -> None:
    assert unit_of_name(name) == unit


def test_every_unit_is_a_fraction_of_seconds() -> None:
    assert {unit: seconds(1.0, unit) for unit in UNITS} == {
        "s": 1,
        "ms": 1e-3,
        "us": 1e-6,
        "min": 60,
        "h": 3600,
    }


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("3-04:05:06", 273906.0), ("3 days, 4:05:06", 273906.0), ("1 day 00:00:00.5", 86400.5),
     ("100:00:01", 360001.0), (" 7 ", 7.0), ("1e3", 1000.0)],
)  # fmt: skip
def test_run_times_in_days_hours_and_minutes(text: str, seconds: float) -> None:
    assert span(text) == seconds
