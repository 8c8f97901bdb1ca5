"""What Helios' vcvGl says of its waits: the figures of docs/backtest.md, and that its backtest is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from clustersim.backtest import read_logged
from experiments.helios_waits import followed, table
from itertime.errors import TableError
from tests.places import ROOT
from traces import Job


def test_followed_by_hand() -> None:
    jobs = [
        Job("a", 0.0, user="u", gpus=1, duration_s=400.0),
        Job("b", 430.0, user="u", gpus=1, duration_s=400.0),
        Job("c", 800.0, user="u", gpus=1, duration_s=10.0),
        Job("d", 420.0, user="v", gpus=1, duration_s=10.0),
    ]
    assert followed(jobs, {"a": 400.0, "b": 830.0, "c": 810.0, "d": 430.0}) == (1, 1)


def test_the_table_of_the_page(shared_dir: Path) -> None:
    path = shared_dir / "data" / "clusters" / "helios" / "venus_vcvGl_sept.csv"
    if not path.exists():
        pytest.skip(f"no log at {path}")
    with pytest.raises(TableError, match="states no start of any job"):
        read_logged(path)
    page = (ROOT / "docs" / "backtest.md").read_text()
    for name, mean, p90, before, after in table(str(path)):
        assert f"| {name} | {mean:,.0f} | {p90:,.0f} | {before} | {after} |" in page
