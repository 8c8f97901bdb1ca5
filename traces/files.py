"""Reading tables that other people wrote and writing files whole or not at all."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from itertime.errors import TableError, UserError

__all__ = ["Table", "open_table", "sha256", "shown"]

_GZIP, _PARQUET, _ZIP = b"\x1f\x8b", b"PAR1", b"PK\x03\x04"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True)
class Table:
    """An opened table: its column names, and its rows as (where, cells); every cell is text, "" if missing.

    `where` is the line of a text file on which the row starts, or the number of a Parquet row, from 1.
    `is_csv`: whether text in it may carry the guard of `traces.formulas`.
    """

    path: Path
    columns: list[str]
    rows: Iterator[tuple[int, list[str]]]
    is_csv: bool = True


@contextmanager
def open_table(path: str | Path) -> Iterator[Table]:
    """Open a CSV file (plain or gzip, by content) or a Parquet file (by content) row by row.

    Raises UserError for a file that cannot be opened, TableError with file and line for one that is not
    such a table; rows of the wrong length are the caller's to judge.
    """
    path = Path(path)
    try:
        with path.open("rb") as raw:
            start = raw.read(4)
            raw.seek(0)
            if start == _PARQUET or path.suffix == ".parquet":
                yield _parquet(path)
            else:
                if start == _ZIP or start.startswith(_UTF16):
                    what = "a ZIP archive or workbook" if start == _ZIP else "UTF-16 text"
                    raise TableError(f"{path}:1: is {what}; save it as CSV in UTF-8")
                binary: Any = gzip.GzipFile(fileobj=raw) if start.startswith(_GZIP) else raw
                rows = _csv_rows(path, io.TextIOWrapper(binary, encoding="utf-8-sig", newline=""))
                columns = [name.strip() for name in next(rows, (0, []))[1]]
                yield Table(path, columns, rows)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise TableError(f"{path}: damaged gzip file ({error}); copy or compress it again") from None
    except UnicodeDecodeError:
        raise TableError(_where_not_utf8(path)) from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from None


def _csv_rows(path: Path, text: IO[str]) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(text, strict=True)
    line = 1
    try:
        for row in reader:
            if row:  # a blank line is no row
                yield line, row
            line = reader.line_num + 1
    except csv.Error as error:
        raise TableError(f"{path}:{line}: is not CSV: {error}; look for a quote that is not closed") from None


def _where_not_utf8(path: Path) -> str:
    """Name the line that is not UTF-8: decoding works in blocks and cannot say."""
    with path.open("rb") as raw:
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


def _parquet(path: Path) -> Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        why = str(error).splitlines()[0]
        raise TableError(f"{path}: is not a Parquet file that can be read: {why}; write it again") from None
    columns = zip(table.column_names, table.columns, strict=True)
    cells = [_as_text(path, name, column) for name, column in columns]
    rows = ((number, list(row)) for number, row in enumerate(zip(*cells, strict=True), start=1))
    return Table(path, list(table.column_names), rows, is_csv=False)


def _as_text(path: Path, name: str, column: Any) -> list[str]:
    """One Parquet column as text, so that both formats meet the same checks. Numbers keep every digit."""
    import pyarrow as pa

    try:
        return column.cast(pa.string()).fill_null("").to_pylist()
    except (pa.ArrowException, UnicodeDecodeError):
        what = f"type {column.type} is neither text nor numbers; convert it"
        raise TableError(f"{path}: column {name}: {what}") from None


def sha256(path: str | Path) -> str:
    """Hex digest of a file's bytes."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def shown(value: object) -> str:
    """A user's value for a message: as it is if short and printable, else escaped and cut."""
    text = str(value)
    if len(text) > 60:
        text = text[:60] + "..."
    return text if text.isprintable() else repr(text)
