"""Tables of plain text for 80 characters, the same on every terminal and in every pipe."""

from __future__ import annotations

from collections.abc import Sequence

from itertime.errors import printable

__all__ = ["bar", "table"]

_LONGEST_KEY = 24


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], keys: int = 1) -> str:
    """Rows under their heads; the first `keys` columns are left-aligned, the others right-aligned.

    The cells of the left columns may be untrusted text, and are cut after 24 characters. The caller keeps the
    other columns narrow.
    """
    cells = [[_cut(cell) if i < keys else cell for i, cell in enumerate(row)] for row in [heads, *rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(heads))]
    lines = [
        "  ".join(
            cell.ljust(width) if i < keys else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in cells
    ]
    return "\n".join(line.rstrip() for line in lines)


def bar(share: float, width: int = 20) -> str:
    """A bar of so many characters for 1, at most that long."""
    return "#" * min(width, round(share * width))


def _cut(text: str) -> str:
    plain = printable(text, kept="")
    return plain if len(plain) <= _LONGEST_KEY else f"{plain[: _LONGEST_KEY - 3]}..."
