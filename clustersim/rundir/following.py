"""Reads the event log of a run while the run writes it."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from clustersim.cluster import Cluster
from clustersim.records import EventRecord
from itertime.errors import UserError
from itertime.io import Table, open_regular, without_guard

from .csv_in import parse_rows
from .csv_out import EVENTS, header_of
from .destination import REQUESTS, alive
from .format import EVENTS_FILE, MANIFEST, cluster_in, read_json

__all__ = ["Following", "is_growing", "log_of", "stated_of"]

_BLOCK = 1 << 16  # bytes that are read at once; more for a longer row
_HEADER = f"{header_of(EVENTS)}\n".encode()
_COLUMNS = [column.name for column in EVENTS]
_UNKNOWN = "n99999g64"
"""A cluster that holds every placement, for the log of a run that does not state its own."""


class Following:
    """The event log of the run in `folder`, finished or in progress. It is never written to.

    `stated`: as of `stated_of`. `cluster`: that of the run, by default the stated one; None if its files do
    not state it. Placements outside it are a TableError. UserError if the folder holds no log. A log that is
    no regular file, as a link or a pipe, is refused.
    """

    def __init__(self, folder: str | Path, cluster: Cluster | None = None):
        self.folder = Path(folder)
        self.stated = stated_of(self.folder)
        self.cluster = cluster or _cluster_of(self.folder, self.stated)
        self._known = self.cluster or Cluster.parse(_UNKNOWN)
        self._requests: dict[str, int] = {}
        self._requests_at = 0
        self.path = log_of(self.folder)
        if self.path is None:
            raise UserError(f"{self.folder}: holds no events of a run")
        self._process = self.path.name.split(".")[3] if self.path.name != EVENTS_FILE else ""
        try:
            self._file = open_regular(self.path, links=False)
        except OSError as error:
            raise UserError(f"{self.path}: cannot be read: {error.strerror or error}") from None
        self._requests_file = self._open_requests()

    def _open_requests(self) -> BinaryIO | None:
        """The file of requests that the process of the log writes; None without one."""
        paths = self.folder.glob(f".{REQUESTS}.{self._process}.*.tmp") if self._process else ()
        for path in sorted(paths):
            with suppress(OSError):
                return open_regular(path, links=False)
        return None

    def requests(self) -> Mapping[str, int]:
        """The GPUs that the jobs of a run in progress ask for, by job, as far as it has written them."""
        if self._requests_file is not None:
            rows = _whole_rows(self._requests_file, self._requests_at)
            self._requests_at += len(rows)
            for row in csv.reader(io.StringIO(rows.decode(errors="replace"), newline="")):
                if len(row) == 2 and row[1].isdecimal():
                    self._requests[row[0]] = int(row[1])
        return self._requests

    def block(self, offset: int = 0) -> tuple[list[EventRecord], int]:
        """The events that begin at a byte of the log, and the offset behind them.

        `offset`: 0, or one that was returned. No events if no complete row follows yet. UserError and
        TableError if the file is not an event log.
        """
        start = offset
        if not offset:
            header = os.pread(self._file.fileno(), len(_HEADER), 0)
            if header != _HEADER[: len(header)]:
                raise UserError(f"{self.path}: is not an event log of this version; run the simulation again")
            if len(header) < len(_HEADER):
                return [], 0
            start = len(_HEADER)
        rows = _whole_rows(self._file, start, _BLOCK)
        if not rows:
            return [], start
        text = io.StringIO(rows.decode(errors="replace"), newline="")
        table = Table(self.path or self.folder, _COLUMNS, enumerate(csv.reader(text, strict=True), 1))
        events = list(parse_rows(table, EVENTS, EventRecord, self._known, without_guard))
        return events, start + len(rows)

    @property
    def size(self) -> int:
        """Bytes of the log so far."""
        return os.fstat(self._file.fileno()).st_size

    @property
    def status(self) -> str:
        """`running`, `complete`, or `stopped`: its process ended, or its folder was replaced, before."""
        file_status = os.fstat(self._file.fileno())
        with suppress(OSError):
            if os.path.samestat(os.stat(self.folder / EVENTS_FILE), file_status):
                done = (self.folder / MANIFEST).exists() or not self._process
                return "complete" if done else "running"
        if file_status.st_nlink and not self.folder.exists():
            return "complete"  # the folder was renamed, as those of grids are when their run is complete
        return "running" if file_status.st_nlink and self._process and alive(self._process) else "stopped"

    def is_current(self) -> bool:
        """Whether the folder still holds this log, under its first name or its last."""
        path = log_of(self.folder)
        with suppress(OSError):
            return path is not None and os.path.samestat(os.stat(path), os.fstat(self._file.fileno()))
        return False

    def close(self) -> None:
        """Close its files, which also happens when the object goes."""
        for file in (self._file, self._requests_file):
            if file is not None:
                file.close()


def _whole_rows(file: BinaryIO, start: int, size: int = _BLOCK) -> bytes:
    """Complete rows from a byte on: up to a line feed with an even number of quotes before it."""
    while True:
        content = os.pread(file.fileno(), size, start)
        end = content.rfind(b"\n") + 1
        while end and content.count(b'"', 0, end) % 2:
            end = content.rfind(b"\n", 0, end - 1) + 1
        if end or len(content) < size:
            return content[:end]
        size *= 2


def stated_of(folder: Path) -> dict[str, Any]:
    """The manifest of a run; of one in progress what it states already: cluster, policy, seed, trace. Empty
    if neither can be read.
    """
    log = log_of(folder)
    if log is None:
        return {}
    paths = [folder / MANIFEST]
    if log.name != EVENTS_FILE:
        paths = sorted(folder.glob(f".{MANIFEST}.{log.name.split('.')[3]}.*.tmp"))
    for path in paths:
        with suppress(UserError, OSError):
            return read_json(path)
    return {}


def _cluster_of(folder: Path, manifest: dict[str, Any]) -> Cluster | None:
    with suppress(UserError):
        return cluster_in(folder / MANIFEST, manifest) if manifest else None
    return None


def log_of(folder: Path) -> Path | None:
    """The log of a run in progress, else of a complete run, else of a killed one; None without any."""
    growing = [path for path in folder.glob(f".{EVENTS_FILE}.*.*.tmp") if path.name.split(".")[3].isdigit()]
    growing.sort(key=lambda path: (path.name.split(".")[3], path.name))
    running = [path for path in growing if alive(path.name.split(".")[3])]
    final = [folder / EVENTS_FILE] if (folder / EVENTS_FILE).exists() else []
    return next(iter([*running, *final, *growing]), None)


def is_growing(log: Path) -> bool:
    """Whether the process that writes a log, one of `log_of`, runs still."""
    return log.name != EVENTS_FILE and alive(log.name.split(".")[3])
