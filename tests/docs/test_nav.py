"""Every page of the repository is in the navigation of the site, and no other; the pages of the reference can
be written.
"""

from __future__ import annotations

import re

import pytest

from docs.website.reference import REFERENCE
from tests.places import ROOT


def test_every_page_is_in_the_navigation() -> None:
    nav = (
        (ROOT / "mkdocs.yml")
        .read_text(encoding="utf-8")
        .partition("\nnav:\n")[2]
        .partition("\nnot_in_nav")[0]
    )
    named = re.findall(r"(\S+\.md)$", nav, re.MULTILINE)
    pages = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    pages -= {name for name in pages if name.endswith(".template.md")}
    pages |= {f"experiments/{path.name}" for path in (ROOT / "experiments").glob("*.md")}
    assert sorted(named) == sorted(pages | set(REFERENCE) | {"CHANGELOG.md", "CONTRIBUTING.md"})


@pytest.mark.parametrize("place", REFERENCE)
def test_a_page_of_the_reference_is_written(place: str) -> None:
    assert REFERENCE[place]().startswith("# ")
