"""Published logs against data frames and plain loops over the file; and that no log is left out."""

import csv
import gzip
import json
import math
import statistics
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from itertime.errors import TableError
from tests.tables import TABLES
from traces import read_trace, write_trace
from traces.logs import ReadOptions, import_log
from traces.logs.importer import format_of, read
from traces.logs.log import Log
from traces.logs.source import open_log

OPENB = ["traces/alibaba/openb_pod_list_default.csv.gz", "clusters/alibaba/openb_pod_list_gpushare100.csv.gz"]
DLRM = "clusters/alibaba/disaggregated_DLRM_trace_2025.csv.gz"


def as_logged(path: Path) -> Log:
    with open_log(path) as source:
        return read(source, ReadOptions())


def check(path: Path, frame: pd.DataFrame) -> dict[str, Any]:
    """Compare the import of a log with a frame of its jobs: submit, start and end in s, gpus."""
    jobs, report = import_log(path)
    assert len(jobs) == len(frame)
    assert report["counts"]["rows"] == len(frame) + report["counts"]["dropped"]
    assert report["demand"]["span_s"] == pytest.approx(frame.submit.max() - frame.submit.min())
    gpu_seconds = float((frame.gpus * frame.took).sum())
    assert report["demand"]["gpu_seconds"] == pytest.approx(gpu_seconds, rel=1e-12)
    assert report["warnings"] == [] or "dlrm" in report["format"]
    return report


@pytest.mark.parametrize("name", OPENB)
def test_pods_of_openb(shared_dir: Path, name: str) -> None:
    pods = pd.read_csv(shared_dir / "data" / name)
    ran = pods[(pods.num_gpu > 0) & pods.scheduled_time.notna()]
    took = ran.deletion_time - ran.scheduled_time
    frame = pd.DataFrame({"submit": ran.creation_time, "gpus": ran.num_gpu, "took": took})
    report = check(shared_dir / "data" / name, frame)
    share = ran.num_gpu * ran.gpu_milli / 1000
    assert report["held_gpu_seconds"] == pytest.approx(float((share * took).sum()), rel=1e-12)
    assert report["parts_of_gpus"] == int((ran.gpu_milli < 1000).sum())
    assert report["dropped_by_reason"] == {
        "num_gpu: must be at least 1": int((pods.num_gpu == 0).sum()),
        "scheduled_time is empty: the pod was never scheduled": int(
            ((pods.num_gpu > 0) & pods.scheduled_time.isna()).sum()
        ),
    }
    waits = ran.scheduled_time - ran.creation_time
    logged = as_logged(shared_dir / "data" / name).jobs
    ours = [job.logged_start_s - job.submit_s for job in logged if job.logged_start_s is not None]
    assert ours == waits.tolist()
    assert [job.logged_end_s for job in logged] == ran.deletion_time.tolist()


def test_lists_of_pods_without_times_are_refused(shared_dir: Path) -> None:
    with pytest.raises(TableError, match="states no times"):
        import_log(shared_dir / "data" / "traces" / "alibaba" / "openb_pod_list_multigpu50.csv.gz")


def test_instances_of_dlrm(shared_dir: Path) -> None:
    rows = pd.read_csv(shared_dir / "data" / DLRM)
    last = rows[["creation_time", "scheduled_time", "deletion_time"]].max().max()
    held = rows[rows.gpu_request > 0]
    start, end = held.scheduled_time.fillna(0), held.deletion_time.fillna(last)
    frame = pd.DataFrame(
        {"submit": held.creation_time.fillna(0), "gpus": held.gpu_request, "took": end - start}
    )
    kept = frame[frame.took > 0]
    report = check(shared_dir / "data" / DLRM, kept)
    assert [int(text.split()[0].replace(",", "")) for text in report["warnings"]] == [
        held.creation_time[kept.index].isna().sum(),
        held.deletion_time[kept.index].isna().sum(),
    ]
    assert report["dropped_by_reason"] == {
        "gpu_request: must be at least 1": int((rows.gpu_request == 0).sum()),
        "does not end after its start": len(frame) - len(kept),
    }


@pytest.mark.parametrize("name", ["acme_seren_sample.csv", "acme_kalos_sample.csv"])
def test_jobs_of_acme_run_from_start_to_end(shared_dir: Path, name: str) -> None:
    path = shared_dir / "data" / "traces" / "formats" / name
    rows = pd.read_csv(path)
    start, end, submit = (
        pd.to_datetime(rows[column], utc=True) for column in ("start_time", "end_time", "submit_time")
    )
    took = (end - start).dt.total_seconds()
    frame = pd.DataFrame({"submit": submit.astype("int64") / 10**9, "gpus": rows.gpu_num, "took": took})
    if frame.submit.max() < 1e9:  # frames may count in microseconds
        frame.submit *= 1000
    report = check(path, frame)
    wrong = (rows.duration - took).abs() > 1 + 0.05 * took
    said = [text for text in report["assumptions"] if "stated run time is not the time" in text]
    assert bool(said) == bool(wrong.any()) == ("kalos" in name)


NO_LOGS = TABLES["parts of paths of no log"]
"""Parts of the paths of what is no log of jobs: texts, measurements, nodes, tables of speeds."""

NO_RUN_TIMES = ("clusters/sia/", "formats/sia_", "gavel")
"""Logs whose jobs state a model and no run time: they need --speeds."""


def test_every_published_log_is_recognised(shared_dir: Path) -> None:
    """One command imports each; large ones are read elsewhere, so only their beginning is needed here."""
    data = shared_dir / "data"
    found = dict[str, str]()
    for path in sorted([*(data / "traces").rglob("*"), *(data / "clusters").rglob("*")]):
        name = path.relative_to(data).as_posix()
        if not path.is_file() or any(part in name for part in NO_LOGS):
            continue
        try:
            if path.stat().st_size > 120_000 or any(part in name for part in NO_RUN_TIMES):
                with open_log(path) as source:
                    found[name] = format_of(path, source.head)
            else:
                found[name] = import_log(path)[1]["format"]
        except TableError as error:
            pytest.fail(str(error))
    assert len(found) >= 50


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


def headerless(path: Path, submit: int, gpus: int, took: int) -> Iterator[Row]:
    for line in lines(path):
        cells = line.split("\t")
        yield float(cells[submit]), float(cells[gpus]), float(cells[took])


READERS = {reader.__name__: reader for reader in (columns, dates, swf, philly, headerless)}
LOGS = TABLES["published logs"]


@pytest.mark.parametrize("name", list(LOGS))
def test_span_and_gpu_hours_without_an_option(shared_dir: Path, name: str, tmp_path: Path) -> None:
    path = shared_dir / "data" / name
    reader, *arguments = LOGS[name]
    rows = [row for row in READERS[reader](path, *arguments) if row[1] > 0 and row[2] > 0]  # type: ignore[operator]
    jobs, report = import_log(path)
    assert len(jobs) == len(rows)
    span_s = max(row[0] for row in rows) - min(row[0] for row in rows)
    assert report["demand"]["span_s"] == pytest.approx(span_s, rel=1e-9)
    assert report["demand"]["gpu_seconds"] == pytest.approx(sum(n * t for _, n, t in rows), rel=1e-9)
    assert all("nothing in the log" not in text for text in report["warnings"])
    if len(jobs) < 20_000:
        write_trace(jobs, tmp_path / "trace.csv")
        assert read_trace(tmp_path / "trace.csv") == list(jobs)


@pytest.mark.parametrize(
    ("policy", "mean_jct_s", "makespan_s"), [("SRTF", 249_140, 4.157e6), ("SRSF", 238_612, 4.223e6)]
)
def test_starts_and_ends_of_muris_testbed(
    shared_dir: Path, policy: str, mean_jct_s: float, makespan_s: float
) -> None:
    """The logged times give the means that its authors' results have, and what a job held its GPUs for."""
    path = shared_dir / "data" / "clusters" / "muri_testbed" / f"{policy}.job.csv.gz"
    with open_log(path) as source:
        logged = {job.job_id: job for job in read(source, ReadOptions()).jobs}
    spans = [(job.submit_s, job.logged_start_s, job.logged_end_s) for job in logged.values()]
    jct_s = [end - submit for submit, _, end in spans if end is not None]
    assert len(jct_s) == 400
    assert sum(jct_s) / 400 == pytest.approx(mean_jct_s, abs=0.6)
    assert max(end for _, _, end in spans if end) - min(s for s, _, _ in spans) == pytest.approx(
        makespan_s, rel=2e-4
    )
    for row in csv.DictReader(lines(path)):
        job = logged[row["job_id"]]
        assert job.logged_start_s is not None
        assert job.logged_start_s == pytest.approx(float(row["start_time"]))
        assert job.duration_s == pytest.approx(float(row["JCT"]) - float(row["pending_time"]))


GAVEL = ["0e4a51", "103959", "11cb48", "2869ce", "e13805"]


def gavel_rows(path: Path) -> list[tuple[str, float, float, int]]:
    """(job type, steps, arrival, GPUs) of each line."""
    rows = [line.split("\t") for line in lines(path)]
    return [(row[0], float(row[4]), float(row[5]), int(row[6])) for row in rows]


@pytest.mark.parametrize("name", GAVEL)
def test_steps_of_gavel(shared_dir: Path, name: str) -> None:
    path = shared_dir / "data" / "clusters" / "gavel_msr" / f"seed0_{name}.trace.gz"
    rows, (jobs, report) = gavel_rows(path), import_log(path)
    assert (len(jobs), report["dropped"]) == (len(rows), [])
    assert report["demand"]["span_s"] == pytest.approx(max(r[2] for r in rows) - min(r[2] for r in rows))
    assert sum(job.iterations or 0 for job in jobs) == sum(row[1] for row in rows)
    samples = sum(row[1] * int(row[0].split("size ")[1][:-1]) for row in rows if "size" in row[0])
    of_jobs = [
        (job.iterations or 0) * (job.global_batch or 0)
        for job in jobs
        if job.model not in ("A3C", "CycleGAN")
    ]
    assert sum(of_jobs) == samples


def between(known: dict[int, float], gpus: int) -> float | None:
    """The speed on a number of GPUs, on a straight line in logarithms between the next known ones."""
    if gpus in known:
        return known[gpus]
    low, high = [n for n in known if n < gpus], [n for n in known if n > gpus]
    if not low or not high:
        return None
    a, b = max(low), min(high)
    return float(known[a] * (known[b] / known[a]) ** (math.log(gpus / a) / math.log(b / a)))


def test_gpu_hours_of_gavel_by_the_speeds_of_shockwave(shared_dir: Path) -> None:
    clusters = shared_dir / "data" / "clusters"
    speeds = clusters / "shockwave" / "460_dynamic.trace.gz"
    found: dict[str, dict[int, list[float]]] = {}
    for cells in (line.split("\t") for line in lines(speeds)):
        found.setdefault(cells[0], {}).setdefault(int(cells[6]), []).append(
            float(cells[5]) / float(cells[10])
        )
    known = {kind: {n: statistics.median(rates) for n, rates in by.items()} for kind, by in found.items()}
    path = clusters / "gavel_msr" / "seed0_0e4a51.trace.gz"
    timed = [(n, steps, between(known.get(kind, {}), n)) for kind, steps, _, n in gavel_rows(path)]
    jobs, report = import_log(path, ReadOptions(speeds=str(speeds)))
    assert len(jobs) == sum(rate is not None for _, _, rate in timed) == 771
    gpu_s = sum(n * steps / rate for n, steps, rate in timed if rate)
    assert report["demand"]["gpu_seconds"] == pytest.approx(gpu_s, rel=1e-9)
    assert report["counts"]["rows"] == len(timed)


@pytest.mark.parametrize(
    "name", ["philly-1", "philly-2", "saturn-1", "saturn-2", "newtrace-1", "newtrace-2", "scale_32x-1"]
)
def test_gpu_hours_of_sia_by_the_work_and_speeds_of_elasticflow(shared_dir: Path, name: str) -> None:
    elasticflow = shared_dir / "data" / "traces" / "itp_elasticflow"
    work = {
        (row["model_name"], row["batch_size"]): float(row["iteration"])
        for row in csv.DictReader(lines(elasticflow / "elasticVpollux_e.csv"))
    }
    speeds: dict[tuple[str, str], dict[int, float]] = {}
    for table in (elasticflow / "throughputs_T4").glob("*.csv"):
        for row in csv.DictReader(lines(table)):
            batch = row.pop("global_batch_size")
            speeds[table.stem, batch] = {
                int(n): float(cell) for n, cell in row.items() if cell not in ("", "nan")
            }
    path = shared_dir / "data" / "clusters" / "sia" / f"{name}.csv.gz"
    gpu_s, count, rows = 0.0, 0, list(csv.DictReader(lines(path)))
    for row in rows:
        kind, gpus = (row["application"], row["batch_size"]), int(row["num_replicas"])
        rate = between(speeds.get(kind, {}), gpus)
        if kind in work and rate:
            count, gpu_s = count + 1, gpu_s + gpus * work[kind] / rate
    options = ReadOptions(
        work_of=str(elasticflow / "elasticVpollux_e.csv"), speeds=str(elasticflow / "throughputs_T4")
    )
    jobs, report = import_log(path, options)
    assert len(jobs) == count >= 0.98 * len(rows)
    assert report["demand"]["gpu_seconds"] == pytest.approx(gpu_s, rel=1e-9)
    assert sum(report["dropped_by_reason"].values()) == len(rows) - count
