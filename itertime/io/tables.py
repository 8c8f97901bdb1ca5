"""CSV and Parquet tables from outside, read row by row as untrusted text.

`check_repeated` and `separator_hint` are for readers of tables, which know what columns mean.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import os
import shutil
import stat
import tempfile
import zlib
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO, Any, BinaryIO, Literal, cast

from itertime.errors import TableError, UserError, shown

from .parquet import LONGEST_ROW, open_parquet, too_long

_GZIP, _PARQUET, _ZIP = b"\x1f\x8b", b"PAR1", b"PK\x03\x04"
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
def open_input(path: str | Path) -> Iterator[BinaryIO]:
    """Open a file for reading it several times; the content of a pipe is copied to a temporary file.

    Raises UserError for a file that cannot be opened, and for a device, which may never end.
    """
    path = Path(path)
    try:
        with path.open("rb") as source, _seekable(path, source, pipes=True) as raw:
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
    if file is None and path.is_fifo() and not pipes:  # opening it would block until another process writes
        raise UserError(f"{path}: is a pipe, and is needed more than once; save it to a file first")
    try:
        with _opened(path, file) as source, _seekable(path, source, pipes) as raw:
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
                binary: Any = gzip.GzipFile(fileobj=raw) if start.startswith(_GZIP) else raw
                text = io.TextIOWrapper(binary, encoding="utf-8-sig", newline="")  # owns and closes `raw`
                rows = _text_rows(path, text, layout)
                columns, rows = _header(rows, layout)
                yield Table(path, columns, rows, file=raw)
            except UnicodeDecodeError:
                raise TableError(_where_not_utf8(path, raw)) from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise TableError(f"{path}: damaged gzip file ({error}); copy or compress it again") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from None


def _opened(path: Path, file: BinaryIO | None) -> BinaryIO:
    if file is None:
        return path.open("rb")
    again = os.fdopen(os.dup(file.fileno()), "rb")  # closing it leaves `file` open
    again.seek(0)
    return again


@contextmanager
def _seekable(path: Path, source: BinaryIO, pipes: bool) -> Iterator[BinaryIO]:
    """The file itself, or a temporary copy of a pipe's content. Devices are refused: they may never end."""
    if stat.S_ISCHR(os.fstat(source.fileno()).st_mode) and not source.isatty():
        raise UserError(f"{path}: is a device; give a file or a pipe")
    if source.seekable():
        yield source
        return
    if not pipes:
        raise UserError(f"{path}: is a pipe, and is needed more than once; save it to a file first")
    copy = tempfile.TemporaryFile()  # noqa: SIM115 (on a full disk closing it fails too)
    try:
        shutil.copyfileobj(source, copy)
        copy.seek(0)
    except OSError as error:
        with suppress(OSError):
            copy.close()
        problem = f"cannot be copied to {tempfile.gettempdir()}: {error.strerror or error}"
        raise UserError(f"{path}: {problem}; set TMPDIR to another folder") from None
    with copy:
        yield copy


Rows = Iterator[tuple[int, list[str]]]


def _header(rows: Rows, layout: TextLayout) -> tuple[list[str], Rows]:
    """The names of the columns, and the rows below them."""
    line, cells = next(rows, (0, list[str]()))
    if layout.header:
        return [name.strip() for name in cells], rows
    names = list(layout.names) or [str(number) for number in range(1, len(cells) + 1)]
    return names if cells else [], chain([(line, cells)] if cells else [], rows)


def _text_rows(path: Path, text: IO[str], layout: TextLayout) -> Rows:
    line, count, size, at_start = 0, 0, 0, True

    def lines() -> Iterator[str]:
        nonlocal line, count, size, at_start
        while text_line := text.readline(LONGEST_ROW + 1):
            count += 1
            if at_start:
                line = count
            size += len(text_line)
            if size > LONGEST_ROW:
                raise too_long(f"{path}:{line}")
            if at_start and layout.comments and text_line.startswith(layout.comments):
                size = 0
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
            if row:  # a blank line is no row
                yield line, row
            size, at_start = 0, True
    except csv.Error as error:
        raise TableError(f"{path}:{line}: is not CSV: {error}; look for a quote that is not closed") from None


def _where_not_utf8(path: Path, raw: BinaryIO) -> str:
    """Name the first line that is not UTF-8. The failed decoder works in blocks and does not know lines."""
    raw.seek(0)
    is_gzip = raw.read(2) == _GZIP
    raw.seek(0)
    lines: Any = gzip.GzipFile(fileobj=raw) if is_gzip else raw
    for number, line in enumerate(lines, start=1):
        try:
            line.decode("utf-8")
        except UnicodeDecodeError as error:
            byte = line[error.start]
            return f"{path}:{number}: byte 0x{byte:02x} is not UTF-8 text; save the file as CSV in UTF-8"
    raise AssertionError("every line of the file decodes")


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
