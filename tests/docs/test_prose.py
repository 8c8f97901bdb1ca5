"""README and pages are easy to read: short sentences, short paragraphs, and the answer to the title first."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.places import ROOT

AVERAGE_WORDS, PARAGRAPH_WORDS = 22, 120
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "experiments").glob("*.md")),
]
ITEM = re.compile(r"\s*(?:[-*]|\d+\.)\s+(.*)")
ABBREVIATION = re.compile(r"\b(e\.g|i\.e|et al|etc|vs|cf|Figs?|Eq|Sec|No|pp)\.")
END = re.compile(r"(?<=[.!?:])[)\"”*]*\s+(?=[A-Z0-9(\"“*`])")


def paragraphs(text: str) -> Iterator[str]:
    """The paragraphs and items of lists of a page, without code, tables, headings and pictures."""
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r"^```.*?^```[ ]*$", "\n", text, flags=re.DOTALL | re.MULTILINE)
    for block in re.split(r"\n\s*\n", text):
        lines: list[str] = []
        for line in block.splitlines():
            if line.startswith("    ") and not lines:
                continue
            item = ITEM.match(line)
            if (item or re.match(r"\s*(\||#|!\[)", line)) and lines:
                yield " ".join(lines)
                lines = []
            if item:
                lines.append(item.group(1))
            elif not re.match(r"\s*(\||#|!\[)", line):
                lines.append(line.strip())
        if lines:
            yield " ".join(lines)


def words(text: str) -> list[str]:
    """Code counts as one word, a link as its text."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"`[^`]*`", "code", text))
    return text.split()


def sentences(paragraph: str) -> list[str]:
    return END.split(ABBREVIATION.sub(lambda match: match.group(1), re.sub(r"`[^`]*`", "code", paragraph)))


def test_the_measure() -> None:
    prose = "One two `a b c`. Three e.g. four.\n\n- five\n- six [seven](x.md)"
    text = f"# Title\n\n{prose}\n\n```sh\nnot\n```\n\n    not\n"
    found = list(paragraphs(text))
    assert found == ["One two `a b c`. Three e.g. four.", "five", "six [seven](x.md)"]
    assert [len(words(each)) for each in sentences(found[0])] == [3, 3]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_page_is_easy_to_read(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    found = list(paragraphs(text))
    long = [f"{len(words(each))} words: {each[:60]}" for each in found if len(words(each)) > PARAGRAPH_WORDS]
    assert not long
    counts = [len(words(each)) for one in found for each in sentences(one) if words(each)]
    assert sum(counts) / len(counts) <= AVERAGE_WORDS
    title, _, rest = text.partition("\n")
    assert title.startswith("# ")
    blocks = rest.strip("\n").split("\n\n")
    first = blocks[1] if blocks[0].startswith("![") else blocks[0]  # a picture may stand above
    assert not first.startswith(("#", "|", "-", "    ", "```", "![")), "the first paragraph answers the title"
