"""CSV and Parquet tables from outside, read row by row as untrusted text.

`separator_hint` helps readers of tables to word their errors.
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
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

from itertime.errors import TableError, UserError

__all__ = ["Table", "open_table", "separator_hint"]

_GZIP, _PARQUET, _ZIP = b"\x1f\x8b", b"PAR1", b"PK\x03\x04"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_BATCH = 10_000  # rows of a Parquet file that memory holds at a time
_LONGEST_ROW = 10_000_000  # characters; memory holds a whole row, and no real table has one this long


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
def open_table(path: str | Path, *, pipes: bool = False, delimiter: str = ",") -> Iterator[Table]:
    """Open a CSV file (plain or gzip, by content) or a Parquet file (by content) row by row.

    `pipes`: accept a pipe, whose content is copied to a temporary file; only for callers that open it once.
    `delimiter`: the separator of a text file; with any other than a comma, quotes have no meaning.
    Raises UserError for a file that cannot be opened, TableError with file and line for one that is not
    such a table. Rows of the wrong length are left to the caller.
    """
    path = Path(path)
    if path.is_fifo() and not pipes:  # opening it would block until another process writes
        raise UserError(f"{path}: is a pipe, and is needed more than once; save it to a file first")
    try:
        with path.open("rb") as given, _seekable(path, given, pipes) as raw:
            start = raw.read(4)
            raw.seek(0)
            try:
                if start == _PARQUET or path.suffix == ".parquet":
                    yield _parquet(path, raw)
                    return
                if start == _ZIP or start.startswith(_UTF16):
                    what = "a ZIP archive or workbook" if start == _ZIP else "UTF-16 text"
                    raise TableError(f"{path}:1: is {what}; save it as CSV in UTF-8")
                binary: Any = gzip.GzipFile(fileobj=raw) if start.startswith(_GZIP) else raw
                text = io.TextIOWrapper(binary, encoding="utf-8-sig", newline="")  # owns and closes `raw`
                rows = _csv_rows(path, text, delimiter)
                columns = [name.strip() for name in next(rows, (0, []))[1]]
                yield Table(path, columns, rows, file=raw)
            except UnicodeDecodeError:
                raise TableError(_where_not_utf8(path, raw)) from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise TableError(f"{path}: damaged gzip file ({error}); copy or compress it again") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from None


@contextmanager
def _seekable(path: Path, given: BinaryIO, pipes: bool) -> Iterator[BinaryIO]:
    """The file itself, or a temporary copy of a pipe's content. Devices are refused: they may never end."""
    if stat.S_ISCHR(os.fstat(given.fileno()).st_mode) and not given.isatty():
        raise UserError(f"{path}: is a device; give a file or a pipe")
    if given.seekable():
        yield given
        return
    if not pipes:
        raise UserError(f"{path}: is a pipe, and is needed more than once; save it to a file first")
    copy = tempfile.TemporaryFile()  # noqa: SIM115 (on a full disk closing it fails too)
    try:
        shutil.copyfileobj(given, copy)
        copy.seek(0)
    except OSError as error:
        with suppress(OSError):
            copy.close()
        what = f"cannot be copied to {tempfile.gettempdir()}: {error.strerror or error}"
        raise UserError(f"{path}: {what}; set TMPDIR to another folder") from None
    with copy:
        yield copy


def _csv_rows(path: Path, text: IO[str], delimiter: str) -> Iterator[tuple[int, list[str]]]:
    line, size = 1, 0

    def lines() -> Iterator[str]:
        nonlocal size
        while read := text.readline(_LONGEST_ROW + 1):
            size += len(read)
            if size > _LONGEST_ROW:
                what = f"a row of more than {_LONGEST_ROW:,} characters; look for missing line breaks"
                raise TableError(f"{path}:{line}: {what}")
            yield read

    if delimiter == ",":
        reader = csv.reader(lines(), strict=True)
    else:
        reader = csv.reader(lines(), strict=True, delimiter=delimiter, quoting=csv.QUOTE_NONE)
    try:
        for row in reader:
            size = 0
            if row:  # a blank line is no row
                yield line, row
            line = reader.line_num + 1
    except csv.Error as error:
        raise TableError(f"{path}:{line}: is not CSV: {error}; look for a quote that is not closed") from None


def _where_not_utf8(path: Path, raw: BinaryIO) -> str:
    """Name the first line that is not UTF-8. The failed decoder works in blocks and does not know lines."""
    raw.seek(0)
    packed = raw.read(2) == _GZIP
    raw.seek(0)
    lines: Any = gzip.GzipFile(fileobj=raw) if packed else raw
    for number, line in enumerate(lines, start=1):
        try:
            line.decode("utf-8")
        except UnicodeDecodeError as error:
            byte = line[error.start]
            return f"{path}:{number}: byte 0x{byte:02x} is not UTF-8 text; save the file as CSV in UTF-8"
    raise AssertionError("every line of the file decodes")


def _parquet(path: Path, raw: BinaryIO) -> Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(raw)
        names = file.schema_arrow.names
    except (pa.ArrowException, OSError) as error:
        raise _not_parquet(path, error) from None
    return Table(path, names, _parquet_rows(path, file), is_csv=False, file=raw)


def _parquet_rows(path: Path, file: Any) -> Iterator[tuple[int, list[str]]]:
    """Rows, converted a batch at a time: as text, a whole column is many times as large as the file."""
    import pyarrow as pa

    batches, read = file.iter_batches(_BATCH), 0
    while True:
        try:
            batch = next(batches, None)
        except (pa.ArrowException, OSError) as error:
            raise _not_parquet(path, error) from None
        if batch is None:
            return
        columns = zip(batch.schema.names, batch.columns, strict=True)
        cells = [_as_text(path, name, column) for name, column in columns]
        for number, row in enumerate(zip(*cells, strict=True), start=read + 1):
            yield number, list(row)
        read += len(batch)


def _not_parquet(path: Path, error: Exception) -> Exception:
    if isinstance(error, OSError) and error.errno is not None:
        return error
    why = str(error).splitlines()[0]
    return TableError(f"{path}: is not a Parquet file that can be read: {why}; write it again")


def _as_text(path: Path, name: str, column: Any) -> list[str]:
    """One Parquet column as text, so that both formats pass the same checks. Numbers keep every digit."""
    import pyarrow as pa

    if pa.types.is_duration(column.type):  # its text would be a number without its unit
        raise TableError(f"{path}: column {name}: type {column.type} has a unit of its own; write seconds")
    try:
        return column.cast(pa.string()).fill_null("").to_pylist()
    except (pa.ArrowException, UnicodeDecodeError):
        what = f"type {column.type} is neither text nor numbers; convert it"
        raise TableError(f"{path}: column {name}: {what}") from None


def separator_hint(columns: list[str]) -> str:
    """The remedy for a header that is a single column because its separators are not commas, else ""."""
    if len(columns) == 1 and any(sign in columns[0] for sign in ";\t|"):
        return "columns must be separated by commas"
    return ""
