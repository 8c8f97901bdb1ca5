"""Rows of measured runs, and what each is taken for, or why it is skipped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.itertime.calibration.golden_rows import FILES, becomes, cases


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=case["name"]) for file in FILES for case in cases(file)]
)
def test_a_row_is_taken_for_this(case: dict[str, Any], tmp_path: Path) -> None:
    assert becomes(case, tmp_path) == case["becomes"]
