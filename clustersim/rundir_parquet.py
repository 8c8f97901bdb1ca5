"""`jobs.parquet`: the job records by columns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from itertime.errors import UserError

from .records import JobRecord
from .rundir_tables import JOBS

__all__ = ["ParquetRows"]

_TYPES = {str: pa.string(), int: pa.int64(), int | None: pa.int64(), bool | None: pa.bool_()}


class ParquetRows:
    """A Parquet file that grows by job records; UserError, in one line that names `place`, if it cannot."""

    def __init__(self, place: Path, path: Path):
        self._place = place
        self._schema = pa.schema([(c.name, _TYPES.get(c.kind, pa.float64())) for c in JOBS])
        try:
            self._writer = pq.ParquetWriter(path, self._schema)
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
        arrays: list[Any] = []
        for column, field in zip(JOBS, self._schema, strict=True):
            arrays.append(pa.array([getattr(record, column.name) for record in records], field.type))
        try:
            self._writer.write_table(pa.table(arrays, schema=self._schema))
        except OSError as error:
            raise self._refused(error) from None

    def _refused(self, error: OSError) -> UserError:
        return UserError(f"{self._place}: cannot be written: {error.strerror or error}")
