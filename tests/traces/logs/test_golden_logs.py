"""Logs by hand, of every format and layout, and what each becomes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.traces.logs.golden_logs import FILES, cases, result


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=case["name"]) for file in FILES for case in cases(file)]
)
def test_a_log_becomes_these_jobs(case: dict[str, Any], tmp_path: Path) -> None:
    assert result(case, tmp_path) == case["becomes"]
