"""The calendar of planned changes: its meaning, and the mistakes that its errors name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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


@pytest.mark.parametrize(
    ("entries", "text"),
    [
        (7, r"calendar=7: must be a list"),
        ("plan.txt", r"calendar='plan.txt': must be a list"),
        ([3], r"entry 1=3: must state at_s and one of maintenance, add, remove"),
        ([{"at_s": 0}], r"entry 1: states 0 of maintenance, add, remove"),
        ([{"at_s": 0, "add": 1, "remove": 2}], r"states 2 of"),
        ([{"at_s": 0, "ad": 1}], r"entry 1: unknown field 'ad'; did you mean add"),
        ([{"at_s": -1, "add": 1}], r"entry 1: at_s=-1: must be seconds, from 0"),
        ([{"add": 1}], r"at_s=None: must be seconds"),
        ([{"at_s": float("nan"), "add": 1}], r"at_s=nan"),
        ([{"at_s": True, "add": 1}], r"at_s=True"),
        ([{"at_s": 0, "add": "0-9"}], r"add='0-9': the cluster has the nodes 0 to 3; correct it"),
        ([{"at_s": 0, "add": "2-1"}], r"add='2-1': 2-1 runs backwards"),
        ([{"at_s": 0, "add": "9-3"}], r"9-3 runs backwards"),
        ([{"at_s": 0, "add": 4}], r"add=4: the cluster has the nodes 0 to 3"),
        ([{"at_s": 0, "add": "all"}], r"add='all': must name nodes, as in 3, 0-15"),
        ([{"at_s": 0, "add": []}], r"must name nodes"),
        ([{"at_s": 0, "add": 1.5}], r"must name nodes"),
        ([{"at_s": 0, "add": 1, "for_s": 3}], r"for_s=3: belongs to maintenance"),
        ([{"at_s": 0, "maintenance": 1}], r"for_s=None: must be seconds, from 0\.001"),
        ([{"at_s": 0, "maintenance": 1, "for_s": 9, "times": 2}], r"every_s=None: must be seconds"),
        ([{"at_s": 0, "maintenance": 1, "for_s": 9, "every_s": 8, "times": 2}], r"would overlap"),
        ([{"at_s": 0, "maintenance": 1, "for_s": 9, "every_s": 10, "times": 0}], r"times=0: must be a whole"),
        (
            [{"at_s": 1, "add": 1}, {"at_s": 2, "add": 1}],
            r"entry 2: add: node 1 is already in the cluster at",
        ),
        ([{"at_s": 1, "remove": 1}, {"at_s": 2, "remove": 1}], r"node 1 is no longer in the cluster"),
        ([{"at_s": 1, "remove": 1}, {"at_s": 1, "add": 1}], r"node 1 is changed twice at t=1 s"),
        (
            [{"at_s": 1, "maintenance": "0-3", "for_s": 1, "every_s": 1, "times": 100_000}] * 3,
            r"more than 1,000,000 changes",
        ),
        ([{"at_s": 1, "add": 1}] * 100_001, r"has 100,001 entries, more than 100,000"),
    ],
)
def test_mistakes_are_named(entries: Any, text: str) -> None:
    with pytest.raises(UserError, match=text):
        Maintenance.of(entries, 4)
