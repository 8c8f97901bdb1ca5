"""Tables are written a block of records at a time: the block must not show in the text."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from clustersim.cluster import Placement
from clustersim.records import Columns, Exact, by_field
from clustersim.rundir import guarded_text
from clustersim.rundir.csv_out import csv_text, lines_of, table_of


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
