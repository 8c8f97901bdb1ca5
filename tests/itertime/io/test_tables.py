"""Names of columns that appear twice, in tables of any width."""

from __future__ import annotations

import pytest

from itertime.errors import TableError
from itertime.io import check_repeated


@pytest.mark.parametrize(
    ("columns", "among", "says"),
    [
        (["a", "b", "a"], None, "t.csv:1: column a appears twice; keep one"),
        (["a", "", "b", ""], None, "t.csv:1: columns 2 and 4 have no name; name them, or remove the commas"),
        (["a", "b", "b", "c", "c"], {"c"}, "t.csv:1: column c appears twice; keep one"),
        (["\x1b[31m", "\x1b[31m"], None, r"t.csv:1: column '\x1b[31m' appears twice; keep one"),
    ],
)
def test_a_repeated_name_is_refused(columns: list[str], among: set[str] | None, says: str) -> None:
    with pytest.raises(TableError) as caught:
        check_repeated(columns, "t.csv:1", among)
    assert str(caught.value).startswith(says)


def test_names_that_are_not_read_may_repeat() -> None:
    check_repeated(["a", "", ""], "t.csv:1", {"a"})


def test_a_table_may_have_many_columns() -> None:
    """Comparing each name with each other would take hours."""
    check_repeated([str(number) for number in range(1_000_000)], "t.csv:1")
