"""The files of a run: the event log while it grows, and tables that are written a block at a time."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import clustersim
from clustersim.cluster import Cluster, Placement
from clustersim.records import Columns, EventRecord, Exact, Run, by_field
from clustersim.rundir import EVENTS_FILE, Following, RunWriter, guarded_text, log_of, read_run, write_run
from clustersim.rundir.csv_out import csv_text, lines_of, table_of
from itertime.errors import UserError
from traces import Job

CLUSTER = Cluster.parse("n2g8")


@cache
def logged() -> tuple[bytes, list[EventRecord]]:
    """A log with quotes, line breaks and guards in its names, and what it says."""
    names = ["plain", "two\nlines", 'a "b", c', "=1+1", "ümlaut\r\n", '"\n"']
    jobs = [Job(f"{name}{i}", float(i), gpus=8, duration_s=60.0) for i, name in enumerate(names * 3)]
    run = clustersim.run(jobs, "fifo", cluster="n2g8")
    with TemporaryDirectory() as folder:
        write_run(folder, run)
        return (Path(folder) / EVENTS_FILE).read_bytes(), list(read_run(folder).events)


def all_of(log: Following, offset: int = 0) -> Iterator[tuple[list[EventRecord], int]]:
    while True:
        events, offset = log.block(offset)
        if not events:
            return
        yield events, offset


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_a_log_that_arrives_in_pieces_is_read_once_and_whole(data: st.DataObject) -> None:
    content, expected = logged()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(content)), max_size=12)))
    with TemporaryDirectory() as folder:
        path = Path(folder) / EVENTS_FILE
        path.write_bytes(b"")
        log, found, offset = Following(folder, CLUSTER), [], 0
        for start, end in zip([0, *cuts], [*cuts, len(content)], strict=True):
            with path.open("ab") as file:
                file.write(content[start:end])
            for events, after in all_of(log, offset):
                found, offset = found + events, after
            assert found == expected[: len(found)]
        assert found == expected


def test_it_continues_at_any_offset_that_it_gave(tmp_path: Path) -> None:
    content, expected = logged()
    header, _, rows = content.partition(b"\n")
    (tmp_path / EVENTS_FILE).write_bytes(header + b"\n" + rows * 200)  # several blocks
    log = Following(tmp_path, CLUSTER)
    blocks = list(all_of(log))
    assert len(blocks) > 3
    assert [e for events, _ in blocks for e in events] == expected * 200
    offsets = [0, *(offset for _, offset in blocks)]
    for (events, _), offset in zip(blocks, offsets, strict=False):
        assert log.block(offset)[0] == events


def test_a_row_longer_than_a_block_is_read(tmp_path: Path) -> None:
    jobs = [Job("x" * 100_000, 0.0, gpus=8, duration_s=60.0), Job("y", 1.0, gpus=8, duration_s=60.0)]
    run = clustersim.run(jobs, "fifo", cluster="n2g8")
    write_run(tmp_path, run)
    assert [e for events, _ in all_of(Following(tmp_path)) for e in events] == list(run.events)


@pytest.fixture
def run() -> Run:
    return clustersim.run([Job("a", 0.0, gpus=8, duration_s=60.0)], "fifo", cluster="n2g8")


def test_a_run_in_progress_is_followed_to_its_end(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with RunWriter(folder, run.cluster) as writer:
        log = Following(folder, run.cluster)
        assert log.status == "running"
        assert log.block() == ([], 0)
        writer.copy(run)
        assert log.is_current()
        writer.finish(run.policy, run.planner, run.summary, run.manifest, run.plans)
        assert log.status == "complete"
    assert [e for events, _ in all_of(log) for e in events] == list(run.events)
    assert log.is_current()
    clustersim.run([Job("b", 0.0, gpus=8, duration_s=60.0)], "fifo", cluster="n2g8", out=folder)
    assert not log.is_current()  # another run took its place


def test_the_folder_of_a_complete_run_may_be_renamed(run: Run, tmp_path: Path) -> None:
    with RunWriter(tmp_path / "temporary", run.cluster) as writer:
        log = Following(tmp_path / "temporary", run.cluster)
        writer.copy(run)
        writer.finish(run.policy, run.planner, run.summary, run.manifest, run.plans)
    (tmp_path / "temporary").rename(tmp_path / "final")
    assert log.status == "complete"
    assert log.block()[0] == list(run.events)
    assert not log.is_current()


def test_events_are_seen_as_soon_as_jobs_leave(run: Run, tmp_path: Path) -> None:
    """Before a block of records is full."""
    with RunWriter(tmp_path / "run", run.cluster) as writer:
        log = Following(tmp_path / "run", run.cluster)
        for event in run.events:
            writer.event(*event)
        writer.keep_job(run.jobs[0], 0)
        assert log.block()[0] == list(run.events)


def test_an_abandoned_run_has_stopped_and_what_is_no_log_is_refused(tmp_path: Path) -> None:
    with RunWriter(tmp_path / "run", CLUSTER):
        log = Following(tmp_path / "run", CLUSTER)
    assert log.status == "stopped"
    assert log_of(tmp_path) is None
    with pytest.raises(UserError, match="holds no events"):
        Following(tmp_path)
    elsewhere = tmp_path / "elsewhere.csv"
    elsewhere.write_bytes(logged()[0])
    (tmp_path / EVENTS_FILE).symlink_to(elsewhere)
    with pytest.raises(UserError, match="cannot be read"):
        Following(tmp_path)
    (tmp_path / EVENTS_FILE).unlink()
    (tmp_path / EVENTS_FILE).write_text("secret,words\n")
    with pytest.raises(UserError, match="not an event log"):
        Following(tmp_path).block()


def test_blocks_of_writing_change_no_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Showing events early is invisible in the result."""
    jobs = [Job(str(i), float(i), gpus=8, duration_s=60.0) for i in range(40)]
    clustersim.run(jobs, "fifo", cluster="n2g8", out=tmp_path / "late")
    monkeypatch.setattr("clustersim.rundir.writing._SHOW_EVERY_S", 0.0)
    clustersim.run(jobs, "fifo", cluster="n2g8", out=tmp_path / "early")
    names = ("events.csv", "jobs.csv", "usage.csv", "summary.json")
    assert all((tmp_path / "late" / n).read_bytes() == (tmp_path / "early" / n).read_bytes() for n in names)


# Blocks of records


class Row(NamedTuple):
    """A field of every kind that a record may have."""

    text: str
    whole: int
    some: int | None
    number: float
    maybe: float | None
    speed: Exact
    met: bool | None
    place: Placement


COLUMNS = table_of(Row)
NUMBERS = st.floats(-1e9, 1e9) | st.integers(-3, 3).map(lambda n: n / 2) | st.sampled_from([0.0, -0.0, -1e-9])
TEXTS = st.text(st.sampled_from("a=+-@'\t\r\n,\"\0é"), max_size=4)
PLACES = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 2)), max_size=4, unique_by=lambda at: at[0])
ROWS = st.builds(
    Row,
    TEXTS,
    st.integers(-2, 2),
    st.none() | st.integers(0, 2),
    NUMBERS,
    st.none() | NUMBERS,
    NUMBERS.map(Exact),
    st.sampled_from([None, True, False]),
    PLACES.map(lambda places: tuple(sorted(places))),
)


def cell(value: Any, exact: bool) -> str:
    """What the format says of one value, of places apart."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return guarded_text(value)
    if exact:
        return np.format_float_positional(value + 0.0, trim="-") if 1e-4 <= abs(value) < 1e16 else repr(value)
    return np.format_float_positional(round(value, 6) + 0.0, trim="-")


def line(row: Row) -> str:
    """Its line if nothing is beside it."""
    return lines_of(COLUMNS, by_field([row], Row._fields))[0]


@given(st.lists(ROWS, max_size=6))
def test_a_row_does_not_depend_on_the_others(rows: list[Row]) -> None:
    lines = lines_of(COLUMNS, by_field(rows, Row._fields))
    assert lines == [line(row) for row in rows]
    assert csv_text(COLUMNS, rows) == "\n".join(["text,whole,some,number,maybe,speed,met,place", *lines, ""])


@given(ROWS)
def test_every_cell_is_what_the_format_says(row: Row) -> None:
    expected = [cell(value, name == "speed") for name, value in zip(Row._fields, row[:-1], strict=False)]
    if abs(row.speed) < 1e-4:  # with an exponent, or 0
        expected[5] = line(row).split(",")[-3]
        assert float(expected[5]) == row.speed
    assert line(row).startswith(",".join(expected) + ",")


def test_more_rows_than_a_block() -> None:
    rows = [Row(f"j{i}", i, None, i / 8, None, Exact(1.0), None, ((i, 8),)) for i in range(5001)]
    text = csv_text(COLUMNS, rows).splitlines()
    assert len(text) == 5002
    assert text[2] == "j1,1,,0.125,,1,,1x8"
    assert text[-1] == "j5000,5000,,625,,1,,5000x8"


@given(st.lists(st.lists(ROWS, max_size=4), max_size=4))
def test_columns_of_blocks_are_those_of_all(blocks: list[list[Row]]) -> None:
    columns, rows = Columns(Row, coded=("text",)), [row for block in blocks for row in block]
    for block in blocks:
        columns.extend(by_field(block, Row._fields))
    assert len(columns) == len(rows)
    for name in ("whole", "some", "number", "maybe", "met"):
        values = [getattr(row, name) for row in rows]
        expected = np.array([np.nan if value is None else value for value in values], dtype=float)
        assert np.array_equal(columns[name], expected, equal_nan=True)
    for text in ("", "a", *(row.text for row in rows)):
        assert columns.equal("text", text).tolist() == [row.text == text for row in rows]
