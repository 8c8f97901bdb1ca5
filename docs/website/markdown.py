"""Tables, and what Python's Markdown wants otherwise than GitHub's."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

__all__ = ["outside_code", "table", "with_lists"]

_FENCE = re.compile(r"^\s*```")
_ITEM = re.compile(r"^(?:[-*]|\d+\.) ")
_LATER = re.compile(r"^ {2,3}\S")
_CODE = re.compile(r"(`+[^`]*`+)")


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose cells stay on one line and hold no unescaped bar."""
    head, *lines = (f"| {' | '.join(map(_cell, line))} |" for line in (heads, *rows))
    return "\n".join([head, f"|{'---|' * len(heads)}", *lines])


def _cell(text: str) -> str:
    return re.sub(r"(?<!\\)\|", r"\\|", " ".join(str(text).split()))


def with_lists(text: str) -> str:
    """The text as Python's Markdown wants lists: with an empty line before a list that follows a paragraph
    directly, and with later paragraphs of an item indented by four.
    """
    lines: list[str] = []
    code = listed = False
    for line in text.splitlines():
        before = lines[-1] if lines else ""
        inside = before.strip() and not _ITEM.match(before) and not before.startswith((" ", "|", "#", ">"))
        if not code and _ITEM.match(line) and inside:
            lines.append("")
        listed = bool(_ITEM.match(line)) or (listed and (line.startswith(" ") or not line.strip()))
        if listed and not code and not before.strip() and _LATER.match(line):
            line = "  " + line
        code ^= bool(_FENCE.match(line))
        lines.append(line)
    return "\n".join(lines) + "\n"


def outside_code(text: str) -> Iterable[tuple[str, bool]]:
    """The pieces of a page in order, each with whether it is prose: no fenced or indented block, no code."""
    code = indented = False
    before = ""
    for line in text.splitlines(keepends=True):
        fence = bool(_FENCE.match(line))
        indented = line.startswith("    ") and (indented or not before.strip())
        before = line
        if code or fence or indented:
            yield line, False
        else:
            for number, piece in enumerate(_CODE.split(line)):
                yield piece, number % 2 == 0
        code ^= fence
