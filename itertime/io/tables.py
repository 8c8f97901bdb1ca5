"""CSV and Parquet tables from outside, read row by row as untrusted text.

`check_repeated` and `separator_hint` are for readers of tables, which know what columns mean.
"""

from __future__ import annotations

import csv
import hashlib
import io
from codecs import getincrementaldecoder
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO, BinaryIO, Literal, cast

from itertime.errors import TableError, UserError, shown

from .door import (
    DAMAGED_GZIP,
    LONGEST_ROW,
    MOST_BLANK_LINES,
    damaged_gzip,
    open_seekable,
    reopened,
    text_of,
    too_blank,
    too_long,
    unpacked,
)
from .parquet import open_parquet

_PARQUET, _ZIP = b"PAR1", b"PK\x03\x04"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True)
class TextLayout:
    """How the text of a table is laid out.

    `delimiter` separates cells; " " stands for any white space. Quotes have a meaning beside a comma and a
    semicolon only. Lines that begin with `comments` are skipped; "" for none. Without a `header`, the columns
    are `names`, or their numbers from 1.
    """

    delimiter: str = ","
    comments: str = ""
    header: bool = True
    names: tuple[str, ...] = ()


_PLAIN = TextLayout()


@dataclass(frozen=True)
class Table:
    """An opened table: its column names, and its rows as (where, cells); every cell is text, "" if missing.

    `where` is the line of a text file on which the row starts, or the number of a Parquet row, from 1.
    `is_csv`: whether its text may carry the guard against spreadsheet formulas. `file`: the bytes that the
    table is read from, None for a table that was not opened from a file.
    """

    path: Path
    columns: list[str]
    rows: Iterator[tuple[int, list[str]]]
    is_csv: bool = True
    file: BinaryIO | None = None

    def sha256(self) -> str:
        """Hex digest of the whole file. The position of a reader that is half way through is restored."""
        assert self.file is not None
        place = self.file.seek(0, io.SEEK_CUR)
        self.file.seek(0)
        digest = hashlib.file_digest(cast(io.BufferedReader, self.file), "sha256").hexdigest()
        self.file.seek(place)
        return digest


@contextmanager
def open_input(path: str | Path, *, pipes: bool = True) -> Iterator[BinaryIO]:
    """Open a file for reading it several times; the content of a pipe is copied to a temporary file.

    Raises UserError for a file that cannot be opened, for a device, which may never end, and for a pipe
    without `pipes`.
    """
    path = Path(path)
    try:
        with open_seekable(path, pipes=pipes) as raw:
            yield raw
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from None


@contextmanager
def open_table(
    path: str | Path, *, pipes: bool = False, layout: TextLayout = _PLAIN, file: BinaryIO | None = None
) -> Iterator[Table]:
    """Open a CSV file (plain or gzip, by content) or a Parquet file (by content) row by row.

    `pipes`: accept a pipe, whose content is copied to a temporary file; only for callers that open it once.
    `layout`: of a text file. `file`: the opened file (see `open_input`), which `path` then names in messages.
    Raises UserError for a file that cannot be opened, TableError with file and line for one that is not
    such a table. Rows of the wrong length are left to the caller.
    """
    path = Path(path)
    try:
        with reopened(file) if file else open_seekable(path, pipes=pipes) as raw:
            # The first bytes say what the file is; one that is named .parquet must be Parquet.
            start = raw.read(4)
            raw.seek(0)
            try:
                if start == _PARQUET or path.suffix == ".parquet":
                    names, cells = open_parquet(path, raw)
                    yield Table(path, names, cells, is_csv=False, file=raw)
                    return
                if start == _ZIP or start.startswith(_UTF16):
                    kind = "a ZIP archive or workbook" if start == _ZIP else "UTF-16 text"
                    raise TableError(f"{path}:1: is {kind}; save it as CSV in UTF-8")
                text = text_of(unpacked(path, raw))  # closes `raw` when nothing holds it any more
                rows = _text_rows(path, text, layout)
                columns, rows = _header(rows, layout)
                yield Table(path, columns, rows, file=raw)
            except UnicodeDecodeError:
                raise TableError(_where_not_utf8(path, raw)) from None
    except DAMAGED_GZIP as error:
        raise damaged_gzip(path, error) from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from None


Rows = Iterator[tuple[int, list[str]]]


def _header(rows: Rows, layout: TextLayout) -> tuple[list[str], Rows]:
    """The names of the columns, and the rows below them."""
    line, cells = next(rows, (0, list[str]()))
    if layout.header:
        return [name.strip() for name in cells], rows
    names = list(layout.names) or [str(number) for number in range(1, len(cells) + 1)]
    return names if cells else [], chain([(line, cells)] if cells else [], rows)


def _text_rows(path: Path, text: IO[str], layout: TextLayout) -> Rows:
    line = count = size = blank_lines = 0
    at_start = True

    def lines() -> Iterator[str]:
        nonlocal line, count, size, at_start, blank_lines
        while text_line := text.readline(LONGEST_ROW + 1):
            count += 1
            if at_start:
                line = count
            size += len(text_line)
            if size > LONGEST_ROW:
                raise too_long(f"{path}:{line}")
            if at_start and layout.comments and text_line.startswith(layout.comments):
                size, blank_lines = 0, blank_lines + 1
                if blank_lines > MOST_BLANK_LINES:
                    raise too_blank(f"{path}:{line}")
                continue
            at_start = False
            yield text_line

    # The reader pulls lines, and a quoted cell may span several: `line` is where the row began, and `size`
    # guards memory while its end is not in sight.
    reader: Iterator[list[str]]
    if layout.delimiter == " ":
        reader = (text_line.split() for text_line in lines())
    else:
        quoted = layout.delimiter in (",", ";")
        quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE
        reader = csv.reader(lines(), strict=True, delimiter=layout.delimiter, quoting=quoting)
    try:
        for row in reader:
            if row:
                yield line, row
                blank_lines = 0
            elif (blank_lines := blank_lines + 1) > MOST_BLANK_LINES:
                raise too_blank(f"{path}:{line}")
            size, at_start = 0, True
    except csv.Error as error:
        raise TableError(f"{path}:{line}: is not CSV: {error}; look for a quote that is not closed") from None


def _where_not_utf8(path: Path, raw: BinaryIO) -> str:
    """Name the first line that is not UTF-8. The failed decoder works in blocks and does not know lines."""
    number, file = 1, unpacked(path, raw)
    decoder = getincrementaldecoder("utf-8")()
    while piece := file.readline(LONGEST_ROW):
        try:
            decoder.decode(piece)
        except UnicodeDecodeError as error:
            byte = error.object[error.start]
            return f"{path}:{number}: byte 0x{byte:02x} is not UTF-8 text; save the file as CSV in UTF-8"
        number += piece.endswith(b"\n")
    return f"{path}:{number}: ends within a character of UTF-8 text; copy the file again"


def check_repeated(columns: Sequence[str], where: str, among: Collection[str] | None = None) -> None:
    """TableError, beginning with `where`, if a name of `among` (by default any) is that of two columns."""
    for name, times in Counter(columns).items():
        if times > 1 and (among is None or name in among):
            if not name:
                places = [number for number, column in enumerate(columns, start=1) if not column][:2]
                problem = f"columns {places[0]} and {places[1]} have no name"
                raise TableError(f"{where}: {problem}; name them, or remove the commas too many")
            raise TableError(f"{where}: column {shown(name)} appears twice; keep one")


def separator_hint(columns: list[str]) -> str:
    """The remedy for a header that is a single column because its separators are not commas, else ""."""
    if len(columns) == 1 and any(sign in columns[0] for sign in ";\t|"):
        return "columns must be separated by commas"
    return ""
