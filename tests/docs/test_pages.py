"""The prose of the project is easy to read: short sentences, paragraphs and lines, the answer to the title
first, and things as the subject. Every page is in the navigation of the site, and docs/validation.md repeats
the figures of the pages that its rows name.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.website.reference import REFERENCE
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


# Words and lines

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


# Navigation


def test_every_page_is_in_the_navigation() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    nav = text.partition("\nnav:\n")[2].partition("\nnot_in_nav")[0]
    named = re.findall(r"(\S+\.md)$", nav, re.MULTILINE)
    pages = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    pages -= {name for name in pages if name.endswith(".template.md")}
    pages |= {f"experiments/{path.name}" for path in (ROOT / "experiments").glob("*.md")}
    assert sorted(named) == sorted(pages | set(REFERENCE) | {"CHANGELOG.md", "CONTRIBUTING.md"})


@pytest.mark.parametrize("place", REFERENCE)
def test_a_page_of_the_reference_is_written(place: str) -> None:
    assert REFERENCE[place]().startswith("# ")


# Validation

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
