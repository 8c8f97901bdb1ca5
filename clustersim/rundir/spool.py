"""The files of a run that grow while the run goes on.

Events and usage go straight into temporary files beside their destinations. Jobs do not leave the system in
order of submission: their rows go into a spool file, and are copied in order of submission at the end.
"""

from __future__ import annotations

import hashlib
import mmap
import os
from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, BinaryIO

from clustersim.records import Columns, JobRecord, by_field
from itertime.errors import UserError
from itertime.io import open_regular

from .csv_out import JOBS, Column, columns_stated, header_of, lines_of, required

__all__ = ["GrowingFile", "GrowingTable", "Spool"]

RECORDS = 1000  # that are turned into text at once


class GrowingFile:
    """A file that grows at its end; `path` is its destination, `temporary` the file until then.

    UserError, in one line, if it cannot be written.
    """

    def __init__(self, path: Path, temporary: Path):
        self.path, self.size, self._hash = path, 0, hashlib.sha256()
        self._file: BinaryIO = self._try(lambda: temporary.open("wb"))

    def write(self, content: bytes) -> None:
        self._try(lambda: self._file.write(content))
        self._hash.update(content)
        self.size += len(content)

    def show(self) -> None:
        """Make what is written visible to other processes."""
        self._try(lambda: self._file.flush())

    def close(self) -> None:
        """Close a file that is not kept."""
        self._file.close()

    def finish(self) -> str:
        """Flush the file to disk; returns the SHA-256 of its content."""

        def close() -> None:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()

        self._try(close)
        return self._hash.hexdigest()

    def _try(self, step: Callable[[], Any]) -> Any:
        try:
            return step()
        except OSError as error:
            raise UserError(f"{self.path}: cannot be written: {error.strerror or error}") from None


class GrowingTable:
    """A CSV file that grows by records; their numbers are also kept in `numbers`."""

    def __init__(self, file: GrowingFile, columns: Sequence[Column], numbers: Columns | None = None):
        self.file, self._columns, self._numbers = file, columns, numbers
        self._waiting: list[Any] = []
        self._written = 0
        file.write(f"{header_of(columns)}\n".encode())

    def __len__(self) -> int:
        return self._written + len(self._waiting)

    def add(self, record: Any) -> None:
        self._waiting.append(record)
        if len(self._waiting) >= RECORDS:
            self.flush()

    def flush(self) -> None:
        if not self._waiting:
            return  # `file` may be closed
        fields = by_field(self._waiting, [column.name for column in self._columns])
        if self._numbers is not None:
            self._numbers.extend(fields)
        lines = lines_of(self._columns, fields)
        self.file.write("".join([f"{line}\n" for line in lines]).encode())
        self._written += len(lines)
        self._waiting.clear()

    def show(self) -> None:
        """Make the records so far visible to other processes."""
        self.flush()
        self.file.show()

    def finish(self) -> str:
        self.flush()
        return self.file.finish()


class Spool:
    """Rows of jobs, added in any order and read in the order of submission.

    The optional columns of jobs are their last ones. Those behind the last one that some job states are left
    out of `columns` and of the rows read.
    """

    def __init__(self, path: Path, temporary: Path, numbers: Columns):
        self._file, self._temporary, self._numbers = GrowingFile(path, temporary), temporary, numbers
        self._starts, self._orders = array("Q"), array("Q")
        self._waiting: list[JobRecord] = []
        self._end = 0
        self._columns = len(required(JOBS))  # up to the last one that is stated

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of the rows so far."""
        self.flush()
        return JOBS[: self._columns]

    @property
    def orders(self) -> Sequence[int]:
        """The position of each row in the order of submission."""
        return self._orders

    def add(self, record: JobRecord, order: int) -> None:
        self._orders.append(order)
        self._waiting.append(record)
        if len(self._waiting) >= RECORDS:
            self.flush()

    def flush(self) -> None:
        if not self._waiting:
            return
        fields = by_field(self._waiting, [column.name for column in JOBS])
        self._numbers.extend(fields)
        self._columns = max(self._columns, columns_stated(fields))
        rows = [f"{line}\n".encode() for line in lines_of(JOBS, fields)]
        *starts, self._end = accumulate(map(len, rows), initial=self._end)
        self._starts.extend(starts)
        self._file.write(b"".join(rows))
        self._waiting.clear()

    def rows(self) -> Iterator[bytes]:
        """Every row, in order of submission; no job can be added afterwards."""
        self.flush()
        self._file.finish()
        self._starts.append(self._end)
        if not self._end:
            return
        absent = b"," * (len(JOBS) - self._columns) + b"\n"
        places = array("Q", sorted(range(len(self._orders)), key=self._orders.__getitem__))
        with (
            open_regular(self._temporary, links=False) as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as rows,
        ):
            for i in places:
                row = rows[self._starts[i] : self._starts[i + 1]]
                yield row.removesuffix(absent) + b"\n" if len(absent) > 1 else row
