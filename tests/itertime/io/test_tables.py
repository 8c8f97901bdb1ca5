"""Names of columns that appear twice, in tables of any width."""

from __future__ import annotations

from itertime.io import check_repeated


def test_names_that_are_not_read_may_repeat() -> None:
    check_repeated(["a", "", ""], "t.csv:1", {"a"})


def test_a_table_may_have_many_columns() -> None:
    """Comparing each name with each other would take hours."""
    check_repeated([str(number) for number in range(1_000_000)], "t.csv:1")
