"""`jobs.parquet`: the job records by columns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from clustersim.records import JobRecord
from itertime.errors import UserError

from .csv_out import Column

__all__ = ["ParquetRows"]

_TYPES = {str: "string", int: "int64", int | None: "int64", bool | None: "bool"}
"""Arrow's names of types; all other fields are double."""


class ParquetRows:
    """A Parquet file with `columns` of job records that grows; `path` is its destination, `temporary` the
    file until then.

    UserError, in one line that names `path`, if it cannot be written.
    """

    def __init__(self, path: Path, temporary: Path, columns: Sequence[Column]):
        import pyarrow as pa
        import pyarrow.parquet as pq

        self._path, self._columns = path, columns
        self._schema = pa.schema([(c.name, pa.type_for_alias(_TYPES.get(c.kind, "double"))) for c in columns])
        try:
            self._writer = pq.ParquetWriter(temporary, self._schema)
        except OSError as error:
            raise self._refused(error) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._writer.close()
        except OSError as refused:
            raise self._refused(refused) from None

    def add(self, records: Sequence[JobRecord]) -> None:
        import pyarrow as pa

        arrays = []
        for column, field in zip(self._columns, self._schema, strict=True):
            arrays.append(pa.array([getattr(record, column.name) for record in records], field.type))
        try:
            self._writer.write_table(pa.table(arrays, schema=self._schema))
        except OSError as error:
            raise self._refused(error) from None

    def _refused(self, error: OSError) -> UserError:
        return UserError(f"{self._path}: cannot be written: {error.strerror or error}")
