"""docs/peers.md is what its command writes; and AFS as another group wrote it gives the same GPUs."""

from pathlib import Path

import pytest

from experiments.peers import afs
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


def test_every_division_of_afs_is_that_of_another_group(shared_reference: Path) -> None:
    divisions, jobs = afs.rows(shared_reference / "peers")
    assert (divisions.equal, divisions.of) == (150, 150)
    assert (jobs.equal, jobs.of) == (1176, 1176)
