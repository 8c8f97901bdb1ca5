"""Traces of papers by hand: a few rows, and the jobs that they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from clustersim.cli import main
from tests.traces.logs.paper_samples import (
    gavel,
    shockwave,
)

pytestmark = pytest.mark.usefixtures("wide_terminal")


def test_a_log_gives_a_throughput_table_with_which_jobs_of_iterations_run(tmp_path: Path) -> None:
    rows = shockwave("LM (batch size 5)", 1000, 1, 100, 0) + shockwave("LM (batch size 5)", 500, 1, 100, 0)
    rows += shockwave("LM (batch size 5)", 900, 1, 100, 0) + shockwave("A3C", 30, 4, 10, 0)
    log, table, trace = tmp_path / "log", tmp_path / "table.csv", tmp_path / "gavel.csv"
    log.write_text(rows)
    (tmp_path / "jobs").write_text(gavel("LM (batch size 5)", 90, 0, 1) + gavel("A3C", 30, 1, 4))
    assert main(["trace", "import-table", str(log), "-o", str(table)]) == 0
    assert table.read_text().splitlines() == [
        "model,global_batch,gpus,iterations_per_s",
        "A3C,1,4,3.0",
        "LM,5,1,9.0",
    ]
    assert main(["trace", "import", str(tmp_path / "jobs"), "-o", str(trace)]) == 0
    assert main(["trace", "check", str(trace), "--table", str(table)]) == 0
