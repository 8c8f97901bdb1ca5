"""No spreadsheet evaluates text of a trace as a formula, and a round trip changes no text."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from itertime.io import with_guard, without_guard
from tests.itertime.tables import TABLES
from traces import Job, read_trace, write_trace

FORMULA = tuple("=+-@\t\r\n")


@given(st.text())
def test_text_survives_a_round_trip(text: str) -> None:
    assert without_guard(with_guard(text)) == text
    assert not with_guard(text).startswith(FORMULA)


@given(st.text(alphabet="'=+-@\t\r\na"))
def test_hostile_text_survives_a_round_trip(text: str) -> None:
    assert without_guard(with_guard(text)) == text
    assert not with_guard(text).startswith(FORMULA)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_trace_of_hostile_names(tmp_path: Path, ending: str) -> None:
    jobs = [
        Job(text, float(i), tenant=text, state=text, gpus=1, duration_s=1.0)
        for i, text in enumerate(TABLES["hostile texts"])
    ]
    path = tmp_path / f"trace.{ending}"
    write_trace(jobs, path)
    assert read_trace(path) == jobs
    if ending == "csv":
        with path.open(newline="") as file:
            for row in list(csv.reader(file))[1:]:
                assert not row[0].startswith(FORMULA)


def test_foreign_text_without_a_guard_is_read_unchanged(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("job_id,submit_s,gpus,duration_s\n=cmd(),0,1,1\n'tis,0,1,1\n")
    assert [job.job_id for job in read_trace(tmp_path / "t.csv")] == ["=cmd()", "'tis"]
