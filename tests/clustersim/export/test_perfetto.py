"""The trace of a run for Perfetto: every GPU-second once, no GPU twice, the same bytes every time."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pytest

import clustersim
from clustersim import Run
from clustersim.export import write_timeline
from clustersim.export.perfetto import timeline_events
from clustersim.records import EventRecord
from traces import Job

EVIL = '<script>alert(1)</script>"\\'


@pytest.fixture(scope="module")
def run() -> Run:
    jobs = [Job(EVIL, 1000.0, gpus=12, duration_s=500.0, tenant=EVIL)]
    jobs += [Job(f"j{i}", 1000.0 + 30 * i, gpus=1 + i % 4, duration_s=100.0 + i) for i in range(12)]
    return clustersim.run(jobs, "srtf", cluster="n2g8")


def test_the_gpus_are_held_as_the_records_say(run: Run) -> None:
    held: dict[str, int] = defaultdict(int)
    by_gpu: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for event in timeline_events(run):
        if event["ph"] == "X" and event["cat"] != "overhead":
            held[event["name"]] += event["dur"]
            by_gpu[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    assert held == pytest.approx({job.job_id: job.gpu_seconds * 1e6 for job in run.jobs}, abs=100)
    assert len(by_gpu) == 16
    for spells in by_gpu.values():
        spells.sort()
        assert all(end <= begin + 1 for (_, end), (begin, _) in pairwise(spells))


def test_time_begins_with_the_first_submission_and_counters_follow_the_cluster(run: Run) -> None:
    events = list(timeline_events(run))
    counts = [e for e in events if e["ph"] == "C" and e["name"] == "GPUs"]
    assert len(counts) == len(run.snapshots)
    assert all(sum(e["args"].values()) == 16 for e in counts)
    assert min(e["ts"] for e in events if "ts" in e) == 0
    assert max(e["args"]["allocated"] for e in counts) > 8


def test_overhead_is_nested_in_what_pays_it(run: Run) -> None:
    events = [e for e in timeline_events(run) if e["ph"] == "X"]
    overheads = [e for e in events if e["cat"] == "overhead"]
    assert overheads
    for overhead in overheads:
        around = [
            e for e in events
            if e is not overhead and (e["pid"], e["tid"]) == (overhead["pid"], overhead["tid"])
            and e["ts"] == overhead["ts"] and e["dur"] >= overhead["dur"]
        ]  # fmt: skip
        assert len(around) == 1


def test_outages_are_marked(run: Run) -> None:
    down = EventRecord(1010.0, "node_down", "", 0, ((1, 8),), "", 0.0, "")
    marked = Run(**{**{n: getattr(run, n) for n in run.__dataclass_fields__}, "events": [*run.events, down]})
    (mark,) = [e for e in timeline_events(marked) if e["ph"] == "i"]
    assert (mark["pid"], mark["ts"], mark["name"]) == (2, 10_000_000, "node down")


@pytest.mark.parametrize("name", ["t.json", "t.json.gz"])
def test_the_file_is_json_and_the_same_every_time(run: Run, tmp_path: Path, name: str) -> None:
    count = write_timeline(run, tmp_path / name)
    content = (tmp_path / name).read_bytes()
    write_timeline(run, tmp_path / name)
    assert (tmp_path / name).read_bytes() == content
    document = json.loads(gzip.decompress(content) if name.endswith("gz") else content)
    assert len(document["traceEvents"]) == count
    assert EVIL in {event["name"] for event in document["traceEvents"]}
