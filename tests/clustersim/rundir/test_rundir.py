"""The run folder: what is written reads back, hostile text does no harm, failures leave no half of a run."""

import csv
import errno
import fcntl
import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import clustersim
from clustersim.analysis import summarise
from clustersim.cluster import Cluster
from clustersim.engine import Simulation
from clustersim.overheads import Overheads
from clustersim.records import JOB_COLUMNS, EventRecord, JobRecord, Run, Snapshot
from clustersim.rundir import RunWriter, claimed, read_run, write_run
from itertime.errors import TableError, UserError
from policies.srtf import Srtf
from tests.builders import free_setup
from tests.effort import examples
from tests.tables import TABLES as ROWS
from tests.tables import table_rows
from traces import write_trace
from traces.job import Job, submission_order

CLUSTER = Cluster(nodes=4, gpus_per_node=8)
CONTRACT = (
    "job_id,tenant,model,state,submit_s,start_s,finish_s,jct_s,queue_s,gpu_seconds,deadline_s,deadline_met,"
    "preemptions,resizes,restarts,lost_s"
)
DIGITS = "9" * 5000
TABLES = ("jobs.csv", "events.csv", "usage.csv", "summary.json")
HOSTILE = [
    "<script>alert(1)</script>", "=cmd()|' /C calc'!A0", "+1", "-1", "@SUM(A1)", "\tx", "\rx", "a\r\nb",
    "'=1", "''", 'say "hi", twice', "naïve — 作业", "", " ", "../../etc/passwd", "NaN", "\x00nul",
]  # fmt: skip


def small_run() -> Run:
    """A run of the engine with preemptions, a rejected job, a deadline that is missed and hostile names."""
    rows = [(7 * i % 60, 1 + 5 * i % 20, 10 + 37 * i % 200) for i in range(len(HOSTILE) * 2)]
    jobs = []
    for i, (s, g, d) in enumerate(rows):
        name, tenant = f"{HOSTILE[i % len(HOSTILE)]}{i}", HOSTILE[i % 3]
        jobs.append(Job(name, float(s), tenant, gpus=g, duration_s=d / 3, deadline_s=s + 90.5))
    jobs = submission_order([*jobs, Job("too-large", 3.0, gpus=33, duration_s=5.0)])
    recorder = Simulation(jobs, free_setup(CLUSTER, Srtf(), overheads=Overheads(scale=0.1))).run()
    records, events = recorder.jobs_by_submission(), recorder.events
    summary = summarise(records, recorder.snapshots, CLUSTER, end_s=recorder.end_s, events=len(events))
    manifest = {"seed": 0, "command": ["clustersim", "run", "a b.csv"], "timings": {"wall_s": 0.1}}
    return Run("srtf", "vtrain", CLUSTER, records, events, recorder.snapshots, summary, manifest)


def assert_same(back: Run, run: Run) -> None:
    """Equal, numbers within the 1e-6 of the format."""
    for name in ("policy", "planner", "cluster", "summary"):
        assert getattr(back, name) == getattr(run, name)
    for ours, theirs in ((run.jobs, back.jobs), (run.events, back.events), (run.snapshots, back.snapshots)):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            for name in JOB_COLUMNS if isinstance(one, JobRecord) else one._fields:
                expected, found = getattr(one, name), getattr(other, name)
                assert type(found) is type(expected)
                close = pytest.approx(expected, abs=1e-6, rel=1e-15) if type(found) is float else expected
                assert found == close


@pytest.mark.parametrize("parquet", [False, True])
def test_a_run_reads_back(tmp_path: Path, parquet: bool) -> None:
    run = small_run()
    assert {"preempt", "reject", "restart", "finish"} <= {event.event for event in run.events}
    written = write_run(tmp_path / "a" / "run", run, parquet=parquet)
    back = read_run(tmp_path / "a" / "run")
    assert_same(back, run)
    assert back.manifest == written.manifest
    jobs = "jobs.parquet" if parquet else "jobs.csv"
    expected = ["events.csv", jobs, "manifest.json", "plans.csv", "summary.json", "usage.csv"]
    assert sorted(os.listdir(tmp_path / "a" / "run")) == expected


def test_what_the_files_of_a_run_say(tmp_path: Path) -> None:
    run = write_run(tmp_path, small_run())
    header = (tmp_path / "jobs.csv").read_text(encoding="utf-8").splitlines()[0]
    assert header.startswith(CONTRACT + ",")
    optional = {"cpus_per_gpu", "gpu_fraction", "host_gb_per_gpu", "phases", "plan_options", "service"}
    optional |= {"eligible_s", "held_s", "requeues"}
    assert sorted(header.split(",")) == sorted(set(JOB_COLUMNS) - optional)
    for table in ("jobs.csv", "events.csv"):
        with (tmp_path / table).open(newline="", encoding="utf-8") as lines:
            for row in csv.DictReader(lines):
                text = [row[name] for name in row if not name.endswith("_s")]
                formulas = [cell for cell in text if cell.startswith(("=", "+", "-", "@", "\t", "\r"))]
                assert not formulas
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["complete"] is True
    assert manifest["cluster"] == {"shape": "n4g8", "nodes": 4, "gpus_per_node": 8, "system": "dgx-a100-80gb"}
    assert manifest["result_hash"] == hashlib.sha256((tmp_path / "jobs.csv").read_bytes()).hexdigest()
    assert (manifest["policy"], manifest["planner"], manifest["seed"]) == ("srtf", "vtrain", 0)
    back = read_run(tmp_path)  # it can be analysed again
    end_s = back.snapshots[-1].time_s
    again = summarise(back.jobs, back.snapshots, back.cluster, end_s=end_s, events=len(back.events))
    for name, value in run.summary.items():
        assert again[name] == (pytest.approx(value, rel=1e-6) if isinstance(value, float) else value), name


def test_two_writes_are_equal_byte_for_byte(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_run(tmp_path / name, small_run())
    write_run(tmp_path / "three", read_run(tmp_path / "one"))
    for table in TABLES:
        content = (tmp_path / "one" / table).read_bytes()
        assert content == (tmp_path / "two" / table).read_bytes() == (tmp_path / "three" / table).read_bytes()
    manifests = [(tmp_path / name / "manifest.json").read_bytes() for name in ("one", "three")]
    assert manifests[0] == manifests[1]
    parquet = write_run(tmp_path / "parquet", small_run(), parquet=True)
    assert parquet.manifest["result_hash"] == json.loads(manifests[0])["result_hash"], "in any format"


def test_the_numbers_of_all_records_are_there_before_and_after_the_end(tmp_path: Path) -> None:
    run = small_run()
    with RunWriter(tmp_path / "run", CLUSTER) as writer:
        writer.copy(run)
        before = (len(writer.job_table), writer.event_count, writer.usage_table["pending"].tolist())
        writer.finish(run.policy, run.planner, run.summary, run.manifest, run.plans)
        after = (len(writer.job_table), writer.event_count, writer.usage_table["pending"].tolist())
    assert before == after == (len(run.jobs), len(run.events), [s.pending for s in run.snapshots])


TEXT = st.text(max_size=8) | st.sampled_from(HOSTILE)
SECONDS = st.floats(-1e9, 1e9)
MAYBE_SECONDS = st.none() | SECONDS
COUNTS = st.integers(0, 10**9)
JOB_RECORDS = st.builds(
    JobRecord, job_id=TEXT, tenant=TEXT, model=TEXT, state=st.sampled_from(["finished", "rejected"]),
    submit_s=SECONDS, start_s=MAYBE_SECONDS, finish_s=MAYBE_SECONDS, jct_s=MAYBE_SECONDS,
    queue_s=MAYBE_SECONDS, wait_s=SECONDS, gpus=st.none() | st.integers(1, 32),
    gpu_seconds=st.floats(0, 1e12), overhead_gpu_s=SECONDS,
    isolated_s=MAYBE_SECONDS, deadline_s=MAYBE_SECONDS, deadline_met=st.none() | st.booleans(),
    preemptions=COUNTS, resizes=COUNTS, restarts=COUNTS, migrations=COUNTS, lost_s=SECONDS, reason=TEXT,
    interruptions=COUNTS, lost_work_s=SECONDS, lost_work_gpu_s=SECONDS,
)  # fmt: skip
PLACEMENTS = st.dictionaries(st.integers(0, 3), st.integers(1, 8)).map(lambda d: tuple(sorted(d.items())))
EVENT_RECORDS = st.builds(
    EventRecord, SECONDS, st.sampled_from(["start", "finish"]), TEXT, COUNTS, PLACEMENTS, TEXT, SECONDS, TEXT,
    st.floats(0, allow_infinity=False),
)  # fmt: skip
SNAPSHOTS = st.builds(Snapshot, SECONDS, *[st.integers(0, 32)] * 5)


@settings(max_examples=examples(60), deadline=None)
@given(
    jobs=st.lists(JOB_RECORDS, max_size=4), events=st.lists(EVENT_RECORDS, max_size=4), parquet=st.booleans(),
    snapshots=st.lists(SNAPSHOTS, max_size=4),
)  # fmt: skip
def test_any_record_reads_back(
    tmp_path_factory: pytest.TempPathFactory, jobs: Any, events: Any, snapshots: Any, parquet: bool
) -> None:
    run = Run("p", "vtrain", CLUSTER, jobs, events, snapshots, {"jobs": len(jobs), "covers": "=x"}, {})
    folder = tmp_path_factory.mktemp("run")
    write_run(folder, run, parquet=parquet)
    assert_same(read_run(folder), run)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.mark.parametrize("nth", range(5))
@pytest.mark.parametrize("earlier", [False, True])
def test_a_full_disk_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nth: int, earlier: bool
) -> None:
    folder = tmp_path / "run"
    run = small_run()
    if earlier:
        write_run(folder, replace(run, policy="earlier"))
    before = contents(folder) if earlier else {}
    calls = []

    def full(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) > nth:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match=r"cannot be written: No space left on device") as caught:
        write_run(folder, run)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert folder.exists() == earlier
    assert (contents(folder) if earlier else {}) == before


@pytest.mark.parametrize("nth", range(5))
def test_a_crash_between_the_files_leaves_a_run_marked_incomplete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    write_run(tmp_path, small_run())
    move, calls = os.replace, []

    def dies(source: Any, target: Any) -> None:
        calls.append(target)
        if len(calls) > nth:
            raise KeyboardInterrupt
        move(source, target)

    monkeypatch.setattr(os, "replace", dies)
    with pytest.raises(KeyboardInterrupt):
        write_run(tmp_path, replace(small_run(), policy="new"))
    with pytest.raises(UserError, match="not a complete run"):
        read_run(tmp_path)
    monkeypatch.undo()
    for name in (".jobs.csv.4194399.tmp", ".jobs.spool.4194399.a_b1x.tmp"):
        (tmp_path / name).write_text("of a writer that was killed")
    assert write_run(tmp_path, small_run()).policy == read_run(tmp_path).policy == "srtf"
    assert not list(tmp_path.glob("*.tmp")) + list(tmp_path.glob(".*.tmp"))


def test_an_earlier_run_is_replaced_whatever_its_format(tmp_path: Path) -> None:
    write_run(tmp_path, small_run(), parquet=True)
    (tmp_path / "notes.txt").write_text("mine")
    write_run(tmp_path, replace(small_run(), policy="other"))
    assert read_run(tmp_path).policy == "other"
    assert not (tmp_path / "jobs.parquet").exists()
    assert (tmp_path / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("name", ROWS["a folder with other files is refused"])
def test_a_folder_with_other_files_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text('{"name": "another program\'s"}')
    before = contents(tmp_path)
    with pytest.raises(UserError, match=f"holds {name}, which no run wrote"):
        write_run(tmp_path, small_run())
    assert contents(tmp_path) == before


def test_a_folder_belongs_to_one_run_at_a_time(tmp_path: Path) -> None:
    """Otherwise the run that ends last would replace the other without a word."""
    run = small_run()
    with RunWriter(tmp_path / "run", run.cluster) as first:
        for copy in (run, replace(run, policy="second")):
            with pytest.raises(UserError, match="run: another run is writing into it; wait for its end"):
                write_run(tmp_path / "run", copy)
        with pytest.raises(UserError, match="another run is writing into it"), claimed(tmp_path / "run"):
            pass  # as a comparison does
        first.copy(run)
        first.finish(run.policy, run.planner, run.summary, run.manifest, run.plans)
    assert read_run(tmp_path / "run").policy == run.policy
    write_run(tmp_path / "run", replace(run, policy="second"))  # the folder is free again
    assert read_run(tmp_path / "run").policy == "second"


def test_a_folder_without_locks_is_used_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", refuse)
    code = errno.ENOLCK
    write_run(tmp_path / "run", small_run())
    code = errno.EIO
    with pytest.raises(UserError, match="cannot be used as a folder: Input/output error"):
        write_run(tmp_path / "run", small_run())


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_trace_is_not_taken_for_the_records_of_a_killed_run(tmp_path: Path, ending: str) -> None:
    trace = tmp_path / f"jobs.{ending}"
    write_trace([Job("a", 0.0, gpus=1, duration_s=60.0)], trace)
    before = contents(tmp_path)
    with pytest.raises(UserError, match=rf"holds jobs\.{ending}, which no run wrote"):
        clustersim.run(trace, "fifo", cluster="n1g8", out=tmp_path)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("parquet", [False, True])
def test_the_records_of_a_killed_run_are_replaced(tmp_path: Path, parquet: bool) -> None:
    write_run(tmp_path, small_run(), parquet=parquet)
    (tmp_path / "manifest.json").unlink()
    (tmp_path / "report.html").write_text("of the earlier run")
    write_run(tmp_path, small_run())
    assert read_run(tmp_path).policy == "srtf"


def test_a_path_that_cannot_be_a_folder_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(UserError, match="cannot be used as a folder"):
            write_run(path, small_run())


@pytest.mark.parametrize(
    ("file", "before", "after", "complaint"),
    [
        *table_rows("a bad cell is named"),
        ("usage.csv", "\n0,", "\n0," + "9" * 5000, "allocated=999.*: must be a whole number"),
    ],
)
def test_a_bad_cell_is_named(tmp_path: Path, file: str, before: str, after: str, complaint: str) -> None:
    write_run(tmp_path, small_run())
    text = (tmp_path / file).read_text(encoding="utf-8")
    assert before in text
    (tmp_path / file).write_text(text.replace(before, after, 1), encoding="utf-8", newline="")
    with pytest.raises(TableError, match=rf"{file}:\d+: .*{complaint}") as caught:
        read_run(tmp_path)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("content", ["", "[" * 100_000])
def test_a_manifest_that_is_no_json_is_named(tmp_path: Path, content: str) -> None:
    """What else is refused in it is in `refusals/rundir_manifest.yaml`."""
    write_run(tmp_path, small_run())
    (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(UserError, match=r"manifest\.json: .*is not JSON"):
        read_run(tmp_path)


@pytest.mark.parametrize(("file", "old", "complaint"), table_rows("a file that was changed is not believed"))
def test_a_file_that_was_changed_is_not_believed(tmp_path: Path, file: str, old: str, complaint: str) -> None:
    write_run(tmp_path, small_run())
    path = tmp_path / file
    path.write_bytes(path.read_bytes().replace(old.encode(), old.replace("finished", "rejected").encode(), 1))
    with pytest.raises(UserError, match=f"{file}: {complaint}"):
        read_run(tmp_path)
