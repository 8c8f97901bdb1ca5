"""Errors that the user can fix: each states what is wrong, where, and what to do.

They carry the exit code of the command-line contract, so one `except` in a command's `main` serves all
packages. `shown` and `quoted` put a user's value into a message, however large the value is;
`readable` cuts what a message repeats without them, and `printable` makes a text safe for a terminal.
"""

from __future__ import annotations

import difflib
import re
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

_LONGEST = 60  # characters of a value in a message
_LARGEST_BITS = 200  # of an integer that is written out
_LONG_WORD = re.compile(r"(?<!\S)\S{1000,}")
_LONGEST_MESSAGE, _END = 10_000, 1000  # characters; of a longer one, those that stay at either end
_MOST_NAMES, _NEAREST = 40, 5  # of a catalogue that a message lists; of a longer one, those that it names
_LISTED_BY = {
    "model": "itertime models",
    "system": "itertime systems",
    "policy": "clustersim policies",
}
"""The command that lists all names of a kind."""


class _Bounded(reprlib.Repr):
    """Looks at the first few parts of a value only: lists that share their parts can stand for more values
    than memory holds, and Python refuses to write out integers of thousands of digits.
    """

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel, self.maxstring, self.maxother, self.maxlong = 3, _LONGEST, _LONGEST, _LONGEST
        self.maxdict = self.maxlist = self.maxtuple = self.maxset = self.maxfrozenset = 6

    def repr_int(self, x: int, level: int) -> str:
        bits = x.bit_length()
        return repr(x) if bits <= _LARGEST_BITS else f"<a whole number of {bits:,} bits>"


_BOUNDED = _Bounded()


def quoted(value: object) -> str:
    """A user's value as Python writes it, for a message; of a long one the beginning.

    >>> quoted("abc"), quoted([1, "x"])
    ("'abc'", "[1, 'x']")
    """
    if isinstance(value, str):
        return repr(_beginning(value))
    text = _BOUNDED.repr(value)
    return _beginning(text)


def shown(value: object) -> str:
    """A user's value for a message: text without quotes if it is short and printable, else as `quoted`."""
    text = _beginning(value if isinstance(value, str) else _BOUNDED.repr(value))
    return text if text.isprintable() else repr(text)


def _beginning(text: str) -> str:
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "..."


def readable(text: str) -> str:
    """A message without values that are too long to read; any other text stays as it is.

    Of a word of 1,000 characters or more, as a path or a number may be, the beginning stays. Of a message of
    more than 10,000 both ends stay: the first says what is wrong, the last what to do.
    """
    text = _LONG_WORD.sub(lambda word: _beginning(word[0]), text)
    return text if len(text) <= _LONGEST_MESSAGE else f"{text[:_END]} ... {text[-_END:]}"


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

    Commands print the message and exit with `exit_code`. The message as a text is `readable`, whatever values
    it repeats.
    """

    exit_code = 2

    def __str__(self) -> str:
        return readable(super().__str__())


class UnknownName(UserError):
    """A name that is not in a catalogue; the message lists close matches, else the known names
    (`known_names`).

    `synonyms`: words that people use for names of the catalogue, in lower case, with these names.
    """

    def __init__(
        self,
        kind: str,
        name: str,
        known: Iterable[str],
        synonyms: Mapping[str, Sequence[str]] = MappingProxyType({}),
    ):
        names, name = sorted(known), str(name)
        close = _close_names(name[:_LONGEST], names, synonyms)
        hint = f"did you mean {' or '.join(close)}?" if close else known_names(name, names, kind)
        super().__init__(f"unknown {kind} {quoted(name)}; {hint}")
        self.kind, self.name, self.known = kind, name, names

    def __reduce__(self) -> tuple[type[UnknownName], tuple[str, str, list[str]]]:
        """Pickle the arguments: by default an exception is pickled with its message alone."""
        return type(self), (self.kind, self.name, self.known)


def known_names(name: str, names: Sequence[str], kind: str = "") -> str:
    """The names of a catalogue, for a message on one that is none of them; of a long catalogue those that are
    written most alike, their number, and what lists all names of this kind.

    >>> known_names("vgg", ("bert", "gpt"))
    'known: bert, gpt'
    """
    if len(names) <= _MOST_NAMES:
        return f"known: {', '.join(names)}"
    nearest = sorted(names, key=lambda known: -_likeness(name, known))[:_NEAREST]
    listing = f"; all are listed by {_LISTED_BY[kind]}" if kind in _LISTED_BY else ""
    return f"known: {', '.join(nearest)} and {len(names) - _NEAREST} more{listing}"


def _likeness(name: str, known: str) -> float:
    return difflib.SequenceMatcher(None, name[:_LONGEST].lower(), known.lower()).ratio()


def _close_names(name: str, names: Sequence[str], synonyms: Mapping[str, Sequence[str]]) -> Sequence[str]:
    """The names that a user may have meant: those of a synonym, those that differ in case alone, or those
    that are written alike.
    """
    lower = name.lower()
    if lower in synonyms:
        return [known for known in synonyms[lower] if known in names]
    same = [known for known in names if known.lower() == lower]
    return same or difflib.get_close_matches(name, names, n=3, cutoff=0.5)


class TableError(UserError):
    """A row of a user's table is wrong: `file:line: column=value: what is wrong; how to fix it`."""

    exit_code = 3
