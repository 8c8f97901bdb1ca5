"""The unit of times: stated, named, fixed, proved, assumed with a warning, or refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traces.logs.cells import span
from traces.logs.units import UNITS, seconds, unit_of_name


@given(st.integers(0, 10**15), st.sampled_from(["s", "ms", "us"]))
def test_seconds_are_correctly_rounded(value: int, unit: str) -> None:
    per_second = {"s": 1, "ms": 1000, "us": 1_000_000}[unit]
    assert seconds(float(value), unit) == value / per_second


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("duration_s", "s"), ("run time (min)", "min"), ("Elapsed_ms", "ms"), ("t.hours", "h"), ("us", "us"),
        ("start_microseconds", "us"), ("wait [sec]", "s"), ("walltime_limit_h", "h"),
        ("duration", None), ("gpus", None), ("ElapsedRaw", None), ("status", None), ("items", None),
        ("", None),
    ],
)  # fmt: skip
def test_a_column_may_name_its_unit(name: str, unit: str | None) -> None:
    assert unit_of_name(name) == unit


def test_every_unit_is_a_fraction_of_seconds() -> None:
    assert {unit: seconds(1.0, unit) for unit in UNITS} == {
        "s": 1,
        "ms": 1e-3,
        "us": 1e-6,
        "min": 60,
        "h": 3600,
    }


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("3-04:05:06", 273906.0), ("3 days, 4:05:06", 273906.0), ("1 day 00:00:00.5", 86400.5),
     ("100:00:01", 360001.0), (" 7 ", 7.0), ("1e3", 1000.0)],
)  # fmt: skip
def test_run_times_in_days_hours_and_minutes(text: str, seconds: float) -> None:
    assert span(text) == seconds
