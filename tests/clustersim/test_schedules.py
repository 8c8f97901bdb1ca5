"""Schedules worked out by hand (`schedules/`): the whole log of each."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.schedules import cases_of, outcome_of

CASES = cases_of(Path(__file__).with_name("schedules"))


@pytest.mark.parametrize("name", CASES)
def test_a_schedule_is_the_one_worked_out_by_hand(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    log, records = outcome_of(case, tmp_path)
    assert log == {str(job): text for job, text in (case["log"] or {}).items()}, case.get("why")
    if "records" in case:
        assert records == {str(job): values for job, values in case["records"].items()}, case.get("why")
