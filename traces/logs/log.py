"""Job logs of any format: usable rows as `LoggedJob`, the others dropped with line and reason."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from itertime.errors import TableError
from itertime.io import Table, open_table, shown
from traces.native import COLUMNS, MIN_SECONDS, number, whole

__all__ = ["Dropped", "Log", "LoggedJob", "Moments", "moment", "read_log", "span"]

_CLOCK = re.compile(r"(?:(\d+)(?:-| days?,? ))?(\d+):([0-5]\d):([0-5]\d(?:\.\d+)?)", re.ASCII)


@dataclass(frozen=True, slots=True)
class LoggedJob:
    """One row of a log, on the log's own clock (seconds); None where the format does not state a field.

    `part_of_gpu`: the job held a part of a GPU, which counts as a whole GPU.
    """

    line: int
    job_id: str
    submit_s: float
    gpus: int
    duration_s: float
    model: str | None = None
    global_batch: int | None = None
    iterations: float | None = None
    deadline_s: float | None = None
    tenant: str = "default"
    state: str | None = None
    part_of_gpu: bool = False


@dataclass(frozen=True, slots=True)
class Dropped:
    """A row that became no job, and why."""

    line: int
    job_id: str
    reason: str


@dataclass(frozen=True)
class Log:
    """A log as read: `jobs` and `dropped` are its rows, `assumptions` the interpretations of the reader.

    `states_deadlines`: whether the format has deadlines; a job without a deadline is then best effort.
    """

    format: str
    columns: tuple[str, ...]
    states_deadlines: bool
    jobs: tuple[LoggedJob, ...]
    dropped: tuple[Dropped, ...]
    assumptions: tuple[str, ...]


Fields = Mapping[str, tuple[str, Callable[[str], Any]]]
"""Field of `LoggedJob` -> the log's column for it and the parser of its cells."""


def column(name: str, field: str) -> tuple[str, Callable[[str], Any]]:
    """A column of a log, parsed like the column `field` of the native trace."""
    return name, COLUMNS[field]


def flag(text: str) -> bool:
    """Parse a 0/1 column."""
    value = whole(text)
    if value not in (0, 1):
        raise ValueError("must be 0 or 1")
    return bool(value)


def moment(text: str) -> float:
    """Parse seconds, or a date and time (UTC unless it has an offset) as seconds since 1970."""
    if _is_number(text):
        return float(COLUMNS["submit_s"](text))
    try:
        when = datetime.fromisoformat(text.strip())
    except ValueError:
        what = "is neither a number of seconds nor a date like 2024-05-01 13:30:00"
        raise ValueError(what) from None
    seconds = (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
    return float(COLUMNS["submit_s"](repr(seconds)))


class Moments:
    """`moment` for the cells of one column, which must be all seconds or all dates.

    In a mixed column, seconds since any time but 1970 would be misread as moments of that year.
    """

    def __init__(self) -> None:
        self._first = ""
        self._are_dates = False

    def __call__(self, text: str) -> float:
        value, is_date = moment(text), not _is_number(text)
        if not self._first:
            self._first, self._are_dates = text, is_date
        elif is_date != self._are_dates:
            kinds = ("a number of seconds", "a date")
            this, others = kinds[is_date], kinds[self._are_dates]
            what = f"is {this}; the rows before it have {others}, the first {shown(self._first)}"
            raise MixedColumnError(f"{what}; write the whole column one way")
        return value


class MixedColumnError(Exception):
    """A cell is of another kind than those before it in its column, so no row of the log can be trusted."""


def _is_number(text: str) -> bool:
    try:
        number(text)
    except ValueError:
        return False
    return True


def span(text: str) -> float:
    """Parse seconds, or a run time as Slurm (`3-04:05:06`) or Python (`3 days, 4:05:06`) prints it.

    >>> span("3-04:05:06")
    273906.0
    """
    found = _CLOCK.fullmatch(text.strip())
    if not found and ":" in text:
        raise ValueError("is neither a number of seconds nor a run time like 3-04:05:06")
    if found:
        days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
        text = repr(((24 * days + hours) * 60 + minutes) * 60 + seconds)
    return float(COLUMNS["duration_s"](text))


def header(table: Table) -> list[str]:
    """The columns of a log. Raises TableError for an empty file."""
    if not table.columns:
        raise TableError(f"{table.path}:1: empty file; the first line names the columns")
    return table.columns


def read_log(
    path: str | Path,
    name: str,
    fields_of: Callable[[list[str]], Fields],
    assumptions: Collection[str],
    optional: Collection[str] = (),
    delimiter: str = ",",
) -> Log:
    """Read a log of format `name`; `fields_of(header)` maps its columns, `optional` cells may be empty.

    `delimiter` separates the cells, as in `open_table`. Raises TableError if there is no usable row or a
    column mixes seconds and dates, and what `open_table` raises.
    """
    jobs: list[LoggedJob] = []
    dropped: list[Dropped] = []
    with open_table(path, delimiter=delimiter) as table:
        fields = fields_of(header(table))
        places = _places(table, fields, name)
        lines: dict[str, int] = {}
        for line, row in table.rows:
            result = _logged_job(table, line, row, places, optional)
            first = lines.setdefault(result.job_id, line) if isinstance(result, LoggedJob) else line
            if first != line:
                result = Dropped(line, result.job_id, f"the job of line {first} again")
            if isinstance(result, LoggedJob):
                jobs.append(result)
            else:
                dropped.append(result)
    if not jobs:
        first_reason = f"; line {dropped[0].line}: {dropped[0].reason}" if dropped else ""
        raise TableError(f"{path}:1: holds no usable job ({len(dropped)} rows){first_reason}")
    return Log(
        format=name,
        columns=tuple(dict.fromkeys(column for column, _ in fields.values())),
        states_deadlines="deadline_s" in fields,
        jobs=tuple(jobs),
        dropped=tuple(dropped),
        assumptions=tuple(assumptions),
    )


Places = list[tuple[str, int, Callable[[str], Any]]]
"""(field of `LoggedJob`, index of its column, parser of its cells) for every field that a log states."""


def _places(table: Table, fields: Fields, name: str) -> Places:
    """Find the columns of `fields` in a log. Raises TableError if one is missing or repeated."""
    columns = [column for column, _ in fields.values()]
    missing = [column for column in columns if column not in table.columns]
    twice = [column for column in columns if table.columns.count(column) > 1]
    if twice:
        raise TableError(f"{table.path}:1: column {shown(twice[0])} appears twice; keep one")
    if missing:
        raise TableError(f"{table.path}:1: missing column {', '.join(missing)}; is this an {name} log?")
    return [(field, table.columns.index(column), parse) for field, (column, parse) in fields.items()]


def _logged_job(
    table: Table, line: int, row: list[str], places: Places, optional: Collection[str]
) -> LoggedJob | Dropped:
    values: dict[str, Any] = {}
    if len(row) != len(table.columns):
        return Dropped(line, "", f"has {len(row)} cells where the header has {len(table.columns)}")
    for field, place, parse in places:
        cell = row[place]
        name = table.columns[place]
        if not cell or cell.isspace():
            if field in optional:
                continue
            return Dropped(line, str(values.get("job_id", "")), f"{name} is empty")
        try:
            values[field] = parse(cell)
        except ValueError as error:
            return Dropped(line, str(values.get("job_id", "")), f"{name}={shown(cell)}: {error}")
        except MixedColumnError as error:
            raise TableError(f"{table.path}:{line}: {name}={shown(cell)}: {error}") from None
    return _checked(line, values)


def _checked(line: int, values: dict[str, Any]) -> LoggedJob | Dropped:
    if values.pop("best_effort", False):
        values.pop("deadline_s", None)
    values.setdefault("job_id", str(line))  # for a log without job ids
    if "start_s" in values:
        values["duration_s"] = values.pop("end_s") - values.pop("start_s")
        if values["duration_s"] < MIN_SECONDS:
            return Dropped(line, values["job_id"], "does not end after its start")
    job = LoggedJob(line, **values)
    if job.deadline_s is not None and job.deadline_s < job.submit_s:
        why = f"deadline {job.deadline_s:.15g} is before the submission {job.submit_s:.15g}"
        return Dropped(line, job.job_id, why)
    return job


def rate(text: str) -> float:
    """Parse a speed. In throughput tables 0 and NaN mean that a job does not run."""
    if text.strip().lower() == "nan":
        return 0.0
    value = number(text)
    if value < 0:
        raise ValueError("must not be negative")
    return value
