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

from tests.places import ROOT
from tests.traces.importing import import_log
from traces import Job, read_trace, write_trace

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


# What is written can be read
