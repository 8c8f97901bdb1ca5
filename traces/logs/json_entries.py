"""The elements of a JSON list, one by one: memory holds a window of the text and not the whole.

The decoder of the standard library reads the elements, each from the window. Where an element does not end
within it, the window grows and the element is read once more. It grows to twice its size, so an element of
any length is read a few times at most.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from typing import Any

from itertime.errors import TableError
from itertime.io import DAMAGED_GZIP, damaged_gzip

from .source import LogSource

__all__ = ["json_entries"]

_WINDOW_BYTES = 1 << 20
_MOST_CHARACTERS = 200_000_000  # of one element
_SPACE = re.compile(r"\s+")
_LONGEST_SIGN = 2  # of an exponent: a number that ends so near to the end may go on
_LONGEST_ESCAPE = 12  # a pair of \uXXXX: what is wrong so near to the end may only be cut off


def json_entries(source: LogSource, key: str = "") -> Iterator[tuple[int, Any]]:
    """The elements of a JSON list, each with the line on which it begins.

    The list is the whole text or, with `key`, what that key of an object holds; an object without the key is
    an element by itself. Raises TableError if the text is no such JSON, is damaged or is not UTF-8.
    """
    reader = _JsonReader(source)
    if reader.sign() == "[":
        yield from reader.elements()
    elif key and reader.sign() == "{":
        yield from reader.elements_of(key)
    else:
        expected = f"a JSON object with {key}" if key else "a JSON list of jobs"
        raise TableError(f"{source.path}:1: is not {expected}")
    reader.finish()


class _Window:
    """The text of a log from the place of reading on, as far as it has been read from the file."""

    def __init__(self, source: LogSource):
        self.text = ""
        self.ended = False
        self._path, self._file = source.path, source.unpacked()
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self._lines = 0  # that ended before the text

    def grow(self, since: int, size: int) -> None:
        """Forget the text before `since`, and read about `size` bytes more: one character at least, if any is
        left.

        Raises TableError for a damaged file, and for text that is not UTF-8.
        """
        self._lines += self.text.count("\n", 0, since)
        parts = [self.text[since:]]
        while not self.ended:
            try:
                content = self._file.read(size)
            except DAMAGED_GZIP as error:
                raise damaged_gzip(self._path, error) from None
            self.ended = not content
            parts.append(self._decoded(content, sum(part.count("\n") for part in parts)))
            if parts[-1]:
                break
        self.text = "".join(parts)

    def _decoded(self, content: bytes, lines: int) -> str:
        try:
            return self._decoder.decode(content, final=self.ended)
        except UnicodeDecodeError as error:
            line = self._lines + lines + error.object.count(b"\n", 0, error.start) + 1
            byte = error.object[error.start]
            problem = f"byte {byte:#04x} is not UTF-8 text; save the file in UTF-8"
            raise TableError(f"{self._path}:{line}: {problem}") from None

    def line(self, counted: int) -> int:
        """The line of a place, by the number of line ends in the text before it."""
        return self._lines + counted + 1


class _JsonReader:
    """Reads JSON piece by piece, so that each piece is known by its line."""

    def __init__(self, source: LogSource):
        self._path = source.path
        self._window = _Window(source)
        self._decoder = json.JSONDecoder(parse_constant=_no_constant)
        self._place = self._counted = self._lines = 0
        self._skip_space()

    def sign(self) -> str:
        """The next character that is no space."""
        return self._window.text[self._place : self._place + 1]

    def elements(self) -> Iterator[tuple[int, Any]]:
        """The elements of the list that begins here."""
        self._pass()
        while self.sign() != "]":
            line = self._at()
            yield line, self._value()
            if self.sign() == ",":
                self._pass()
            elif self.sign() != "]":
                raise TableError(
                    f"{self._path}:{self._at()}: is not JSON: a comma or ] is missing between jobs"
                )

    def elements_of(self, key: str) -> Iterator[tuple[int, Any]]:
        """The elements of the list under a key of the object that begins here, or the object itself."""
        line, members = self._at(), dict[str, Any]()
        self._pass()
        while self.sign() == '"':
            name = str(self._value())
            if self.sign() != ":":
                raise TableError(f"{self._path}:{self._at()}: is not JSON: a colon is missing after a key")
            self._pass()
            if name == key and self.sign() == "[":
                yield from self.elements()
                return
            members[name] = self._value()
            if self.sign() != ",":
                break
            self._pass()
        if self.sign() != "}":
            raise TableError(f"{self._path}:{self._at()}: is not JSON: the object does not end")
        yield line, members

    def finish(self) -> None:
        """Read what follows the list, which may be damaged."""
        while not self._window.ended:
            self._window.grow(len(self._window.text), _WINDOW_BYTES)

    def _value(self) -> Any:
        while True:
            text = self._window.text
            try:
                value, end = self._decoder.raw_decode(text, self._place)
                if end < len(text) - _LONGEST_SIGN or self._window.ended:
                    self._place = end
                    self._skip_space()
                    return value
            except json.JSONDecodeError as error:
                cut = error.pos >= len(text) - _LONGEST_ESCAPE or error.msg.startswith("Unterminated string")
                if self._window.ended or not cut:
                    line = self._at() + text.count("\n", self._place, error.pos)
                    raise TableError(f"{self._path}:{line}: is not JSON: {error.msg}") from None
            except (ValueError, RecursionError) as error:  # numbers of thousands of digits, NaN, deep nesting
                deep = isinstance(error, RecursionError)
                problem = "nested too deeply" if deep else str(error).partition(";")[0]
                raise TableError(
                    f"{self._path}:{self._at()}: is not JSON that can be read: {problem}"
                ) from None
            self._grow()

    def _grow(self) -> None:
        line, length = self._at(), len(self._window.text) - self._place
        if length > _MOST_CHARACTERS:
            problem = f"one entry has more than {_MOST_CHARACTERS:,} characters; split the log"
            raise TableError(f"{self._path}:{line}: {problem}")
        self._window.grow(self._place, max(_WINDOW_BYTES, length))
        self._place = self._counted = self._lines = 0

    def _pass(self) -> None:
        """Go past a character and the space after it."""
        self._place += 1
        self._skip_space()

    def _skip_space(self) -> None:
        while True:
            space = _SPACE.match(self._window.text, self._place)
            self._place = space.end() if space else self._place
            if self.sign() or self._window.ended:
                return
            self._grow()

    def _at(self) -> int:
        """The line of the next character."""
        self._lines += self._window.text.count("\n", self._counted, self._place)
        self._counted = self._place
        return self._window.line(self._lines)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")
