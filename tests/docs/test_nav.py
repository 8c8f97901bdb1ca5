"""Every page of the repository is in the navigation of the site, and no other."""

from __future__ import annotations

import re

from tests.places import ROOT

MADE = {
    f"reference/{name}.md"
    for name in ("commands", "settings", "files", "columns", "policies", "scheduler", "python")
}


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
    assert sorted(named) == sorted(pages | MADE | {"CHANGELOG.md", "CONTRIBUTING.md"})
