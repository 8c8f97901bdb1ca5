"""docs/peers.md is what its command writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.peers.rows import Row, percent
from experiments.who_else_agrees import PAGE, page

RENEW = "python -m experiments.who_else_agrees ../shared"


@pytest.mark.long  # the tests beside this one hold its figures to limits
def test_the_page_is_up_to_date(shared_dir: Path, shared_reference: Path) -> None:
    assert PAGE.read_text(encoding="utf-8") == page(shared_dir), f"renew the page: {RENEW}"


def test_cells() -> None:
    row = Row("easy", "easy_bf", "t300", "starts", 122, 300, -0.0031, (3, 4))
    assert row.cells() == ("`easy`", "`easy_bf`", "t300", "122 of 300", "-0.3 %", "3 / 4")
    assert [percent(x) for x in (0.0004, -0.0004, 1.501)] == ["0", "0", "+150.1 %"]
