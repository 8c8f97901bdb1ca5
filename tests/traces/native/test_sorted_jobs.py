"""Traces on disk: the jobs of `read_trace` in order of submission, from every kind of file and from pipes."""

import multiprocessing
import os
import pickle
import threading
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from itertime.errors import TableError, UserError
from itertime.io import sha256
from tests.effort import examples
from traces import Job, read_trace, submission_order, write_trace
from traces.native import StoredJobs, store_trace
from traces.native import parsing as rows
from traces.native import sorted_jobs as stored

RIGID = "job_id,submit_s,gpus,duration_s\n"
SHARED = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shrink the limits: few jobs make many runs of several blocks, most of them in a file."""
    monkeypatch.setattr(stored, "RUN_JOBS", 7)
    monkeypatch.setattr(stored, "BLOCK_JOBS", 3)
    monkeypatch.setattr(stored, "IN_MEMORY_BYTES", 200)


def jobs_of(count: int) -> list[Job]:
    """Jobs in groups of five with the same submission time."""
    return [
        Job(str(i), float(i // 5), tenant="tä\u2028n" * (1 + i % 2), gpus=1 + i % 8, duration_s=1.0 / (i + 1))
        for i in range(count)
    ]


@contextmanager
def piped(path: Path, content: bytes) -> Iterator[Path]:
    """A pipe at `path` that gives `content` to its first reader."""
    os.mkfifo(path)

    def give() -> None:
        with suppress(BrokenPipeError):
            path.write_bytes(content)

    writer = threading.Thread(target=give, daemon=True)
    writer.start()
    yield path
    writer.join(timeout=10)


@given(
    times=st.lists(st.sampled_from([0.0, 1.5, 2.0]) | st.floats(0, 1e6), min_size=1, max_size=60),
    ids=st.randoms(use_true_random=False),
)
@example(times=[0.0, 0.0, 0.0, 1.5], ids=Random(3))  # in one second, and not in order of their ids
@settings(parent=SHARED, max_examples=examples(80))
def test_jobs_are_iterated_in_order_of_submission(
    small: None, tmp_path: Path, times: list[float], ids: Random
) -> None:
    names = [f"{'x' * (i % 2)}{i}" for i in range(len(times))]
    ids.shuffle(names)
    jobs = [Job(name, time, gpus=1, duration_s=2.0) for name, time in zip(names, times, strict=True)]
    path = tmp_path / "trace.csv"
    write_trace(jobs, path)
    found = store_trace(path)
    assert len(found) == len(jobs)
    assert list(found) == submission_order(jobs) == list(found)
    assert found.sha256 == sha256(path)


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "parquet"])
@pytest.mark.parametrize("pipe", [False, True], ids=["file", "pipe"])
def test_every_kind_of_file_and_a_pipe(small: None, tmp_path: Path, ending: str, pipe: bool) -> None:
    jobs = jobs_of(100)
    Random(1).shuffle(jobs)
    path = tmp_path / f"trace.{ending}"
    write_trace(jobs, path)
    assert list(store_trace(path)) == submission_order(jobs)
    if pipe:
        with piped(tmp_path / "pipe", path.read_bytes()) as source:
            found = store_trace(source)
        assert list(found) == submission_order(jobs)
        assert found.sha256 == sha256(path)
        with piped(tmp_path / "again", path.read_bytes()) as source:
            assert read_trace(source) == jobs


def test_rows_of_parquet_are_numbered_through_all_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("itertime.io.parquet._BATCH_ROWS", 3)
    jobs = [Job(str(i % 8), float(i), gpus=1, duration_s=1.0) for i in range(10)]
    write_trace(jobs, tmp_path / "t.parquet")
    with pytest.raises(TableError, match=":9: job_id=0: is also the id of line 1"):
        store_trace(tmp_path / "t.parquet")


def test_a_trace_in_order_is_one_run_and_needs_no_merging(small: None) -> None:
    found = StoredJobs()
    for line, job in enumerate(jobs_of(100)):
        found.add(line, job)
    found.finish("")
    assert len(found._runs) == 1
    assert found._blocks._file is not None
    assert not found._blocks._memory


def test_several_readers_at_different_places(small: None) -> None:
    """Iterators of one process, of a forked process and of a copy do not move each other's position."""
    jobs = jobs_of(50)
    found = StoredJobs()
    for line, job in enumerate(reversed(jobs)):
        found.add(line, job)
    one, other = iter(found.finish("")), iter(found)
    assert [next(one).job_id for _ in range(20)] == [str(i) for i in range(20)]
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert [next(other).job_id for _ in range(9)] == [str(i) for i in range(9)]
        assert pool.apply(list, (pickle.loads(pickle.dumps(found)),)) == jobs
    inherited = multiprocessing.get_context("fork").Process(target=_must_equal, args=(found, jobs))
    inherited.start()
    inherited.join()
    assert inherited.exitcode == 0
    assert [*one] == jobs[20:]
    assert [*other] == jobs[9:]


def _must_equal(found: StoredJobs, jobs: list[Job]) -> None:
    assert list(found) == jobs


def test_memory_holds_few_jobs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """8 bytes a job while the trace is read and almost nothing afterwards; a list takes hundreds."""
    monkeypatch.setattr(stored, "RUN_JOBS", 400)
    monkeypatch.setattr(stored, "BLOCK_JOBS", 50)
    monkeypatch.setattr(stored, "IN_MEMORY_BYTES", 1000)
    count = 8000
    path = tmp_path / "trace.csv"
    path.write_text(RIGID + "".join(f"{i},{i},1,{i + 1}\n" for i in range(count)))
    list(store_trace(path))  # imports what it needs
    held = {}
    for name, read in {"stored": store_trace, "listed": read_trace}.items():
        tracemalloc.start()
        found: Any = read(path)
        for _ in found:
            pass
        held[name], peak = (value / count for value in tracemalloc.get_traced_memory())
        tracemalloc.stop()
        if name == "stored":
            assert peak < 50
        del found
    assert held["stored"] < 10
    assert held["listed"] > 150


# Mistakes


def error_of(path: Path) -> str:
    """The error of a trace, which must be the same stored and listed."""
    texts = []
    for read in (read_trace, store_trace):
        with pytest.raises(TableError) as caught:
            read(path)
        texts.append(str(caught.value).replace(f"{path}:", ""))
    assert texts[0] == texts[1]
    return texts[0]


def test_of_many_mistakes_the_first_are_shown(small: None, tmp_path: Path) -> None:
    """Repeated ids, which are found last, are sorted among the first twenty mistakes."""
    path = tmp_path / "t.csv"
    path.write_text(RIGID + "".join(f"{i // 2},0,1,5\nx,0,0,5\n" for i in range(100)))
    lines = error_of(path).splitlines()
    numbers = [int(line.split(":")[0]) for line in lines[:20]]
    assert (
        numbers
        == sorted(numbers)
        == [3, 4, 5, 7, 8, 9, 11, 12, 13, 15, 16, 17, 19, 20, 21, 23, 24, 25, 27, 28]
    )
    assert lines[20].endswith("130 more errors are not shown")


def test_ids_with_equal_hashes_are_not_confused(
    small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "hash", lambda job_id: len(job_id), raising=False)
    path = tmp_path / "t.csv"
    path.write_text(RIGID + "".join(f"{i},0,1,5\n" for i in range(30)))
    assert len(store_trace(path)) == len(read_trace(path)) == 30
    path.write_text(path.read_text() + "7,1,1,5\n")
    assert error_of(path) == "32: job_id=7: is also the id of line 9; ids must be unique"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
@pytest.mark.parametrize("pipe", [False, True], ids=["file", "pipe"])
def test_no_space_for_the_temporary_file(
    small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pipe: bool
) -> None:
    full = Path("/dev/full")
    monkeypatch.setattr("tempfile.TemporaryFile", lambda buffering=-1: full.open("r+b", buffering))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    write_trace(jobs_of(100), tmp_path / "t.csv")
    complaint = rf"{tmp_path}.*: No space left on device; set TMPDIR to "
    if not pipe:
        with pytest.raises(UserError, match=complaint):
            store_trace(tmp_path / "t.csv")
        return
    content = (tmp_path / "t.csv").read_bytes()
    with piped(tmp_path / "pipe", content) as source, pytest.raises(UserError, match=complaint):
        store_trace(source)
