"""docs/runs.md names every setting of a run, and every column of its tables, and no other."""

from __future__ import annotations

import re

import pytest

from clustersim.records import JOB_COLUMNS, EventRecord, PlanRecord, Snapshot
from clustersim.runs import RunConfig
from tests.places import ROOT

PAGE = (ROOT / "docs" / "runs.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("file", "columns"),
    [
        ("jobs.csv", JOB_COLUMNS), ("events.csv", EventRecord._fields), ("usage.csv", Snapshot._fields),
        ("plans.csv", PlanRecord._fields),
    ],
)  # fmt: skip
def test_every_column_is_explained(file: str, columns: tuple[str, ...]) -> None:
    head, _, rest = PAGE.partition(f"\n\n| `{file}` |")[2].partition("\n")
    rows = rest.split("\n\n")[0].splitlines()[1:]
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])]
    shared = re.findall(r"`(\w+)`", head)  # in the head of the table: what every row of it has
    assert sorted([*named, *shared]) == sorted(columns)


def test_every_setting_is_explained() -> None:
    rows = PAGE.partition("| `--set` |")[2].split("\n\n")[0].splitlines()[2:]
    named = [re.split(r"[`.]", row)[1] for row in rows]
    assert set(named) == set(RunConfig.model_fields) - {"params"}
