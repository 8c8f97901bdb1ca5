"""Reads the event log of a run while the run writes it."""

from __future__ import annotations

import csv
import io
import os
from contextlib import suppress
from pathlib import Path

from clustersim.cluster import Cluster
from clustersim.records import EventRecord
from itertime.errors import UserError
from itertime.io import Table, without_guard

from .csv_in import parse_rows
from .csv_out import EVENTS, header_of
from .destination import alive
from .format import EVENTS_FILE, MANIFEST

__all__ = ["Following", "log_of"]

_BLOCK = 1 << 16  # bytes that are read at once; more for a longer row
_HEADER = f"{header_of(EVENTS)}\n".encode()
_COLUMNS = [column.name for column in EVENTS]
_UNKNOWN = "n99999g64"
"""A cluster that holds every placement: that of a run in progress stands in no file yet."""


class Following:
    """The event log of the run in `folder`, finished or in progress. It is never written to.

    `cluster`: that of the run, None if unknown. Placements outside it are a TableError. UserError if the
    folder holds no log. A log that is a symbolic link is refused.
    """

    def __init__(self, folder: str | Path, cluster: Cluster | None = None):
        self.folder = Path(folder)
        self._cluster = cluster or Cluster.parse(_UNKNOWN)
        self.path = log_of(self.folder)
        if self.path is None:
            raise UserError(f"{self.folder}: holds no events of a run")
        self._process = self.path.name.split(".")[3] if self.path.name != EVENTS_FILE else ""
        try:
            self._file = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise UserError(f"{self.path}: cannot be read: {error.strerror or error}") from None

    def block(self, offset: int = 0) -> tuple[list[EventRecord], int]:
        """The events that begin at a byte of the log, and the offset behind them.

        `offset`: 0, or one that was returned. No events if no complete row follows yet. UserError and
        TableError if the file is not an event log.
        """
        start = offset
        if not offset:
            first = os.pread(self._file, len(_HEADER), 0)
            if first != _HEADER[: len(first)]:
                raise UserError(f"{self.path}: is not an event log of this version; run the simulation again")
            if len(first) < len(_HEADER):
                return [], 0
            start = len(_HEADER)
        rows = self._rows(start)
        if not rows:
            return [], start
        text = io.StringIO(rows.decode(errors="replace"), newline="")
        table = Table(self.path or self.folder, _COLUMNS, enumerate(csv.reader(text, strict=True), 1))
        found = list(parse_rows(table, EVENTS, EventRecord, self._cluster, without_guard))
        return found, start + len(rows)

    def _rows(self, start: int) -> bytes:
        """Complete rows from a byte on: up to a line feed with an even number of quotes before it."""
        size = _BLOCK
        while True:
            read = os.pread(self._file, size, start)
            end = read.rfind(b"\n") + 1
            while end and read.count(b'"', 0, end) % 2:
                end = read.rfind(b"\n", 0, end - 1) + 1
            if end or len(read) < size:
                return read[:end]
            size *= 2

    @property
    def size(self) -> int:
        """Bytes of the log so far."""
        return os.fstat(self._file).st_size

    @property
    def status(self) -> str:
        """`running`, `complete`, or `stopped`: its process ended, or its folder was replaced, before."""
        own = os.fstat(self._file)
        with suppress(OSError):
            if os.path.samestat(os.stat(self.folder / EVENTS_FILE), own):
                done = (self.folder / MANIFEST).exists() or not self._process
                return "complete" if done else "running"
        return "running" if own.st_nlink and self._process and alive(self._process) else "stopped"

    def is_current(self) -> bool:
        """Whether the folder still holds this log, under its first name or its last."""
        path = log_of(self.folder)
        with suppress(OSError):
            return path is not None and os.path.samestat(os.stat(path), os.fstat(self._file))
        return False

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __del__(self) -> None:
        if getattr(self, "_file", -1) >= 0:
            self.close()


def log_of(folder: Path) -> Path | None:
    """The log of a run in progress, else of a complete run, else of a killed one; None without any."""
    growing = [path for path in folder.glob(f".{EVENTS_FILE}.*.*.tmp") if path.name.split(".")[3].isdigit()]
    growing.sort(key=lambda path: (path.name.split(".")[3], path.name))
    running = [path for path in growing if alive(path.name.split(".")[3])]
    final = [folder / EVENTS_FILE] if (folder / EVENTS_FILE).exists() else []
    return next(iter([*running, *final, *growing]), None)
