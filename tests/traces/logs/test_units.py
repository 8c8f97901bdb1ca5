"""The unit of times: stated, named, fixed, proved, assumed with a warning, or refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from itertime.errors import UserError
from traces import Job
from traces.logs.units import UNITS, StatedUnits, seconds, unit_of_name


def times(jobs: list[Job]) -> list[tuple[float, float | None]]:
    return [(job.submit_s, job.duration_s) for job in jobs]


@given(st.integers(0, 10**15), st.sampled_from(["s", "ms", "us"]))
def test_seconds_are_correctly_rounded(value: int, unit: str) -> None:
    per_second = {"s": 1, "ms": 1000, "us": 1_000_000}[unit]
    assert seconds(float(value), unit) == value / per_second


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("fortnight", "unknown unit in --time-unit 'fortnight'; known: h, min, ms, s, us"),
        ("", "unknown unit in --time-unit"),
        ("ms,s", "--time-unit: the unit of all times is given twice; keep one"),
        ("submit_s=s,submit_s=ms", "--time-unit: submit_s is given twice"),
        ("gpus=s", "unknown time in --time-unit 'gpus'"),
        ("submit_s=", "unknown unit in --time-unit ''"),
    ],
)
def test_mistakes_in_the_option(text: str, says: str) -> None:
    with pytest.raises(UserError) as caught:
        StatedUnits.parse(text)
    assert says in str(caught.value)


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
