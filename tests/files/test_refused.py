"""Wrong files of every kind: the error names the file, the place, the value and the remedy."""

from pathlib import Path
from typing import Any

import pytest

from tests.files.refused_files import FILES, cases, error_of


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=f"{file.stem}: {case['name']}") for file in FILES for case in cases(file)],
)
def test_a_wrong_file_is_refused_with_this_error(case: dict[str, Any], tmp_path: Path) -> None:
    assert error_of(case, tmp_path) == case["error"]
