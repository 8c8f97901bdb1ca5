"""Iteration tables: hostile files get one line with the place, the mistake and the remedy."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from itertime.calibration.table import read_table
from itertime.errors import TableError
from tests.effort import examples


def complaint(path):
    with pytest.raises(TableError) as error:
        read_table(path)
    assert error.value.exit_code == 3
    return str(error.value)


def test_a_row_becomes_typed_cells_and_empty_ones_none(tmp_path, write_table, table_row):
    (row,) = read_table(write_table({}))
    assert (row["line"], row["id"], row["layers"], row["iteration_s"]) == (2, "run-1", 30, 5.618)
    assert row["gated_mlp"] is False
    assert row["zero_group"] is None
    assert row["source"] == "a, b"


def test_a_byte_order_mark_blank_lines_and_crlf_are_fine(tmp_path, write_table, table_row):
    text = write_table({}).read_text().replace("\n", "\r\n")
    (tmp_path / "t.csv").write_bytes(b"\xef\xbb\xbf" + text.encode() + b"\r\n\r\n")
    assert len(read_table(tmp_path / "t.csv")) == 1


def test_unknown_columns_are_ignored_and_optional_ones_may_be_missing(tmp_path, write_table, table_row):
    columns = [name for name in table_row if name not in ("note", "kv_heads", "interleave", "memory_gb")]
    (row,) = read_table(write_table({"colour": "red"}, columns=[*columns, "colour"]))
    assert row["interleave"] is None
    assert "colour" not in row


def test_of_many_unknown_columns_the_first_are_named(tmp_path, write_table, table_row, caplog):
    unknown = [f"c{number}" for number in range(1000)]
    read_table(write_table({}, columns=[*table_row, *unknown]))
    assert "c8, c9 and 990 more; do they change" in caplog.text
    assert "c10" not in caplog.text


def test_what_is_no_text_or_cannot_be_read(tmp_path, write_table):
    (tmp_path / "h.csv").write_bytes(b"\x00\xff\xfe\x80" * 100)
    assert "UTF-8" in complaint(tmp_path / "h.csv")
    assert "cannot be read" in complaint(tmp_path / "nothing.csv")
    assert "cannot be read" in complaint(tmp_path)
    long = write_table({"note": "x" * 20_000}, name="i.csv")
    assert "20000 characters" in complaint(long)
    quoted = write_table({}, name="j.csv")
    quoted.write_text(quoted.read_text() + '"never closed\n')
    assert "not CSV" in complaint(quoted)


CELLS = st.text(max_size=12) | st.sampled_from(["0", "1", "-1", "8", "1e3", "nan", "True", "core", "full"])


@given(
    change=st.dictionaries(
        st.sampled_from(["id", "gpus", "tp", "iteration_s", "attention", "gated_mlp", "note"]), CELLS
    )
)
@settings(
    max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_text_in_the_cells_gives_a_table_or_an_error(table_row, tmp_path, change):
    path = tmp_path / "t.csv"
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(table_row)
    writer.writerow((table_row | change).values())
    path.write_text(text.getvalue(), encoding="utf-8", newline="")
    complaint = ""
    try:
        rows = read_table(path)
    except TableError as error:
        complaint = str(error)
    assert complaint.startswith(str(path)) if complaint else len(rows) == 1
