"""Commands of itertime and what they print, whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.itertime.golden_commands import FILES, assert_prints, cases, printed


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=case["name"]) for file in FILES for case in cases(file)]
)
def test_a_command_prints_this(case: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert_prints(printed(case, tmp_path), case["prints"])
