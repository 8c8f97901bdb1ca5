"""Schedules worked out by hand (`schedules/`): the whole log of each."""

from pathlib import Path

import pytest

from tests.schedules import cases_of, check_case

CASES = cases_of(Path(__file__).with_name("schedules"))


@pytest.mark.parametrize("name", CASES)
def test_a_schedule_is_the_one_worked_out_by_hand(name: str, tmp_path: Path) -> None:
    check_case(CASES[name], tmp_path)
