"""The calendar of planned changes: its meaning, and the mistakes that its errors name."""

from __future__ import annotations

from pathlib import Path

import pytest

from clustersim.failures import Maintenance, read_calendar
from clustersim.failures.maintenance import PlannedChange
from itertime.errors import UserError


def test_maintenance_repeats_and_capacity_changes() -> None:
    calendar = Maintenance.of(
        [
            {"at_s": 10, "maintenance": "0-1", "for_s": 5, "every_s": 20, "times": 2},
            {"at_s": 12, "remove": 2},
            {"at_s": 30, "add": [2, "3"]},
        ],
        4,
    )
    assert calendar.absent == {3}
    assert calendar.changes == (
        PlannedChange(10, 0, 1, "maintenance"), PlannedChange(10, 1, 1, "maintenance"),
        PlannedChange(12, 2, 1, "capacity"),
        PlannedChange(15, 0, -1, "maintenance"), PlannedChange(15, 1, -1, "maintenance"),
        PlannedChange(30, 2, -1, "capacity"), PlannedChange(30, 3, -1, "capacity"),
        PlannedChange(30, 0, 1, "maintenance"), PlannedChange(30, 1, 1, "maintenance"),
        PlannedChange(35, 0, -1, "maintenance"), PlannedChange(35, 1, -1, "maintenance"),
    )  # fmt: skip


def test_a_calendar_may_be_a_file(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text("calendar:\n  - {at_s: 5, remove: 0}\n")
    assert Maintenance.of(read_calendar(str(path)), 1).changes == (PlannedChange(5, 0, 1, "capacity"),)
    path.write_text("calender:\n  - {at_s: 5, remove: 0}\n")
    with pytest.raises(UserError, match=r"plan\.yaml: must hold one key, calendar"):
        read_calendar(str(path))
    with pytest.raises(UserError, match=r"must be a list of entries, or a file FILE\.yaml"):
        read_calendar("plan.txt")


def test_more_entries_than_a_manifest_should_hold_are_refused() -> None:
    with pytest.raises(UserError, match=r"has 100,001 entries, more than 100,000"):
        Maintenance.of([{"at_s": 1, "add": 1}] * 100_001, 4)
