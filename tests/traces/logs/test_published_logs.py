"""Published logs: span and GPU-hours of the import are those of a plain loop over the file."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from traces import read_trace, write_trace
from traces.logs import import_log

Row = tuple[float, float, float]  # submission s, GPUs, run time s


def lines(path: Path) -> Iterator[str]:
    content = path.read_bytes()
    text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode()
    yield from (line for line in text.splitlines() if line.strip() and not line.startswith(("#", ";")))


def columns(path: Path, submit: str, gpus: str, took: str, unit: float, of_took: float) -> Iterator[Row]:
    for row in csv.DictReader(lines(path)):
        yield float(row[submit]) * unit, float(row[gpus]), float(row[took]) * of_took


def dates(path: Path, submit: str, gpus: str, took: str) -> Iterator[Row]:
    for row in csv.DictReader(lines(path)):
        at = datetime.fromisoformat(row[submit] + "+00:00").timestamp()
        yield at, float(row[gpus]), float(row[took])


def swf(path: Path) -> Iterator[Row]:
    for line in lines(path):
        cells = line.split()
        if cells[10] not in ("2", "3", "4"):
            yield float(cells[1]), float(cells[4] if float(cells[4]) > 0 else cells[7]), float(cells[3])


def philly(path: Path) -> Iterator[Row]:
    def at(text: str) -> float:
        return datetime.fromisoformat(text + "+00:00").timestamp()

    for job in json.loads(path.read_text()):
        took = sum(at(attempt["end_time"]) - at(attempt["start_time"]) for attempt in job["attempts"])
        gpus = sum(len(node["gpus"]) for node in job["attempts"][-1]["detail"])
        yield at(job["submitted_time"]), gpus, took


MS, US, MIN = 1e-3, 1e-6, 60.0
MURI_HELD = ("submit_time", "num_gpu", "real_executed_time")
LOGS = {
    "clusters/muri_testbed/cluster_trace.csv": (columns, "submit_time", "num_gpu", "duration", MS, MS),
    "clusters/muri_philly/trace1.csv.gz": (columns, "submit_time", "num_gpu", "duration", MS, MS),
    "clusters/muri_philly/trace3.csv.gz": (columns, "submit_time", "num_gpu", "duration", MS, MS),
    "clusters/muri_testbed/SRTF.job.csv.gz": (columns, *MURI_HELD, 1.0, 1.0),
    "clusters/muri_testbed/SRSF.job.csv.gz": (columns, *MURI_HELD, 1.0, 1.0),
    "clusters/morphling/workload-base.csv": (columns, "submission_time", "num_gpus", "duration", 1.0, 1.0),
    "clusters/helios/venus_vcvGl_sept.csv": (columns, "submit_time", "num_chips", "duration_s", US, 1.0),
    "clusters/pai_gaia/pai_1k.csv.gz": (columns, "arrival_time", "cpus", "length", 1.0, 1.0),
    "traces/chronus/trace_job_Philly_SLO.csv.gz": (columns, "submit_time", "num_gpu", "duration", MIN, MIN),
    "traces/chronus/trace_job_Philly_MIX1.csv.gz": (columns, "submit_time", "num_gpu", "duration", MIN, MIN),
    "traces/formats/tiresias_60_job.csv": (columns, "submit_time", "num_gpu", "duration", 1.0, 1.0),
    "traces/formats/helios_cluster_log_sample.csv": (dates, "submit_time", "gpu_num", "duration"),
    "traces/philly/philly_jobs_12vc.csv.gz": (dates, "timestamp", "num_gpus", "duration"),
    "traces/formats/philly_cluster_job_log_sample.json": (philly,),
    "traces/itp_raw/cluster01.csv.gz": (columns, "submission_time", "num_gpu", "duration", 1.0, 1.0),
    "traces/swf/NASA-iPSC-1993-3.1-cln.swf.gz": (swf,),
    "traces/swf/accasim_test_sample.swf": (swf,),
    "traces/swf/cqsim_KTH_header_test.swf": (swf,),
    "traces/swf/hpc2n_subset_alea.swf.gz": (swf,),
    "traces/swf/lublin_256.swf.gz": (swf,),
}


@pytest.mark.parametrize("name", list(LOGS))
def test_span_and_gpu_hours_without_an_option(shared_dir: Path, name: str, tmp_path: Path) -> None:
    path = shared_dir / "data" / name
    loop, *arguments = LOGS[name]
    rows = [row for row in loop(path, *arguments) if row[1] > 0 and row[2] > 0]  # type: ignore[operator]
    jobs, report = import_log(path)
    assert len(jobs) == len(rows)
    span_s = max(row[0] for row in rows) - min(row[0] for row in rows)
    assert report["demand"]["span_s"] == pytest.approx(span_s, rel=1e-9)
    assert report["demand"]["gpu_seconds"] == pytest.approx(sum(n * t for _, n, t in rows), rel=1e-9)
    assert all("nothing in the log" not in text for text in report["warnings"])
    if len(jobs) < 20_000:
        write_trace(jobs, tmp_path / "trace.csv")
        assert read_trace(tmp_path / "trace.csv") == jobs


def test_a_log_in_hours_like_gaias(shared_dir: Path, tmp_path: Path) -> None:
    """The jobs of a file in seconds, written in hours, are the same jobs."""
    path = shared_dir / "data" / "clusters" / "pai_gaia" / "pai_1k.csv.gz"
    rows = [(float(a) / 3600, float(t) / 3600, n) for a, t, n in list(csv.reader(lines(path)))[1:]]
    text = "".join(f"{a!r},{t!r},{n}\n" for a, t, n in rows)
    (tmp_path / "pai_100k.csv").write_text("arrival_time,length,cpus\n" + text)
    hours, report = import_log(tmp_path / "pai_100k.csv")
    assert "in h (GAIA's jobs last 5 minutes or more" in report["times"][0]
    for ours, theirs in zip(hours, import_log(path)[0], strict=True):
        assert ours.submit_s == pytest.approx(theirs.submit_s, abs=1e-6)
        assert ours.duration_s == pytest.approx(theirs.duration_s)
