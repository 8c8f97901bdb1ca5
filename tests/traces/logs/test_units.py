"""The unit of times: stated, named, fixed, proved, assumed with a warning, or refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from itertime.errors import TableError, UserError
from tests.traces.importing import import_log
from traces import Job
from traces.logs.units import UNITS, StatedUnits, seconds, unit_of_name

NAMED = "submit_s=at,gpus=n,duration_s=took"
MUST = "if it is another one, say so: --time-unit s, ms, us, min, h"


def imported(
    folder: Path, text: str, columns: str = NAMED, **options: Any
) -> tuple[list[Job], dict[str, Any]]:
    (folder / "log.csv").write_text(text)
    return import_log(folder / "log.csv", columns=columns, **options)


def times(jobs: list[Job]) -> list[tuple[float, float | None]]:
    return [(job.submit_s, job.duration_s) for job in jobs]


@pytest.mark.parametrize(
    ("unit", "factor"), [("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("min", 60.0), ("h", 3600.0)]
)
def test_a_stated_unit_holds_for_all_times(tmp_path: Path, unit: str, factor: float) -> None:
    text = "at,n,took,due,limit,wait\n0,1,90,180,120,30\n60,2,90,,,\n"
    columns = f"{NAMED},deadline_s=due,estimate_s=limit,wait_s=wait"
    jobs, report = imported(tmp_path, text, columns, time_unit=unit)
    assert jobs[0].duration_s == pytest.approx(90 * factor)
    assert jobs[0].deadline_s == pytest.approx(180 * factor)
    assert jobs[0].estimate_s == pytest.approx(120 * factor)
    assert jobs[0].logged_start_s == pytest.approx(30 * factor)
    assert jobs[1].submit_s == pytest.approx(60 * factor)
    assert report["times"] == [f"at, took, due, limit, wait in {unit} (--time-unit)"]
    assert not [text for text in report["warnings"] if "nothing in the log" in text]


@given(st.integers(0, 10**15), st.sampled_from(["s", "ms", "us"]))
def test_seconds_are_correctly_rounded(value: int, unit: str) -> None:
    per_second = {"s": 1, "ms": 1000, "us": 1_000_000}[unit]
    assert seconds(float(value), unit) == value / per_second


def test_units_may_differ_by_field(tmp_path: Path) -> None:
    text = "at,n,took\n0,1,90\n60000000,2,5400\n"
    jobs, report = imported(tmp_path, text, time_unit="submit_s=us,duration_s=s")
    assert times(jobs) == [(0.0, 90.0), (60.0, 5400.0)]
    assert report["times"] == ["at in us (--time-unit)", "took in s (--time-unit)"]
    both, _ = imported(tmp_path, text, time_unit="min,submit_s=us")
    assert times(both) == [(0.0, 5400.0), (60.0, 324_000.0)]


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


def test_the_name_of_a_column_beats_the_unit_of_all(tmp_path: Path) -> None:
    text = "at,n,took_ms\n0,1,90000\n1,2,5400000\n"
    jobs, report = imported(tmp_path, text, NAMED.replace("took", "took_ms"), time_unit="h")
    assert times(jobs) == [(0.0, 90.0), (3600.0, 5400.0)]
    assert report["times"] == ["at in h (--time-unit)", "took_ms in ms (by the column's name)"]


@pytest.mark.parametrize(("unit", "per_second"), [("s", 1), ("ms", 1000), ("us", 1_000_000)])
def test_numbers_that_count_from_1970_prove_the_unit_of_moments(
    tmp_path: Path, unit: str, per_second: int
) -> None:
    since = 1_700_000_000 * per_second
    text = f"at,n,took\n{since},1,{90 * per_second}\n{since + 60 * per_second},2,{5400 * per_second}\n"
    jobs, report = imported(tmp_path, text)
    assert times(jobs) == [(0.0, 90.0), (60.0, 5400.0)]
    assert report["times"] == [f"at in {unit} (they count from 1970)", f"took in {unit} (assumed)"]
    assert report["warnings"] == [f"took: nothing in the log states the unit, read as {unit}; {MUST}"]


@pytest.mark.parametrize(("unit", "number"), [("s", 3600), ("ms", 3_600_000), ("min", 60), ("h", 1)])
def test_start_and_end_prove_the_unit_of_run_times(tmp_path: Path, unit: str, number: int) -> None:
    rows = "".join(
        f"2024-05-0{d} 00:00,2024-05-0{d} 01:00,2024-05-0{d} 02:00,1,{number}\n" for d in (1, 2, 3)
    )
    columns = f"{NAMED},start_s=from,end_s=to"
    jobs, report = imported(tmp_path, "at,from,to,n,took\n" + rows, columns)
    assert [(job.duration_s, (job.logged_start_s or 0) - job.submit_s) for job in jobs] == [
        (3600.0, 3600.0)
    ] * 3
    assert f"took in {unit} (they agree with end - start)" in report["times"]
    assert report["warnings"] == []


def test_run_times_that_disagree_with_start_and_end_prove_nothing(tmp_path: Path) -> None:
    rows = "2024-05-01 00:00,2024-05-01 01:00,2024-05-01 02:00,1,77\n" * 2
    report = imported(tmp_path, "at,from,to,n,took\n" + rows, f"{NAMED},start_s=from,end_s=to")[1]
    assert report["warnings"] == [f"took: nothing in the log states the unit, read as s; {MUST}"]


def test_a_unit_that_nothing_states_is_a_second_with_a_warning(tmp_path: Path) -> None:
    jobs, report = imported(tmp_path, "at,n,took\n0,1,90\n60,2,5400\n")
    assert times(jobs) == [(0.0, 90.0), (60.0, 5400.0)]
    assert report["warnings"] == [f"at, took: nothing in the log states the unit, read as s; {MUST}"]


def test_dates_and_written_out_run_times_need_no_unit(tmp_path: Path) -> None:
    text = "at,n,took\n2024-05-01,1,1:00:00\n2024-05-02,2,0:30:00\n"
    jobs, report = imported(tmp_path, text)
    assert times(jobs) == [(0.0, 3600.0), (86400.0, 1800.0)]
    assert (report["times"], report["warnings"]) == (["at: dates", "took: written out"], [])


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ("0,1,2868294000\n724670000,8,4472936000\n",
         "as s they give submissions over 8.39e+03 days and a median run time of 3.67e+09 s, which is "
         "implausible; state the unit: --time-unit ms (submissions over 8.39 days and a median run time of "
         "3.67e+06 s)"),
        ("0,1,0.1\n700,8,0.2\n",
         "as s they give submissions over 0.0081 days and a median run time of 0.15 s"),
        ("0,1,1e300\n5,8,1e300\n", "which is implausible; state the unit: --time-unit s, ms, us, min, h"),
    ],
    ids=["too long", "too short", "none fits"],
)  # fmt: skip
def test_an_implausible_log_is_refused_with_the_units_that_are_not(
    tmp_path: Path, rows: str, says: str
) -> None:
    with pytest.raises(TableError) as caught:
        imported(tmp_path, "at,n,took\n" + rows)
    assert says in str(caught.value)


def test_a_stated_unit_is_taken_even_if_implausible_with_a_warning(tmp_path: Path) -> None:
    jobs, report = imported(tmp_path, "at,n,took\n0,1,0.1\n700,8,0.2\n", time_unit="s")
    assert times(jobs) == [(0.0, 0.1), (700.0, 0.2)]
    assert "a median run time of 0.15 s are implausible; is the unit right?" in report["warnings"][0]


def test_every_unit_is_a_fraction_of_seconds() -> None:
    assert {unit: seconds(1.0, unit) for unit in UNITS} == {
        "s": 1,
        "ms": 1e-3,
        "us": 1e-6,
        "min": 60,
        "h": 3600,
    }
