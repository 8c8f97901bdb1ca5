"""A guard for text in CSV files that a spreadsheet would evaluate as a formula (OWASP, CSV Injection).

A cell that begins with = + - @, a tab or a line break, or with apostrophes before one of these, is written
with one more apostrophe in front. Reading removes one, so a round trip changes nothing.
"""

from __future__ import annotations

import re

_FORMULA = re.compile(r"'*[=+\-@\t\r\n]")
_GUARDED = re.compile(r"'+[=+\-@\t\r\n]")


def with_guard(text: str) -> str:
    """The cell to write for a text.

    >>> with_guard("=1+1"), with_guard("'=1+1"), with_guard("'tis")
    ("'=1+1", "''=1+1", "'tis")
    """
    return "'" + text if _FORMULA.match(text) else text


def without_guard(cell: str) -> str:
    """The text that a cell stands for.

    >>> without_guard("'=1+1"), without_guard("=1+1"), without_guard("'tis")
    ('=1+1', '=1+1', "'tis")
    """
    return cell[1:] if _GUARDED.match(cell) else cell
