"""The text of one cell of a log as a value. ValueError says what is wrong with other text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from difflib import get_close_matches
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from itertime.errors import UserError, quoted
from itertime.io import shown
from traces.native import COLUMNS, MAX_SECONDS, MIN_SECONDS, number, whole

from .units import MOMENTS, TIME_FIELDS, seconds

__all__ = [
    "LogColumn",
    "MixedColumnError",
    "Moments",
    "flag",
    "is_number",
    "moment",
    "of_dates",
    "parser",
    "rate",
    "span",
    "text",
    "time_zone",
]

_CLOCK = re.compile(r"(?:(\d+)(?:-| days?,? ))?(\d+):([0-5]\d):([0-5]\d(?:\.\d+)?)", re.ASCII)
_EPOCH = datetime(1970, 1, 1)
_DATE_LENGTH = len("2024-05-01T13:30:00")
_OTHER_UNIT = "if it is in another unit, say so: --time-unit ms"


@dataclass(frozen=True)
class LogColumn:
    """The column that states a field of a job.

    `parse` reads its cells; None reads them like the native column of the same name, times in `unit`. A cell
    is empty if it is blank or one of `empty`; then the first column of `instead` is read that the log has and
    that is not empty. Rows with an empty cell are dropped unless it is `optional`; `if_empty` says what it
    means that the cell is empty. `pick` takes from a cell the part that is read.
    """

    column: str
    parse: Callable[[str], Any] | None = None
    unit: str | None = None
    optional: bool = False
    empty: tuple[str, ...] = ()
    instead: str | tuple[str, ...] = ()
    pick: Callable[[str], str] | None = None
    if_empty: str = ""


def parser(field: str, cell: LogColumn, unit: str, zone: tzinfo = UTC) -> Callable[[str], Any]:
    """The function that reads the cells of a column, times in `unit`, dates without an offset of `zone`."""
    if cell.parse is not None:
        return cell.parse
    if field in MOMENTS:
        return Moments(unit, zone)
    if field in TIME_FIELDS:
        least_s = 0.0 if field in ("wait_s", "deadline_after_s", "suspended_s") else MIN_SECONDS
        pick = cell.pick
        if pick is not None:
            return lambda whole_cell: span(pick(whole_cell), unit, least_s)
        return lambda whole_cell: span(whole_cell, unit, least_s)
    return COLUMNS["iterations" if field == "steps" else field]


def text(cell: str) -> str:
    """Text that a trace can hold."""
    try:
        if not cell.isascii():
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


_LONGEST_ZONE = 100  # characters; a name of many thousand parts would exhaust the stack of ZoneInfo


def time_zone(name: str | None) -> tzinfo:
    """The zone of dates without an offset, UTC if none is named. Raises UserError for an unknown name."""
    if name is None:
        return UTC
    try:
        if len(name) > _LONGEST_ZONE:
            raise ZoneInfoNotFoundError
        return ZoneInfo(name)
    except (ValueError, OSError, ZoneInfoNotFoundError):
        close = get_close_matches(name[:_LONGEST_ZONE], sorted(available_timezones()), n=3)
        hint = (
            f"did you mean {' or '.join(close)}?"
            if close
            else "names are such as Asia/Shanghai, Europe/Berlin"
        )
        raise UserError(f"unknown name in --time-zone {quoted(name)}; {hint}") from None


def moment(cell: str, unit: str = "s", zone: tzinfo = UTC) -> float:
    """Parse a number of `unit`, or a date (of `zone` without an offset), as seconds; dates since 1970."""
    return _moment(cell, unit, zone)[0]


def _moment(cell: str, unit: str, zone: tzinfo) -> tuple[float, datetime | None]:
    """The seconds of a cell, and the date that it is, as it is written."""
    when: datetime | None = None
    if not _is_dashed(cell) and is_number(cell):
        value = seconds(number(cell), unit)
    else:
        try:
            when = datetime.fromisoformat(cell.strip())
            if when.tzinfo is None and zone is UTC:  # the same, in half of the time
                value = (when - _EPOCH).total_seconds()
            else:
                value = (when if when.tzinfo else when.replace(tzinfo=zone)).timestamp()
        except (ValueError, OverflowError):
            problem = "is neither a number of seconds nor a date like 2024-05-01 13:30:00"
            raise ValueError(problem) from None
    if value < 0:
        raise ValueError("must not be negative; shift the trace so that its clock starts at 0")
    if value > MAX_SECONDS:
        raise ValueError(f"is above {MAX_SECONDS:g} seconds; {_OTHER_UNIT}")
    return value, when


def _is_dashed(cell: str) -> bool:
    """Whether a cell has dashes where a date has them, and no number."""
    return cell[4:5] == "-" == cell[7:8]


class Moments:
    """`moment` for the cells of one column, which must be all numbers or all dates.

    In a mixed column, seconds since any time but 1970 would be misread as moments of that year.
    `lack_offsets`: whether there were dates without an offset from UTC.
    """

    def __init__(self, unit: str = "s", zone: tzinfo = UTC) -> None:
        self._unit, self.zone = unit, zone
        self._first = ""
        self.are_dates = self.lack_offsets = False

    @property
    def is_utc(self) -> bool:
        """Whether dates without an offset are of UTC, where no hour comes twice."""
        return self.zone is UTC

    def later(self, cell: str) -> float | None:
        """The second moment of a date in the hour that a clock shows twice; None for any other cell."""
        if self.zone is UTC or is_number(cell):
            return None
        when = datetime.fromisoformat(cell.strip())
        if when.tzinfo is not None:
            return None
        first, second = (when.replace(tzinfo=self.zone, fold=fold).timestamp() for fold in (0, 1))
        return second if second > first else None

    def __call__(self, cell: str) -> float:
        if self.lack_offsets and self.zone is UTC and len(cell) == _DATE_LENGTH:
            try:
                when = datetime.fromisoformat(cell)  # nine of ten cells of such a column
            except ValueError:
                when = None
            if when is not None and when.tzinfo is None and when >= _EPOCH:
                return (when - _EPOCH).total_seconds()
        value, when = _moment(cell, self._unit, self.zone)
        is_date = when is not None
        self.lack_offsets |= when is not None and when.tzinfo is None
        if not self._first:
            self._first, self.are_dates = cell, is_date
        elif is_date != self.are_dates:
            kinds = ("a number of seconds", "a date")
            kind, kind_before = kinds[is_date], kinds[self.are_dates]
            problem = f"is {kind}; the rows before it have {kind_before}, the first {shown(self._first)}"
            raise MixedColumnError(f"{problem}; write the whole column one way")
        return value


def of_dates(columns: Iterable[Moments], zone: str | None) -> tuple[str, ...]:
    """What is assumed of the dates of these columns, where some have no offset."""
    if not any(column.lack_offsets for column in columns):
        return ()
    if zone is not None:
        return (f"dates without an offset are of {shown(zone)}, as the user says",)
    reason = (
        "where clocks change twice a year, an hour is off for half of it unless --time-zone names the zone"
    )
    return (f"dates without an offset are taken as UTC: {reason}",)


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
    match = _CLOCK.fullmatch(cell.strip())
    if not match and ":" in cell:
        raise ValueError("is neither a number of seconds nor a run time like 3-04:05:06")
    if match:
        days, hours, minutes, fraction_s = (float(part or 0) for part in match.groups())
        value = ((24 * days + hours) * 60 + minutes) * 60 + fraction_s
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
