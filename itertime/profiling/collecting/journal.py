"""The rows of an unfinished collection, one line of JSON each, beside the table that they will become.

A line is on the disk before the next kernel starts. So a run that is killed loses the kernel it was at, and
the same command goes on after the last whole line.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import TracebackType
from typing import Any

from itertime.errors import UserError, quoted
from itertime.io import open_own, read_bytes


class Journal:
    """`rows` by the columns of their case, as text. `about` says what is measured how; it must not change.

    Raises `UserError` for a file that is no journal, or one of another measurement.
    """

    def __init__(self, output: Path, about: dict[str, Any]):
        self.path = output.with_name(f"{output.name}.part")
        self.rows: dict[str, dict[str, Any]] = {}
        length = self._read(about)
        try:
            self._file = open_own(self.path)
            self._file.truncate(length)
            self._file.seek(length)
        except OSError as error:
            raise UserError(f"{self.path}: cannot be written: {error.strerror or error}") from error
        if not length:
            self._append(about)

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    @staticmethod
    def key(columns: dict[str, Any]) -> str:
        """The text that identifies a case."""
        return json.dumps(columns, sort_keys=True)

    def add(self, columns: dict[str, Any], row: dict[str, Any]) -> None:
        """Keep a row; it is on the disk when this returns."""
        self.rows[self.key(columns)] = row
        self._append([columns, row])

    def remove(self) -> None:
        """Delete the file, once the table is written."""
        self.path.unlink(missing_ok=True)

    def _append(self, value: Any) -> None:
        self._file.write(json.dumps(value).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def _read(self, about: dict[str, Any]) -> int:
        """Read the whole lines. Returns their bytes, after which a torn line may follow."""
        try:
            content = read_bytes(self.path, links=False)
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise UserError(f"{self.path}: cannot be read: {error.strerror or error}") from error
        lines = content.split(b"\n")[:-1]
        if not lines:
            return 0
        try:
            settings, *entries = [json.loads(line) for line in lines]
            self.rows = {self.key(columns): dict(row) for columns, row in entries}
        except (ValueError, TypeError) as error:
            raise UserError(f"{self.path}: is no unfinished collection; remove it: {error}") from error
        if settings != about:
            changed = [
                name for name in about if not isinstance(settings, dict) or settings.get(name) != about[name]
            ]
            name = changed[0] if changed else "options"
            old = settings.get(name) if isinstance(settings, dict) else settings
            raise UserError(
                f"{self.path}: an unfinished collection with {name}={quoted(old)}, not "
                f"{quoted(about.get(name))}; repeat its command to finish it, or remove the file"
            )
        return sum(len(line) + 1 for line in lines)
