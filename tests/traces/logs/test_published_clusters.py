"""Published logs of production clusters against data frames of them; and that no log is left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from itertime.errors import TableError
from tests.traces.importing import import_log
from traces.logs.importer import format_of, read
from traces.logs.log import Log, ReadOptions
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


NO_LOGS = (
    "README.md", "FORMATS.md", "PROVENANCE.csv", "LICENSE", "minibatch_", "placements_",
    "profile_llama7b_data", "llama2-7b_32xA100_events", "cluster_summary", "node_list", "node_info",
    "openb_pod_list_multigpu",
    "pai_headers", "acme_digitised", "throughputs_",
)  # fmt: skip
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
