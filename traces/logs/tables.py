"""Logs that are tables: which column states which field, and their rows as jobs."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import tzinfo
from itertools import islice
from math import isfinite
from typing import Any, NamedTuple

import numpy as np

from itertime.errors import TableError, UnknownName
from itertime.io import Table, TextLayout, check_repeated, separator_hint, shown

from .cells import LogColumn, MixedColumnError, Moments, moment, of_dates, parser, time_zone
from .log import BESIDE, Log, LogRows, ReadOptions
from .log_format import LogFormat
from .source import Head, LogSource
from .units import (
    TIME_FIELDS,
    UNITS,
    Rule,
    StatedUnits,
    TimeColumn,
    TimesRead,
    UnitEvidence,
    decide,
    in_words,
    plausible,
)

__all__ = ["Cells", "TableOfJobs", "read_table", "table_format", "unknown_column"]

_MOST_NAMED, _MOST_COMPARED = 50, 10_000  # columns of a log that an error lists, and looks for similar names

Cells = Mapping[str, LogColumn]
"""Field of `LogRows.add` -> the column that states it."""


@dataclass(frozen=True)
class TableOfJobs:
    """What a format says of its tables.

    `unit`: of its times and why, or a rule that finds it. `derive` changes what the cells of a row say into
    what `LogRows.add` takes; it raises ValueError (reason, kind of reason) for a row without a job.
    `only_run_times`: see `Log`. `host`: cells that are read only where the user wants to keep cores and host
    memory, and what the log means by them.
    """

    format: str
    cells: Cells
    assumptions: Collection[str]
    unit: tuple[str, str] | Rule | None = None
    warnings: tuple[str, ...] = ()
    derive: Callable[[dict[str, Any]], None] | None = None
    only_run_times: bool = False
    host: tuple[Cells, str] | None = None


def table_format(title: str, matches: Callable[[Head], bool], form: TableOfJobs) -> LogFormat:
    """The format of tables that all have the same form."""

    def read(source: LogSource, options: ReadOptions) -> Log:
        return read_table(source, form, options)

    return LogFormat(form.format, title, matches, read)


def read_table(
    source: LogSource, form: TableOfJobs, options: ReadOptions, layout: TextLayout | None = None
) -> Log:
    """Read a log of the given form.

    Raises TableError if there is no usable row, if a column is missing or mixes numbers and dates, or if the
    unit of times stays unknown and seconds are implausible; and what `open_table` raises.
    """
    columns = layout.names if layout and layout.names else source.head.columns
    form = _with_tenant(source, form, options.tenant, columns)
    if options.host:
        form = _with_host(form)
    if layout is None or layout.header or layout.names:
        form = _without_absent(form, columns)
    zone = time_zone(options.time_zone)
    times = _times(source, form, StatedUnits.parse(options.time_unit), layout)
    rows = LogRows(source.path)
    with source.table(layout) as table:
        places = _places(table, form, times, zone)
        for line, row in table.rows:
            _add(rows, table, line, row, places, form.derive)
    columns_in_use = dict.fromkeys(cell.column for cell in form.cells.values())
    moments = {place.field: place.parse for place in places if isinstance(place.parse, Moments)}
    dates = [field for field, parsed in moments.items() if parsed.are_dates]
    return rows.finish(
        Log(
            format=form.format,
            columns=tuple(columns_in_use),
            states_deadlines="deadline_s" in form.cells or "deadline_after_s" in form.cells,
            assumptions=(*form.assumptions, *of_dates(moments.values(), options.time_zone)),
            times=times.notes(dates),
            warnings=(*form.warnings, *times.warnings, *_doubts(rows)),
            only_run_times=form.only_run_times,
        )
    )


def _doubts(rows: LogRows) -> list[str]:
    """A warning if the unit of times, though stated or fixed, gives an implausible log."""
    if not rows.jobs:
        return []
    submits = array("d", rows.jobs.column("submit_s"))
    durations = array("d", (run_s for run_s in rows.jobs.column("duration_s") if run_s is not None))
    span_s, run_s = max(submits) - min(submits), float(np.median(durations)) if durations else None
    if plausible(span_s, run_s):
        return []
    return [f"{in_words(span_s, run_s)} are implausible; is the unit right? --time-unit {', '.join(UNITS)}"]


def unknown_column(column: str, columns: Collection[str]) -> str:
    """What to say of a column that a log does not have."""
    names = [shown(name) for name in islice(columns, _MOST_COMPARED)]
    hint = str(UnknownName("column", column, names)).partition("; known: ")[0]
    remainder = f" and {len(columns) - _MOST_NAMED} more" if len(columns) > _MOST_NAMED else ""
    separated = separator_hint(list(columns))
    listed = f"{', '.join(names[:_MOST_NAMED])}{remainder}"
    return f"{hint}; its columns are {listed}" + (f"; {separated}" if separated else "")


def _with_tenant(
    source: LogSource, form: TableOfJobs, column: str | None, columns: Collection[str]
) -> TableOfJobs:
    if column is None:
        return form
    cells = {**form.cells, "tenant": LogColumn(column, optional=True)}
    if column not in columns:
        raise TableError(f"{source.path}:1: {unknown_column(column, columns)}")
    notes = [*form.assumptions, f"the tenant is {column}, as the user says"]
    return replace(form, cells=cells, assumptions=notes)


def _with_host(form: TableOfJobs) -> TableOfJobs:
    """The form with the cells of cores and host memory."""
    if form.host is None:
        return form
    cells, note = form.host
    return replace(form, cells={**form.cells, **cells}, assumptions=[*form.assumptions, note])


def _without_absent(form: TableOfJobs, columns: Collection[str]) -> TableOfJobs:
    """The form without the optional columns that a log does not have."""
    absent = {field for field, cell in form.cells.items() if cell.optional and cell.column not in columns}
    if not absent:
        return form
    names = dict.fromkeys(form.cells[field].column for field in sorted(absent))
    notes = [*form.assumptions, f"the log has no column {', '.join(names)}"]
    return replace(
        form, cells={f: cell for f, cell in form.cells.items() if f not in absent}, assumptions=notes
    )


class _Place(NamedTuple):
    """A field's column in a table: its index, the parser and the rules of its cells, the indices of the
    columns that are read instead of an empty cell.
    """

    field: str
    at: int
    parse: Callable[[str], Any]
    rules: LogColumn
    instead: list[int]


def _places(table: Table, form: TableOfJobs, times: TimesRead, zone: tzinfo) -> list[_Place]:
    """Find the columns of a form in a table. Raises TableError if one is missing or repeated."""
    columns = [cell.column for cell in form.cells.values()]
    index = {name: i for i, name in reversed(list(enumerate(table.columns)))}
    missing = [name for name in columns if name not in index]
    check_repeated(table.columns, f"{table.path}:1", columns)
    if missing:
        if not table.columns:
            raise TableError(f"{table.path}:1: empty file; the first line names the columns")
        raise TableError(
            f"{table.path}:1: missing column {', '.join(missing)}; is this an {form.format} log?"
        )
    return [
        _Place(
            field=field,
            at=index[cell.column],
            parse=parser(field, cell, times.unit(field), zone),
            rules=cell,
            instead=[index[name] for name in _names(cell.instead) if name in index],
        )
        for field, cell in form.cells.items()
    ]


def _names(columns: str | tuple[str, ...]) -> tuple[str, ...]:
    return (columns,) if isinstance(columns, str) else columns


def _add(
    rows: LogRows,
    table: Table,
    line: int,
    row: list[str],
    places: list[_Place],
    derive: Callable[[dict[str, Any]], None] | None,
) -> None:
    values: dict[str, Any] = {}
    if len(row) != len(table.columns):
        rows.drop(line, "", f"has {len(row)} cells where the header has {len(table.columns)}")
        return
    for field, index, parse, rules, instead in places:
        if instead and _is_empty(row[index], rules):
            index = next((i for i in instead if not _is_empty(row[i], rules)), instead[-1])
        name, cell = table.columns[index], row[index]
        if _is_empty(cell, rules):
            if rules.optional:
                continue
            reason = f": {rules.if_empty}" if rules.if_empty else ""
            rows.drop(line, values.get("job_id", ""), f"{name} is empty{reason}")
            return
        try:
            values[field] = parse(cell)
        except ValueError as error:
            if rules.optional and field in BESIDE:
                rows.leave_out(f"{name}: {error}")
                continue
            reason = f"{name}={shown(cell)}: {error}"
            rows.drop(line, values.get("job_id", ""), reason, f"{name}: {error}")
            return
        except MixedColumnError as error:
            raise TableError(f"{table.path}:{line}: {name}={shown(cell)}: {error}") from None
    if derive is not None:
        try:
            derive(values)
        except ValueError as error:
            rows.drop(line, values.get("job_id", ""), error.args[0], error.args[-1])
            return
    rows.add(line, values)


def _is_empty(cell: str, rules: LogColumn) -> bool:
    return not cell or cell.isspace() or cell in rules.empty


def _times(
    source: LogSource, form: TableOfJobs, stated_units: StatedUnits, layout: TextLayout | None
) -> TimesRead:
    columns = [
        TimeColumn(field, cell.column, cell.unit)
        for field, cell in form.cells.items()
        if field in TIME_FIELDS and cell.parse is None
    ]

    def look(fields: set[str]) -> UnitEvidence:
        evidence = UnitEvidence()
        with source.table(layout) as table:
            places = [
                (field, table.columns.index(cell.column), cell)
                for field, cell in form.cells.items()
                if field in fields and cell.column in table.columns
            ]
            for _, row in table.rows:
                if len(row) == len(table.columns):
                    _note(evidence, {f: row[i] for f, i, cell in places if not _is_empty(row[i], cell)})
        return evidence

    return decide(source.path, columns, stated_units, form.unit, look)


def _note(evidence: UnitEvidence, row: dict[str, str]) -> None:
    for field, cell in row.items():
        evidence.add(field, cell)
    if "start_s" not in row or "end_s" not in row:
        return
    try:
        elapsed = float(row["end_s"]) - float(row["start_s"])
        if isfinite(elapsed):
            evidence.runs.append(elapsed)
    except ValueError:
        try:
            elapsed = moment(row["end_s"]) - moment(row["start_s"])
            evidence.elapsed.append((float(row["duration_s"]), elapsed))
        except (KeyError, ValueError):
            return
