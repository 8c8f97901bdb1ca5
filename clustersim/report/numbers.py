"""Numbers and lists as text: durations, differences, counts, names."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, log10

__all__ = [
    "MOST_PERCENT",
    "counted",
    "decimals",
    "difference",
    "duration",
    "listed",
    "plural",
    "range_of",
    "time_unit",
]

_LEAST = 1e-6
"""Times (in seconds) and costs below this are what rounding leaves of zero: tables state microseconds."""
MOST_PERCENT = 1000.0
_MINUS = "−"
_MOST_NAMED = 6
_TIME_UNITS = (("d", 86400.0, 3 * 86400.0), ("h", 3600.0, 7200.0), ("min", 60.0, 120.0))


def time_unit(seconds: float) -> tuple[str, float]:
    """The unit that suits a time, and its seconds."""
    for unit, factor, least_s in _TIME_UNITS:
        if seconds >= least_s:
            return unit, factor
    return "s", 1.0


def decimals(smallest: float) -> int:
    """The decimals that give the smallest number of a column three digits, at most two."""
    return max(0, min(2, 2 - floor(log10(smallest)))) if smallest > 0 else 0


def difference(kind: str, value: float, base: float) -> str:
    """`value` minus `base` as text: percent for times, ratios and money, percentage points for shares, a
    number for counts and loads. A dash where `base` is less than records can state. A time (in seconds) of
    more than `MOST_PERCENT` above `base` is stated as a time: percentages of what is next to zero mean
    nothing.
    """
    if kind == "count":
        return _signed(value - base, 0)
    if kind == "share":
        return _signed(100 * (value - base), 1) + " pp"
    if kind == "load":
        return _signed(value - base, 2)
    if abs(base) < _LEAST:
        return "" if abs(value) < _LEAST else "–"
    percent = 100 * (value / base - 1)
    if kind == "time" and percent > MOST_PERCENT:
        return "+" + duration(value - base)
    return _signed(percent, 1) + " %"


def _signed(value: float, decimals: int) -> str:
    text = f"{abs(value):,.{decimals}f}"
    if not text.strip("0."):
        return "±" + text
    return (_MINUS if value < 0 else "+") + text


def duration(seconds: float | None, scale_s: float = 0.0) -> str:
    """A time with three digits, in the unit that suits the longer of it and the time `scale_s` it.

    >>> duration(7776.0), duration(3600.0), duration(3600.0, scale_s=7776.0)
    ('2.16 h', '60.0 min', '1.00 h')
    """
    if seconds is None:
        return "–"
    unit, factor = time_unit(max(seconds, scale_s))
    return f"{seconds / factor:,.{decimals(seconds / factor)}f} {unit}"


def range_of(values: Sequence[float]) -> str:
    """The least and the greatest of some numbers, with two digits after the point; one where these agree.

    >>> range_of([0.5, 1.25]), range_of([1.0, 1.001])
    ('0.50 to 1.25', '1.00')
    """
    least_text, greatest_text = (f"{limit(values):.2f}" for limit in (min, max))
    return least_text if least_text == greatest_text else f"{least_text} to {greatest_text}"


def counted(count: int, noun: str) -> str:
    """A number of things.

    >>> counted(1, "job"), counted(10_000, "job")
    ('1 job', '10,000 jobs')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def listed(names: Sequence[str]) -> str:
    """`a`, `a and b`, or `a, b and c`. Of more than seven names, six and the number of the others.

    >>> listed("abc"), listed("abcdefghij")
    ('a, b and c', 'a, b, c, d, e, f and 4 others')
    """
    if len(names) > _MOST_NAMED + 1:
        names = [*names[:_MOST_NAMED], f"{len(names) - _MOST_NAMED} others"]
    *earlier_names, last_name = names
    return f"{', '.join(earlier_names)} and {last_name}" if earlier_names else last_name


def plural(names: Sequence[str], singular: str, several: str) -> str:
    """Names, and a verb that fits their number."""
    return f"{listed(names)} {singular if len(names) == 1 else several}"
