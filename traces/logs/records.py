"""Logs that are records, such as JSON objects: records as jobs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

from itertime.errors import TableError, UnknownName
from itertime.io import shown

from .cells import MixedColumnError, Moments, of_dates, text, time_zone
from .log import Log, LogRows, ReadOptions
from .source import LogSource
from .units import StatedUnits

__all__ = ["Entries", "RecordsOfJobs", "Row", "member", "read_records", "text_of"]

Row = dict[str, Any]
"""What `LogRows.add` takes."""

Entries = Iterable[tuple[int, Any]]
"""Entries of a log, each with the line on which it begins."""


@dataclass(frozen=True)
class RecordsOfJobs:
    """What a format says of its records.

    `entries` yields each entry with the line on which it begins. `gather(entries, times)` makes records of
    entries where several are one; else each entry is a record. `values(record, tenant, times)` gives the jobs
    of a record; `times` reads its moments. It raises ValueError (reason, kind of reason) for a record without
    a job. `name` is what a dropped record is called. `tenants` are the names of what a tenant can be made of,
    the default first. `times`: how times are read, in words.
    """

    format: str
    entries: Callable[[LogSource], Entries]
    values: Callable[[Any, str, Moments], Iterable[Row]]
    name: Callable[[Any], str]
    columns: tuple[str, ...]
    tenants: Collection[str]
    assumptions: tuple[str, ...]
    times: tuple[str, ...]
    gather: Callable[[Entries, Moments], Entries] | None = None


def read_records(source: LogSource, form: RecordsOfJobs, options: ReadOptions) -> Log:
    """Read a log of the given form.

    Raises UnknownName for a tenant that the format does not know, TableError if no record is usable or if
    moments are numbers in one record and dates in another; and what `form.entries` raises.
    """
    tenant = options.tenant or next(iter(form.tenants))
    if tenant not in form.tenants:
        raise UnknownName(f"tenant of a {form.format} log", shown(tenant), form.tenants)
    moments = Moments(StatedUnits.parse(options.time_unit).every or "s", time_zone(options.time_zone))
    rows = LogRows(source.path)
    entries = form.entries(source)
    for line, entry in form.gather(entries, moments) if form.gather else entries:
        try:
            for row in form.values(entry, tenant, moments):
                rows.add(line, {name: value for name, value in row.items() if _is_stated(name, value)})
        except ValueError as error:
            rows.drop(line, _name(form, entry), str(error.args[0]), str(error.args[-1]))
        except MixedColumnError as error:
            raise TableError(f"{source.path}:{line}: {error}") from None
    return rows.finish(
        Log(
            format=form.format,
            columns=form.columns,
            states_deadlines=False,
            assumptions=(
                *form.assumptions,
                f"the tenant is {tenant}",
                *of_dates([moments], options.time_zone),
            ),
            times=form.times,
        )
    )


def _is_stated(name: str, value: object) -> bool:
    return value is not None or name == "duration_s"  # None: the job has not ended


def _name(form: RecordsOfJobs, entry: Any) -> str:
    try:
        return text(form.name(entry))
    except (ValueError, KeyError, TypeError, AttributeError):
        return ""


def member(entry: Any, *path: str) -> Any:
    """What an object holds under a path of keys; None if there is no such thing.

    >>> member({"a": {"b": 5}}, "a", "b"), member({"a": []}, "a", "b")
    (5, None)
    """
    for key in path:
        if not isinstance(entry, dict):
            return None
        entry = entry.get(key)
    return entry


def text_of(entry: Any, *path: str) -> str | None:
    """The text that an object holds under a path of keys; None if there is none. ValueError says what is
    wrong with it.
    """
    value = member(entry, *path)
    if value is None or value == "":
        return None
    if isinstance(value, dict | list):
        raise ValueError(f"{path[-1]}: is not text")
    try:
        return text(str(value))
    except ValueError as error:
        raise ValueError(f"{path[-1]}: {error}") from None
