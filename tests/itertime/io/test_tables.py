"""Tables: Parquet with bounded memory, and text that no spreadsheet evaluates."""

import csv
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from itertime.errors import TableError
from itertime.io import open_table, with_guard, without_guard
from tests.effort import examples
from tests.tables import TABLES, TEXTS
from traces import Job, read_trace, write_trace

LIMITED = TEXTS["reading a table with little memory"]


def read_with_little_memory(path: Path) -> tuple[str, int]:
    """What reading all rows says in a process of at most 2.5 GB, and the megabytes that it took."""
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(path)], capture_output=True, text=True, timeout=60, check=True
    )
    said, megabytes = done.stdout.splitlines()
    return said, int(megabytes)


def write(path: Path, columns: dict[str, Any], **options: Any) -> Path:
    pq.write_table(pa.table(columns), path, **options)
    return path


def shared(text: str, rows: int) -> Any:
    return pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array([text]))


def test_cells_that_share_a_long_text_share_memory(tmp_path: Path) -> None:
    """8 GB of text in a file of some kilobytes."""
    columns = {"job_id": [str(i) for i in range(2000)], "tenant": shared("x" * 4_000_000, 2000)}
    path = write(tmp_path / "bomb.parquet", columns)
    assert path.stat().st_size < 250_000
    said, megabytes = read_with_little_memory(path)
    assert said == "2000 rows"
    assert megabytes < 400


def test_large_row_groups_are_refused_before_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a dictionary they take their whole size, which a small compressed file states."""
    path = write(
        tmp_path / "plain.parquet", {"a": ["x" * 9000] * 9}, use_dictionary=False, compression="zstd"
    )
    assert path.stat().st_size < 1000
    monkeypatch.setattr("itertime.io.parquet._GROUP_BYTES", 81_000)
    what = r"row group 0 has 81,\d+ bytes, more than 81,000; write it with smaller row groups"
    with pytest.raises(TableError, match=what), open_table(path):
        raise AssertionError


def test_a_row_has_at_most_ten_million_characters(tmp_path: Path) -> None:
    columns = {name: ["y", "x" * 4_000_000] for name in "abc"}
    said, megabytes = read_with_little_memory(write(tmp_path / "wide.parquet", columns))
    assert said.startswith("TableError")
    assert said.endswith(
        "wide.parquet:2: a row of more than 10,000,000 characters; look for missing line breaks"
    )
    assert megabytes < 600
    with open_table(write(tmp_path / "t.parquet", {name: columns[name] for name in "ab"})) as table:
        assert [sum(map(len, row)) for _, row in table.rows] == [2, 8_000_000]


def test_cells_that_are_no_text_or_number_are_refused_before_they_are_read(tmp_path: Path) -> None:
    """A list of millions of equal numbers takes a few bytes in the file."""
    long = pa.ListArray.from_arrays([0, 1000], pa.array([0] * 1000, pa.int8()))
    for name, column, what in (
        ("list", long, "neither text nor numbers; convert it"),
        ("seconds", pa.array([1], pa.duration("s")), "has a unit of its own; write seconds"),
        ("rows", pa.array(bytes(1_500_000), pa.int8()), "has 1,500,000 rows in [0-9,]+ bytes"),
        ("fixed", pa.array([bytes(10_000_001)], pa.binary(10_000_001)), "a row of more than 10,000,000"),
    ):
        path = write(tmp_path / f"{name}.parquet", {"a": column})
        with pytest.raises(TableError, match=what), open_table(path):
            raise AssertionError


TEXTS = st.lists(st.none() | st.text(max_size=5), min_size=1, max_size=30)


@given(texts=TEXTS, categories=st.booleans(), large=st.booleans(), batch=st.integers(1, 7))
@settings(
    deadline=None, max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_every_cell_is_its_text(
    tmp_path: Path, texts: list[str | None], categories: bool, large: bool, batch: int
) -> None:
    column = pa.array(texts, pa.large_string() if large else pa.string())
    numbers = [None if text is None else len(text) for text in texts]
    columns = {"a": column.dictionary_encode() if categories else column, "n": numbers}
    path = write(tmp_path / "t.parquet", columns, row_group_size=batch)
    with open_table(path) as table:
        assert table.columns == ["a", "n"]
        found = list(table.rows)
    expected = [[text or "", "" if text is None else str(len(text))] for text in texts]
    assert found == [(i, row) for i, row in enumerate(expected, 1)]


FORMULA = tuple("=+-@\t\r\n")


@given(st.text() | st.text(alphabet="'=+-@\t\r\na"))
def test_text_survives_a_round_trip(text: str) -> None:
    assert without_guard(with_guard(text)) == text
    assert not with_guard(text).startswith(FORMULA)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_trace_of_hostile_names(tmp_path: Path, ending: str) -> None:
    jobs = [
        Job(text, float(i), tenant=text, state=text, gpus=1, duration_s=1.0)
        for i, text in enumerate(TABLES["hostile texts"])
    ]
    path = tmp_path / f"trace.{ending}"
    write_trace(jobs, path)
    assert read_trace(path) == jobs
    if ending == "csv":
        with path.open(newline="") as file:
            for row in list(csv.reader(file))[1:]:
                assert not row[0].startswith(FORMULA)


def test_foreign_text_without_a_guard_is_read_unchanged(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("job_id,submit_s,gpus,duration_s\n=cmd(),0,1,1\n'tis,0,1,1\n")
    assert [job.job_id for job in read_trace(tmp_path / "t.csv")] == ["=cmd()", "'tis"]
