"""docs/validation.md repeats figures of other pages: each is found on the page that its row names."""

from __future__ import annotations

import re

import pytest

from tests.places import ROOT

PAGE = ROOT / "docs" / "validation.md"
VERDICTS = {"equal", "near", "off", "no", "open"}
FIGURE = re.compile(r"[−+×$-]?\d[\d,]*\.?\d*")
CELLS = 5


def rows() -> list[list[str]]:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    found = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    return [row for row in found if len(row) == CELLS and row[0] != "published"]


ROWS = rows()


def figures(text: str) -> list[str]:
    return [each.strip("+-−×$,.") for each in FIGURE.findall(text)]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:40])
def test_a_row_is_true_to_its_page(row: list[str]) -> None:
    published, _, here, verdict, link = row
    assert verdict in VERDICTS
    target = re.search(r"\(([^)#]+)", link)
    assert target
    known = set(figures((PAGE.parent / target.group(1)).read_text(encoding="utf-8")))
    missing = [each for each in figures(published) + figures(here) if each not in known]
    assert not missing


def test_what_is_not_reproduced_is_listed() -> None:
    counts = {verdict: sum(row[3] == verdict for row in ROWS) for verdict in VERDICTS}
    assert len(ROWS) >= 60
    assert counts["no"] >= 10
