"""The prose of the project: things are the subject, and lines of pages fit a screen."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PERSONS = re.compile(r"\b(whom|whoever|nobody|somebody)\b", re.IGNORECASE)
LONGEST_LINE = 100


def texts() -> Iterator[Path]:
    for folder in ("itertime", "traces", "clustersim", "policies", "docs", "experiments", "benchmarks"):
        for ending in ("py", "md", "txt", "j2", "js"):
            yield from sorted((ROOT / folder).rglob(f"*.{ending}"))
    yield from sorted(ROOT.glob("*.md"))


def test_jobs_and_nodes_are_not_persons() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in texts()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if PERSONS.search(line)
    ]
    assert not found


@pytest.mark.parametrize("path", [p for p in texts() if p.suffix == ".md"], ids=lambda p: p.name)
def test_pages_have_short_lines(path: Path) -> None:
    """Rows of tables, code and links have no place to break."""
    code = False
    long = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        code ^= line.startswith("```")
        breakable = not (code or line.startswith(("|", "    ")) or "](" in line or "http" in line)
        if breakable and len(line) > LONGEST_LINE:
            long.append(f"{number}: {len(line)}")
    assert not long
