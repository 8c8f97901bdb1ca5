"""Rows of Parquet files as text, with bounded memory: a few kilobytes can stand for terabytes of cells.

Parquet takes pyarrow, which the default install leaves out for its size (extra: parquet).

Text columns are read as dictionaries, so cells that share a text share memory. The number of rows in a batch
follows from the uncompressed size that the file states for its row groups.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from os import SEEK_END
from pathlib import Path
from typing import Any, BinaryIO

from itertime.errors import TableError, UserError

from .door import LONGEST_ROW, too_long

_FEW_ROWS, _ROWS_OF_A_BYTE = 1_000_000, 50  # a table may have; encodings of equal cells have no such limit
_BATCH_ROWS, _BATCH_BYTES = 10_000, 64_000_000  # the most that memory holds at a time
_GROUP_BYTES = 500_000_000  # of a row group, whose different texts memory may hold several times


def has_parquet() -> bool:
    """Whether Parquet can be read and written here."""
    return find_spec("pyarrow") is not None


def check_parquet(path: Path | str) -> None:
    """UserError, with the extra to install, if the Parquet at `path` can be neither read nor written here."""
    if not has_parquet():
        remedy = "install the extra: pip install 'clustersim[parquet]'"
        raise UserError(f"{path}: Parquet needs pyarrow, which is not installed; {remedy}")


def open_parquet(path: Path, raw: BinaryIO) -> tuple[list[str], Iterator[tuple[int, list[str]]]]:
    """The names of the columns, and the rows as (number from 1, cells); every cell is text, "" if missing.

    Raises TableError for a file that is no Parquet, for columns that are neither text nor numbers, for many
    rows in few bytes, and, while iterating, for a row of more than `LONGEST_ROW` characters. UserError if
    there is too little memory, or no pyarrow.
    """
    check_parquet(path)
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        schema = pq.read_schema(raw)
        _check_types(path, schema)
        raw.seek(0)
        file = pq.ParquetFile(raw, read_dictionary=[field.name for field in schema if _is_text(field.type)])
        rows = _batch_rows(path, file.metadata, schema)
        size = raw.seek(0, SEEK_END)
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(path, error) from None
    if (count := file.metadata.num_rows) > max(_FEW_ROWS, _ROWS_OF_A_BYTE * size):
        raise TableError(f"{path}: has {count:,} rows in {size:,} bytes; look at what wrote it")
    return schema.names, _rows(path, file, rows)


def _is_text(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind))


def _check_types(path: Path, schema: Any) -> None:
    """Refuse types whose cells could be larger than the file, and those that are no cells of a table."""
    from pyarrow import types

    for field in schema:
        where, kind = f"{path}: column {field.name}", field.type
        if types.is_duration(kind):  # its text would be a number without its unit
            raise TableError(f"{where}: type {kind} has a unit of its own; write seconds")
        if types.is_nested(kind):
            raise TableError(f"{where}: type {kind} is neither text nor numbers; convert it")
        if types.is_fixed_size_binary(kind) and kind.byte_width > LONGEST_ROW:
            raise too_long(str(path))


def _batch_rows(path: Path, metadata: Any, schema: Any) -> int:
    """Rows that memory can hold at a time, by the largest average size of a row in any row group. TableError
    for a row group that is too large.
    """
    from pyarrow import types

    fixed_bytes = sum(kind.byte_width for kind in schema.types if types.is_fixed_size_binary(kind))
    largest = 1.0
    for i in range(metadata.num_row_groups):
        group = metadata.row_group(i)
        group_bytes = sum(group.column(j).total_uncompressed_size for j in range(group.num_columns))
        if group_bytes > _GROUP_BYTES:
            problem = f"row group {i} has {group_bytes:,} bytes, more than {_GROUP_BYTES:,}"
            raise TableError(f"{path}: {problem}; write it with smaller row groups")
        largest = max(largest, group_bytes / max(group.num_rows, 1))
    return max(1, min(_BATCH_ROWS, int(_BATCH_BYTES / (largest + fixed_bytes))))


def _rows(path: Path, file: Any, batch_rows: int) -> Iterator[tuple[int, list[str]]]:
    import pyarrow as pa

    batches, rows_before = file.iter_batches(batch_rows), 0
    while True:
        try:
            batch = next(batches, None)
        except (pa.ArrowException, OSError) as error:
            raise _unreadable(path, error) from None
        if batch is None:
            return
        columns = zip(batch.schema.names, batch.columns, strict=True)
        text_columns = [_as_text(path, name, column) for name, column in columns]
        may_be_long = sum(longest for _, longest in text_columns) > LONGEST_ROW
        for number, row in enumerate(
            zip(*(cells for cells, _ in text_columns), strict=True), start=rows_before + 1
        ):
            if may_be_long and sum(map(len, row)) > LONGEST_ROW:
                raise too_long(f"{path}:{number}")
            yield number, list(row)
        rows_before += len(batch)


def _as_text(path: Path, name: str, column: Any) -> tuple[list[str], int]:
    """One column as text, so that both formats pass the same checks, and the length of the longest cell.
    Numbers keep every digit.
    """
    import pyarrow as pa

    try:
        if not pa.types.is_dictionary(column.type):
            cells = column.cast(pa.string()).fill_null("").to_pylist()
            return cells, max(map(len, cells), default=0)
        indices = column.indices.unique().drop_null()
        texts = column.dictionary.take(indices).cast(pa.string()).fill_null("").to_pylist()
        text_of = dict(zip(indices.to_pylist(), texts, strict=True)) | {None: ""}
        return [text_of[i] for i in column.indices.to_pylist()], max(map(len, texts), default=0)
    except MemoryError as error:
        raise _unreadable(path, error) from None
    except (pa.ArrowException, UnicodeDecodeError):
        problem = f"type {column.type} is neither text nor numbers; convert it"
        raise TableError(f"{path}: column {name}: {problem}") from None


def _unreadable(path: Path, error: Exception) -> Exception:
    if isinstance(error, OSError) and error.errno is not None:
        return error
    if isinstance(error, MemoryError):
        return UserError(f"{path}: takes more memory to read than there is; write it with smaller row groups")
    reason = str(error).splitlines()[0]
    return TableError(f"{path}: is not a Parquet file that can be read: {reason}; write it again")
