"""Rows of text as records: reading the tables of a run folder (format: see `clustersim.rundir`).

Rows are parsed in blocks, column by column. If a cell of a block is invalid, a second pass cell by cell finds
the first one for the error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from io import SEEK_CUR
from itertools import chain, islice
from math import isfinite
from pathlib import Path
from typing import Any, BinaryIO, get_type_hints

from clustersim.cluster import Cluster, Placement, SharedPlacement, millionths_of
from clustersim.records import Exact, Gpus
from itertime.errors import TableError, UserError
from itertime.io import Table, open_table, shown, without_guard

from .csv_out import Column, required

__all__ = ["StoredRows", "parse_rows", "plain_text"]

_BLOCK = 2000
_GZIP = b"\x1f\x8b"
_PARQUET_ROW = 5  # bytes; runs of equal jobs take five times as many
_PLACEMENTS = 20_000  # in the cache: about 200 bytes each, more for jobs on many nodes
_INTEGER = re.compile(r"-?\d{1,18}")
_NODES = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?x(\d{1,9})")

_PARTS = re.compile(r"-?\d{1,12}\.\d{1,6}")
_PART = re.compile(r"#(\d{1,9}):(0\.\d{1,6})")

_Read = Callable[[Sequence[str]], list[Any]]
"""Turns a block of cells of one column into values; ValueError for an invalid cell."""


class StoredRows:
    """The records of a table in a folder; each iteration reads the file again."""

    def __init__(self, path: Path, columns: Sequence[Column], record: Callable[..., Any], cluster: Cluster):
        self.path, self._columns, self._record, self._cluster = path, columns, record, cluster

    def __iter__(self) -> Iterator[Any]:
        """UserError, TableError for what cannot be read."""
        return chain.from_iterable(self._read())

    @property
    def most(self) -> int:
        """At least as many as the rows of the file, from its size. UserError if there is no such file."""
        try:
            size = self.path.stat().st_size
        except OSError as error:
            raise UserError(f"{self.path}: cannot be read: {error.strerror or error}") from None
        return size // (_PARQUET_ROW if self.path.suffix == ".parquet" else len(self._columns))

    def _read(self) -> Iterator[Iterator[Any]]:
        text = plain_text if self.path.suffix == ".parquet" else without_guard
        with open_table(self.path) as table:
            self._refuse_packed(table)
            yield from _blocks(table, self._columns, self._record, self._cluster, text)

    def _refuse_packed(self, table: Table) -> None:
        """TableError for a table with many more rows than its size suggests: reading it could take hours."""
        assert table.file is not None
        place = table.file.seek(0, SEEK_CUR)
        table.file.seek(0)
        start = table.file.read(4)
        table.file.seek(place)
        if table.is_csv != (self.path.suffix == ".csv") or start.startswith(_GZIP):
            raise TableError(f"{self.path}: is not the kind of file that a run writes; run it again")
        if not table.is_csv and (rows := _rows_of(table.file)) > self.most:
            raise TableError(f"{self.path}: has {rows:,} rows in few bytes; run the simulation again")


def _rows_of(file: BinaryIO) -> int:
    """The rows of an opened Parquet file."""
    import pyarrow.parquet as pq

    place = file.seek(0, SEEK_CUR)
    metadata = pq.read_metadata(file)
    file.seek(place)
    return sum(metadata.row_group(i).num_rows for i in range(metadata.num_row_groups))


def parse_rows(
    table: Table, columns: Sequence[Column], record: Callable[..., Any], cluster: Cluster,
    text: Callable[[str], str],
) -> Iterator[Any]:  # fmt: skip
    """The records of an opened table; TableError names file, line and column of an invalid cell.

    `text` turns a cell into a text field. Placements must name nodes and GPUs that `cluster` has.
    """
    return chain.from_iterable(_blocks(table, columns, record, cluster, text))


def _blocks(
    table: Table, columns: Sequence[Column], record: Callable[..., Any], cluster: Cluster,
    text: Callable[[str], str],
) -> Iterator[Iterator[Any]]:  # fmt: skip
    missing = [column.name for column in required(columns) if column.name not in table.columns]
    if missing:
        raise TableError(f"{table.path}:1: missing column {', '.join(missing)}; run the simulation again")
    column_of_name = {column.name: column for column in columns}
    fields = [
        name for name in get_type_hints(record) if name in column_of_name
    ]  # in the order of the record's fields
    names = [name for name in fields if name in table.columns]
    positions = [table.columns.index(name) for name in names]
    readers = [_reader(column_of_name[name].kind, cluster, text) for name in names]
    make = _maker(record)
    while block := list(islice(table.rows, _BLOCK)):
        try:
            cells = list(zip(*[row for _, row in block], strict=True))
            if len(cells) != len(table.columns):
                raise ValueError
            values = {
                name: _values(reader, cells[position])
                for name, reader, position in zip(names, readers, positions, strict=True)
            }
        except ValueError:
            raise _first_mistake(table, block, names, positions, readers) from None
        yield make([values.get(name) or [column_of_name[name].blank] * len(block) for name in fields])


def _maker(record: Callable[..., Any]) -> Callable[[Sequence[list[Any]]], Iterator[Any]]:
    """A function that turns columns of values into records."""
    if isinstance(record, type) and issubclass(record, tuple):  # what a named tuple does itself, in C
        new = partial(tuple.__new__, record)
        return lambda values: map(new, zip(*values, strict=True))
    return lambda values: map(record, *values)


def _values(reader: _Read, cells: Sequence[str]) -> list[Any]:
    if cells.count(cells[0]) == len(cells):
        return reader(cells[:1]) * len(cells)
    return reader(cells)


def _first_mistake(
    table: Table, block: Sequence[tuple[int, list[str]]], names: Sequence[str], positions: Sequence[int],
    readers: Sequence[_Read],
) -> TableError:  # fmt: skip
    for line, cells in block:
        if len(cells) != len(table.columns):
            problem = f"has {len(cells)} cells where the header has {len(table.columns)}"
            return TableError(f"{table.path}:{line}: {problem}; run the simulation again")
        for name, position, reader in zip(names, positions, readers, strict=True):
            try:
                reader(cells[position : position + 1])
            except ValueError as error:
                place = f"{table.path}:{line}: {name}={shown(cells[position])}"
                return TableError(f"{place}: {error}; run the simulation again")
    raise AssertionError("every cell is valid")


def plain_text(cell: str) -> str:
    """The text of a cell without a guard, as in Parquet."""
    return cell


def _reader(kind: Any, cluster: Cluster, text: Callable[[str], str]) -> _Read:
    placement = lru_cache(_PLACEMENTS)(lambda cell: _placement(cell, cluster))
    readers: dict[Any, _Read] = {
        str: lambda cells: list(map(text, cells)) if "'" in "".join(cells) else list(cells),
        int: _each(_integer),
        int | None: _each(lambda cell: _integer(cell) if cell else None),
        float: _numbers,
        float | None: _numbers_or_none,
        Exact: _numbers,
        Gpus: _each(_gpus),
        bool | None: _each(_truth),
        Placement: lambda cells: list(map(placement, cells)),
    }
    return readers[kind]


def _each(parse: Callable[[str], Any]) -> _Read:
    """Parses each distinct cell once."""

    def values(cells: Sequence[str]) -> list[Any]:
        value_of_cell = {cell: parse(cell) for cell in dict.fromkeys(cells)}
        return [value_of_cell[cell] for cell in cells]

    return values


def _integer(cell: str) -> int:
    if not cell.isascii() or not _INTEGER.fullmatch(cell):
        raise ValueError("must be a whole number")
    return int(cell)


def _gpus(cell: str) -> float:
    if _PARTS.fullmatch(cell) and cell.isascii():
        return float(cell)
    try:
        return _integer(cell)
    except ValueError:
        raise ValueError("must be a whole number, or have up to six decimals") from None


def _numbers(cells: Sequence[str]) -> list[float]:
    try:
        values = list(map(float, cells))
    except ValueError:
        values = []
    if not values or not all(map(isfinite, values)):
        raise ValueError("must be a finite number")
    return values


def _numbers_or_none(cells: Sequence[str]) -> list[float | None]:
    if "" not in cells:
        return [*_numbers(cells)]
    filled_cells = [cell for cell in cells if cell]
    numbers = iter(_numbers(filled_cells) if filled_cells else ())
    return [next(numbers) if cell else None for cell in cells]


def _truth(cell: str) -> bool | None:
    values = {"": None, "true": True, "false": False}
    if cell not in values:
        raise ValueError("must be true, false or empty")
    return values[cell]


def _placement(cell: str, cluster: Cluster) -> Placement:
    placement: list[tuple[int, int]] = []
    cell, mark, share_text = cell.partition("#")
    share = _PART.fullmatch(mark + share_text) if share_text.isascii() else None
    if mark and (share is None or not millionths_of(float(share[2]))):
        raise ValueError("must state a part of a GPU as 7x1#0:0.25")
    for part in cell.split(";") if cell else ():
        match = _NODES.fullmatch(part) if part.isascii() else None
        if match is None:
            raise ValueError("must list nodes as 0-3x8;7x4")
        first_node, last_node, count = int(match[1]), int(match[2] or match[1]), int(match[3])
        if not first_node <= last_node < cluster.nodes or not 1 <= count <= cluster.gpus_per_node:
            raise ValueError(f"is not on a cluster of {cluster.nodes} nodes x {cluster.gpus_per_node} GPUs")
        placement += [(node, count) for node in range(first_node, last_node + 1)]
    if share is not None:
        if not placement:
            raise ValueError("states part of no GPU")
        return SharedPlacement(tuple(placement), int(share[1]), millionths_of(float(share[2])))
    return tuple(placement)
