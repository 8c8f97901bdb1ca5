"""The text of one cell of a log as a value. ValueError says what is wrong with other text."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from itertime.io import shown
from traces.native import COLUMNS, MAX_SECONDS, MIN_SECONDS, number, whole

from .units import MOMENTS, TIME_FIELDS, seconds

__all__ = [
    "Cell",
    "MixedColumnError",
    "Moments",
    "flag",
    "is_number",
    "moment",
    "parser",
    "rate",
    "span",
    "text",
]

_CLOCK = re.compile(r"(?:(\d+)(?:-| days?,? ))?(\d+):([0-5]\d):([0-5]\d(?:\.\d+)?)", re.ASCII)
_OTHER_UNIT = "if it is in another unit, say so: --time-unit ms"


@dataclass(frozen=True)
class Cell:
    """The column that states a field of a job.

    `parse` reads its cells; None reads them like the native column of the same name, times in `unit`. A cell
    is empty if it is blank or one of `empty`; then the column `instead` is read, if the log has it. Rows with
    an empty cell are dropped unless it is `optional`. `pick` takes from a cell the part that is read.
    """

    column: str
    parse: Callable[[str], Any] | None = None
    unit: str | None = None
    optional: bool = False
    empty: tuple[str, ...] = ()
    instead: str | None = None
    pick: Callable[[str], str] | None = None


def parser(field: str, cell: Cell, unit: str) -> Callable[[str], Any]:
    """The function that reads the cells of a column, times in `unit`."""
    if cell.parse is not None:
        return cell.parse
    if field in MOMENTS:
        return Moments(unit)
    if field in TIME_FIELDS:
        least_s = 0.0 if field in ("wait_s", "deadline_after_s") else MIN_SECONDS
        pick = cell.pick
        if pick is not None:
            return lambda whole_cell: span(pick(whole_cell), unit, least_s)
        return lambda whole_cell: span(whole_cell, unit, least_s)
    return COLUMNS[field]


def text(cell: str) -> str:
    """Text that a trace can hold."""
    try:
        cell.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError("is not text: half of a character is missing") from None
    return str(COLUMNS["state"](cell))


def flag(cell: str) -> bool:
    """Parse a 0/1 column."""
    value = whole(cell)
    if value not in (0, 1):
        raise ValueError("must be 0 or 1")
    return bool(value)


def moment(cell: str, unit: str = "s") -> float:
    """Parse a number of `unit`, or a date (UTC unless it has an offset), as seconds; dates since 1970."""
    if is_number(cell):
        value = seconds(number(cell), unit)
    else:
        try:
            when = datetime.fromisoformat(cell.strip())
            value = (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            what = "is neither a number of seconds nor a date like 2024-05-01 13:30:00"
            raise ValueError(what) from None
    if value < 0:
        raise ValueError("must not be negative; shift the trace so that its clock starts at 0")
    if value > MAX_SECONDS:
        raise ValueError(f"is above {MAX_SECONDS:g} seconds; {_OTHER_UNIT}")
    return value


class Moments:
    """`moment` for the cells of one column, which must be all numbers or all dates.

    In a mixed column, seconds since any time but 1970 would be misread as moments of that year.
    """

    def __init__(self, unit: str = "s") -> None:
        self._unit = unit
        self._first = ""
        self.are_dates = False

    def __call__(self, cell: str) -> float:
        value, is_date = moment(cell, self._unit), not is_number(cell)
        if not self._first:
            self._first, self.are_dates = cell, is_date
        elif is_date != self.are_dates:
            kinds = ("a number of seconds", "a date")
            this, others = kinds[is_date], kinds[self.are_dates]
            what = f"is {this}; the rows before it have {others}, the first {shown(self._first)}"
            raise MixedColumnError(f"{what}; write the whole column one way")
        return value


class MixedColumnError(Exception):
    """A cell is of another kind than those before it in its column, so no row of the log can be trusted."""


def is_number(cell: str) -> bool:
    """Whether a cell is a finite number."""
    try:
        number(cell)
    except ValueError:
        return False
    return True


def span(cell: str, unit: str = "s", least_s: float = MIN_SECONDS) -> float:
    """Parse a number of `unit`, or a time as Slurm (`3-04:05:06`) or Python (`3 days, 4:05:06`) prints it.

    >>> span("3-04:05:06")
    273906.0
    """
    found = _CLOCK.fullmatch(cell.strip())
    if not found and ":" in cell:
        raise ValueError("is neither a number of seconds nor a run time like 3-04:05:06")
    if found:
        days, hours, minutes, rest = (float(part or 0) for part in found.groups())
        value = ((24 * days + hours) * 60 + minutes) * 60 + rest
    else:
        value = seconds(number(cell), unit)
    if least_s and value < least_s:
        return float(COLUMNS["duration_s"](repr(value)))  # says what is wrong
    if value < 0:
        raise ValueError("must not be negative")
    if not value <= MAX_SECONDS:
        raise ValueError(f"is above {MAX_SECONDS:g} seconds; {_OTHER_UNIT}")
    return value


def rate(cell: str) -> float:
    """Parse a speed. In throughput tables 0 and NaN mean that a job does not run."""
    if cell.strip().lower() == "nan":
        return 0.0
    value = number(cell)
    if value < 0:
        raise ValueError("must not be negative")
    return value
