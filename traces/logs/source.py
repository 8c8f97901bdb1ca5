"""An opened job log: its beginning, by which a format is recognised, and its content as table or text."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from itertime.errors import UserError
from itertime.io import DAMAGED_GZIP, Table, TextLayout, open_input, open_table, text_lines, unpacked

__all__ = ["Head", "LogFolder", "LogSource", "open_log"]

_HEAD_BYTES = 65_536
_SEPARATORS = (",", "|", "\t", ";")
_COMMENTS = "#"
_MOST_FILES = 64  # of a folder that holds a log


@dataclass(frozen=True)
class Head:
    """The beginning of a log. `text`: its first 64 KiB. `columns`: its header, if it is a table.

    `separator`: what separates the cells; " " stands for any white space. `files`: of a folder, the beginning
    of each of its files by name; the rest is then empty.
    """

    text: str
    columns: tuple[str, ...]
    separator: str
    files: Mapping[str, Head] | None = None

    @property
    def lines(self) -> list[str]:
        """Its first lines, without the last one, which may be cut."""
        return self.text.splitlines()[: None if len(self.text) < _HEAD_BYTES else -1]


class LogSource:
    """A log that is open: `path` names it in messages, and it can be read any number of times."""

    def __init__(self, path: Path, file: BinaryIO):
        self.path = path
        self._file = file
        text = self._beginning()
        self.separator = _separator(text)
        columns: tuple[str, ...] = ()
        if text.lstrip()[:1] not in ("[", "{") and not _has_semicolon_comments(text):
            with self.table() as table:
                columns = tuple(table.columns)
        self.head = Head(text, columns, self.separator)

    def table(self, layout: TextLayout | None = None) -> AbstractContextManager[Table]:
        """The rows, by default of a table with a header, `#` comments, and the separator of its first line.

        Raises what `open_table` raises.
        """
        return open_table(self.path, layout=layout or self.layout(), file=self._file)

    def layout(self, header: bool = True) -> TextLayout:
        """The default layout of this log."""
        return TextLayout(delimiter=self.separator, comments=_COMMENTS, header=header)

    def lines(self) -> Iterator[tuple[int, str]]:
        """The lines of the text, without their ends, by their numbers from 1. TableError if it is damaged."""
        lines = text_lines(self.path, self.unpacked())
        return ((number, line.rstrip("\r\n")) for number, line in enumerate(lines, 1))

    def sha256(self) -> str:
        """Hex digest of the file as given, compressed or not."""
        self._file.seek(0)
        return hashlib.file_digest(cast(io.BufferedReader, self._file), "sha256").hexdigest()

    def unpacked(self) -> BinaryIO:
        """The file from its beginning, uncompressed: `read(size)` gives bytes. One is read at a time."""
        return unpacked(self.path, self._file)

    def _beginning(self) -> str:
        try:
            start: bytes = self.unpacked().read(_HEAD_BYTES)
        except DAMAGED_GZIP:
            return ""  # what is wrong is said by the reader of the whole
        return start.decode("utf-8-sig", errors="replace")


class LogFolder(LogSource):
    """A folder that holds a log of several tables. `head.files` are those of its files that are text."""

    def __init__(self, path: Path, closing: ExitStack):
        self.path, self.separator = path, ","
        self._members: dict[str, LogSource] = {}
        with os.scandir(path) as entries:
            names = sorted(entry.name for entry in entries if entry.is_file())
        if len(names) > _MOST_FILES:
            problem = f"holds {len(names):,} files, and a log in a folder has a few"
            raise UserError(f"{path}: {problem}; give one file, or a folder of the log alone")
        for name in names:
            with suppress(UserError):  # a file of another kind
                self._members[name] = LogSource(path / name, closing.enter_context(open_input(path / name)))
        self.head = Head("", (), ",", {name: member.head for name, member in self._members.items()})

    def member(self, name: str) -> LogSource:
        """A file of the folder."""
        return self._members[name]

    def table(self, layout: TextLayout | None = None) -> AbstractContextManager[Table]:
        """Raises UserError: a folder is no table."""
        raise self._no_file()

    def lines(self) -> Iterator[tuple[int, str]]:
        """Raises UserError: a folder is no text."""
        raise self._no_file()

    def sha256(self) -> str:
        """Hex digest of the names and digests of its files."""
        listed = "".join(f"{member.sha256()}  {name}\n" for name, member in self._members.items())
        return hashlib.sha256(listed.encode("utf-8", "surrogateescape")).hexdigest()

    def unpacked(self) -> BinaryIO:
        """Raises UserError: a folder is no file."""
        raise self._no_file()

    def _no_file(self) -> UserError:
        return UserError(f"{self.path}: is a folder; give the file of the log")


@contextmanager
def open_log(path: str | Path, *, pipes: bool = True) -> Iterator[LogSource]:
    """Open a log: a file, with `pipes` a pipe, plain or gzip, or a folder of files.

    Raises UserError or TableError if it cannot be read.
    """
    with ExitStack() as closing:
        try:
            is_folder = Path(path).is_dir()
            source = LogFolder(Path(path), closing) if is_folder else None
        except OSError as error:
            raise UserError(f"{path}: cannot be read: {error.strerror or error}") from None
        yield source or LogSource(Path(path), closing.enter_context(open_input(path, pipes=pipes)))


def _has_semicolon_comments(text: str) -> bool:
    """Whether `;` begins a comment, as in SWF: the first other line is of white-space columns."""
    rows = (line for line in text.splitlines() if line.strip() and not line.startswith(";"))
    first_row = next(rows, "")
    return text.startswith(";") and ";" not in first_row and len(first_row.split()) > 1


def _separator(text: str) -> str:
    """What separates the cells of the first line that is not a comment: what occurs most often in it."""
    lines = (line for line in text.splitlines() if line.strip() and not line.startswith(_COMMENTS))
    first_line = next(lines, "")
    best = max(_SEPARATORS, key=first_line.count)  # at equal counts the first of them
    if first_line.count(best):
        return best
    return " " if len(first_line.split()) > 1 else ","
