"""Errors that the user can fix: each states what is wrong, where, and what to do.

They carry the exit code of the command-line contract, so one `except` in a command's `main` serves all
packages.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["TableError", "UnknownName", "UserError", "printable"]


def printable(text: str, kept: str = "\n\t") -> str:
    r"""The text as it goes to a terminal: control characters, which users' files may hold, are escaped.

    Those in `kept` stay: line breaks and tabs.

    >>> print(printable("a \x1b[31mred"))
    a \x1b[31mred
    """
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in kept else char.encode("unicode_escape").decode()
        for char in text
    )


class UserError(Exception):
    """An option, a file or a name given by the user cannot be used.

    Commands print the message and exit with `exit_code`.
    """

    exit_code = 2


class UnknownName(UserError):
    """A name that is not in a catalogue; the message lists close matches, else all known names."""

    def __init__(self, kind: str, name: str, known: Iterable[str]):
        names = sorted(known)
        close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(close)}?" if close else f"known: {', '.join(names)}"
        super().__init__(f"unknown {kind} {name!r}; {hint}")
        self.kind, self.name, self.known = kind, name, names

    def __reduce__(self) -> tuple[type[UnknownName], tuple[str, str, list[str]]]:
        """Pickle the arguments: by default an exception is pickled with its message alone."""
        return type(self), (self.kind, self.name, self.known)


class TableError(UserError):
    """A row of a user's table is wrong: `file:line: column=value: what is wrong; how to fix it`."""

    exit_code = 3
