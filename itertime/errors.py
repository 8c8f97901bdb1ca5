"""Errors that are the user's to mend: every one says what is wrong, where, and what to do.

They carry the exit code of the command-line contract, so that one `except` in a command's `main` serves all
packages.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["TableError", "UnknownName", "UserError"]


class UserError(Exception):
    """Something the user wrote (an option, a file, a name) cannot be used.

    Commands print it and exit with `exit_code`.
    """

    exit_code = 2


class UnknownName(UserError):
    """A name that is not in a catalogue; the message lists close matches, else all that is known."""

    def __init__(self, kind: str, name: str, known: Iterable[str]):
        names = sorted(known)
        close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(close)}?" if close else f"known: {', '.join(names)}"
        super().__init__(f"unknown {kind} {name!r}; {hint}")
        self.kind, self.name, self.known = kind, name, names

    def __reduce__(self) -> tuple[type[UnknownName], tuple[str, str, list[str]]]:
        """Exceptions are pickled with their message alone, which would not do to make this one anew."""
        return type(self), (self.kind, self.name, self.known)


class TableError(UserError):
    """A row of a user's table is wrong: `file:line: column=value: what is wrong; how to fix it`."""

    exit_code = 3
