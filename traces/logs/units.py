"""Units of time in logs: what the user states, what names and formats state, and what the numbers show.

A number of a log is a time only together with its unit. The unit of a column is, in this order: what the user
states for that field, what the column's name ends in (`duration_ms`), what the user states for all, what the
format fixes, and what the numbers prove. Otherwise it is taken to be a second, with a warning; and where
seconds give an implausible log, the import is refused.
"""

from __future__ import annotations

import re
import statistics
from array import array
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from math import isfinite

from itertime.errors import TableError, UnknownName, UserError
from itertime.io import shown

__all__ = [
    "MOMENTS",
    "TIME_FIELDS",
    "UNITS",
    "Rule",
    "StatedUnits",
    "TimeColumn",
    "TimesRead",
    "UnitEvidence",
    "decide",
    "in_words",
    "plausible",
    "seconds",
    "unit_of_name",
]

UNITS: Mapping[str, tuple[int, int]] = {
    "s": (1, 1), "ms": (1, 1000), "us": (1, 1_000_000), "min": (60, 1), "h": (3600, 1),
}  # fmt: skip
"""Unit -> its seconds, as a fraction."""

MOMENTS = (
    "submit_s", "start_s", "end_s", "deadline_s", "logged_start_s", "logged_end_s", "begin_s", "eligible_s",
    "cancel_s",
)  # fmt: skip
SPANS = (
    "duration_s", "step_s", "estimate_s", "wait_s", "deadline_after_s", "time_limit_s", "suspended_s",
)  # fmt: skip
TIME_FIELDS = MOMENTS + SPANS

_SUFFIX = re.compile(
    r"(?:^|[^A-Za-z0-9])(?:(s|secs?|seconds?)|(ms|msecs?|millis|milliseconds?)|(us|usecs?|micros|microseconds?)"
    r"|(mins?|minutes?)|(h|hrs?|hours?))[)\]]?$",
    re.IGNORECASE | re.ASCII,
)
_SUFFIX_UNITS = ("s", "ms", "us", "min", "h")
_EPOCH = (1.0e9, 2.1e9)  # seconds since 1970 of the years 2001 to 2036
_LONGEST_EPOCH_SPAN_S = 5 * 365.25 * 86400  # of numbers that may count from 1970; as milliseconds, 44 hours
_LONGEST_SPAN_S = 20 * 365.25 * 86400  # between the first submission and the last
_RUN_TIMES_S = (1.0, 60 * 86400.0)  # of a plausible median
_AGREE, _MOST = 0.05, 0.9  # run times that agree with end - start, and their share that proves a unit


def seconds(value: float, unit: str) -> float:
    """A number of `unit` in seconds, correctly rounded."""
    times, over = UNITS[unit]
    return value * times / over


@dataclass(frozen=True)
class StatedUnits:
    """The units that the user states: `every` for all times, `fields` for some."""

    every: str | None = None
    fields: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str | None) -> StatedUnits:
        """Parse `ms`, or `submit_s=us,duration_s=s`, or both separated by commas. Raises UserError."""
        unit_of_all, fields = None, dict[str, str]()
        for part in (text or "").split(",") if text is not None else []:
            name, equals, unit = (piece.strip() for piece in part.rpartition("="))
            if unit not in UNITS:
                raise UnknownName("unit in --time-unit", shown(unit), UNITS)
            if equals and name not in TIME_FIELDS:
                raise UnknownName("time in --time-unit", shown(name), TIME_FIELDS)
            if (name in fields) if equals else unit_of_all is not None:
                raise UserError(f"--time-unit: {name or 'the unit of all times'} is given twice; keep one")
            if equals:
                fields[name] = unit
            else:
                unit_of_all = unit
        return cls(unit_of_all, fields)


@dataclass(frozen=True)
class TimeColumn:
    """A column of times: the job's field that it states, and its unit if the format says so for it alone."""

    field: str
    column: str
    unit: str | None = None


@dataclass
class UnitEvidence:
    """The numbers of the columns whose units are not stated, and what else the rows tell.

    `numbers`: field -> its numbers. `runs`: end - start where both are numbers. `elapsed`: (number of the run
    time, seconds from start to end) of rows that state start and end as dates.
    """

    numbers: dict[str, array[float]] = field(default_factory=dict)
    runs: array[float] = field(default_factory=lambda: array("d"))
    elapsed: list[tuple[float, float]] = field(default_factory=list)

    def add(self, name: str, text: str) -> None:
        """Note a cell; text that is no finite number, such as a date, is no evidence."""
        try:
            value = float(text)
        except ValueError:
            return
        if isfinite(value):
            self.numbers.setdefault(name, array("d")).append(value)


@dataclass(frozen=True)
class TimesRead:
    """How times are read: the unit of each field and why, and what the user is warned of."""

    columns: tuple[TimeColumn, ...]
    reasons: Mapping[str, tuple[str, str]]
    warnings: tuple[str, ...] = ()

    def unit(self, field: str) -> str:
        """The unit of a field's numbers."""
        return self.reasons.get(field, ("s", ""))[0]

    def notes(self, dates: Collection[str]) -> tuple[str, ...]:
        """How the columns were read, in words; `dates` are the fields whose cells were dates."""
        grouped: dict[str, list[str]] = {}
        for column in self.columns:
            unit, reason = self.reasons[column.field]
            words = (
                ": dates"
                if column.field in dates
                else f" in {unit} ({reason})"
                if reason
                else ": written out"
            )
            grouped.setdefault(words, []).append(shown(column.column))
        return tuple(", ".join(dict.fromkeys(names)) + words for words, names in grouped.items())


Rule = Callable[[UnitEvidence], tuple[str, str]]
"""A format's own rule: (unit, why). It raises ValueError, which says why, if the numbers prove no unit."""


def decide(
    path: object,
    columns: list[TimeColumn],
    stated_units: StatedUnits,
    fixed: tuple[str, str] | Rule | None,
    look: Callable[[set[str]], UnitEvidence],
) -> TimesRead:
    """The unit of each column of times.

    `fixed` is the unit of the format and why, or a rule that finds it. `look` reads the numbers of the fields
    that are left. Raises TableError if no unit is stated and seconds give an implausible log.
    """
    unit_reasons = {c.field: reason for c in columns if (reason := _stated(c, stated_units))}
    open_fields = {c.field for c in columns} - unit_reasons.keys()
    if open_fields and isinstance(fixed, tuple):
        unit_reasons.update(dict.fromkeys(sorted(open_fields), fixed))
        open_fields = set()
    warnings: list[str] = []
    names = {c.field: c.column for c in columns}
    if open_fields:
        evidence = look({c.field for c in columns})
        dates = {name for name in open_fields if name not in evidence.numbers}
        unit_reasons.update(dict.fromkeys(sorted(dates), ("s", "")))
        open_fields -= dates
        try:
            proved = _proved(evidence, open_fields, fixed)
        except ValueError as error:
            remedy = f"state the unit: --time-unit {' or '.join(UNITS)}"
            raise TableError(f"{path}:1: {error}; {remedy}") from None
        unit_reasons.update(proved)
        open_fields -= proved.keys()
        if open_fields:
            unit = next((u for name, (u, _) in proved.items() if name in MOMENTS), "s")
            _check_plausible(path, evidence, unit_reasons, open_fields, unit, names)
            unit_reasons.update(dict.fromkeys(sorted(open_fields), (unit, "assumed")))
            listed = ", ".join(shown(names[c.field]) for c in columns if c.field in open_fields)
            text = f"{listed}: nothing in the log states the unit, read as {unit}"
            warnings.append(f"{text}; if it is another one, say so: --time-unit {', '.join(UNITS)}")
    return TimesRead(tuple(columns), unit_reasons, tuple(warnings))


def _stated(column: TimeColumn, stated_units: StatedUnits) -> tuple[str, str] | None:
    if unit := stated_units.fields.get(column.field):
        return unit, "--time-unit"
    if column.unit:
        return column.unit, "so the format says"
    if unit := unit_of_name(column.column):
        return unit, "by the column's name"
    return (stated_units.every, "--time-unit") if stated_units.every else None


def unit_of_name(column: str) -> str | None:
    """The unit in which a column's name ends, if any.

    >>> unit_of_name("duration_ms"), unit_of_name("run time (min)"), unit_of_name("gpus")
    ('ms', 'min', None)
    """
    match = _SUFFIX.search(column)
    return _SUFFIX_UNITS[match.lastindex - 1] if match and match.lastindex else None


def _proved(
    evidence: UnitEvidence, open_fields: set[str], fixed: tuple[str, str] | Rule | None
) -> dict[str, tuple[str, str]]:
    """Fields of `open_fields` whose unit the numbers prove."""
    if callable(fixed):
        return dict.fromkeys(sorted(open_fields), fixed(evidence))
    proved: dict[str, tuple[str, str]] = {}
    for name in sorted(open_fields & set(MOMENTS)):
        low, high = min(evidence.numbers[name]), max(evidence.numbers[name])
        for unit in ("s", "ms", "us"):
            since, until = seconds(low, unit), seconds(high, unit)
            if _EPOCH[0] <= since and until <= _EPOCH[1] and until - since <= _LONGEST_EPOCH_SPAN_S:
                proved[name] = (unit, "they count from 1970")
    if "duration_s" in open_fields:
        for unit in UNITS:
            agree = sum(abs(seconds(n, unit) - s) <= 1 + _AGREE * s for n, s in evidence.elapsed if s >= 60)
            if agree and agree >= _MOST * sum(s >= 60 for _, s in evidence.elapsed):
                proved["duration_s"] = (unit, "they agree with end - start")
    return proved


def _check_plausible(
    path: object,
    evidence: UnitEvidence,
    unit_reasons: Mapping[str, tuple[str, str]],
    open_fields: set[str],
    unit: str,
    names: Mapping[str, str],
) -> None:
    """Raise TableError if an assumed unit gives a log that no cluster writes."""

    def reading(guess: str) -> tuple[float | None, float | None]:
        units = {name: guess if name in open_fields else unit_reasons[name][0] for name in evidence.numbers}
        numbers = evidence.numbers
        submits = numbers.get("submit_s") if "submit_s" in open_fields else None
        stating = "duration_s" if "duration_s" in names else "end_s"
        runs = numbers.get("duration_s", evidence.runs) if stating in open_fields else None
        span = seconds(max(submits) - min(submits), units["submit_s"]) if submits else None
        run = seconds(statistics.median(runs), units[stating]) if runs else None
        return span, run

    if plausible(*reading(unit)):
        return
    plausible_units = [
        f"{u} ({in_words(*reading(u))})" for u in UNITS if u != unit and plausible(*reading(u))
    ]
    listed = ", ".join(shown(names[name]) for name in sorted(open_fields))
    problem = f"{listed}: as {unit} they give {in_words(*reading(unit))}, which is implausible"
    remedy = (
        f"--time-unit {' or '.join(plausible_units)}"
        if plausible_units
        else f"--time-unit {', '.join(UNITS)}"
    )
    raise TableError(f"{path}:1: {problem}; state the unit: {remedy}")


def plausible(span_s: float | None, run_s: float | None) -> bool:
    """Whether a cluster may log submissions over `span_s` and a median run time of `run_s` seconds."""
    short = span_s is None or span_s <= _LONGEST_SPAN_S
    return short and (run_s is None or _RUN_TIMES_S[0] <= run_s <= _RUN_TIMES_S[1])


def in_words(span_s: float | None, run_s: float | None) -> str:
    """Span of submissions and median run time, as messages say them."""
    parts = [] if span_s is None else [f"submissions over {span_s / 86400:,.3g} days"]
    parts += [] if run_s is None else [f"a median run time of {run_s:,.3g} s"]
    return " and ".join(parts)
