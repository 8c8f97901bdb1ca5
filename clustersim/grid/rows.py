"""Cells of which a grid keeps the metrics alone: one file of rows for each batch of cells.

A file is CSV: a header, then a row for each cell with its key, its metrics and a hash of the row. It appears
whole or not at all. Metrics are written with all their digits, undefined ones as nothing.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path

from itertime.errors import UserError
from itertime.io import open_regular

from .gridfile import NUMERIC_METRICS

__all__ = ["MetricRows", "row_of", "rows_file"]

Row = Mapping[str, int | float | None]
_COLUMNS = tuple(dict.fromkeys(("offered_load", *NUMERIC_METRICS)))
_HEADER = ",".join(("cell", *_COLUMNS, "sha256"))


def row_of(key: str, summary: Mapping[str, object]) -> str:
    """The line of a cell."""
    values = (summary.get(name) for name in _COLUMNS)
    line = ",".join([key, *("" if value is None else repr(value) for value in values)])
    return f"{line},{_check(line)}"


def rows_file(lines: list[str]) -> tuple[str, bytes]:
    """The name of a new file for the lines of a batch, and its content."""
    name = f"{lines[0].partition(',')[0]}-{secrets.token_hex(4)}.csv"
    return name, ("\n".join([_HEADER, *lines]) + "\n").encode()


class MetricRows:
    """The rows in a folder, by key. `refresh` reads the files that were not there before."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._names: set[str] = set()
        self._changed_ns = -1
        self._values: dict[str, tuple[int | float | None, ...]] = {}
        self._damaged: dict[str, str] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def __getitem__(self, key: str) -> Row:
        return dict(zip(_COLUMNS, self._values[key], strict=True))

    @property
    def damaged(self) -> list[str]:
        """What is wrong with the rows that were changed and are nowhere else."""
        return [text for key, text in self._damaged.items() if key not in self._values]

    def keys(self) -> Iterator[str]:
        return iter(self._values)

    def refresh(self, *, keep_values: bool = True) -> None:
        """Read new files. Without `keep_values` only keys are kept. Rows that were changed do not count."""
        try:
            changed_ns = os.stat(self._folder).st_mtime_ns
            if changed_ns == self._changed_ns:
                return
            names = sorted(os.listdir(self._folder))
        except FileNotFoundError:
            return
        self._changed_ns = changed_ns
        for name in names:
            if name.endswith(".csv") and not name.startswith(".") and name not in self._names:
                self._names.add(name)
                self._read(self._folder / name, keep_values)

    def pass_over(self) -> None:
        """Count the files that are there as read."""
        if self._folder.is_dir():
            self._names.update(os.listdir(self._folder))

    def _read(self, path: Path, keep_values: bool) -> None:
        try:
            with open_regular(path) as file:
                header, *lines = file.read().decode().splitlines()
        except (OSError, UserError, ValueError) as error:
            self._damaged[path.name] = f"{path}: is not complete: {error}"
            return
        columns = header.split(",")[1:-1]
        places = [columns.index(name) if name in columns else -1 for name in _COLUMNS]
        for number, line in enumerate(lines, start=2):
            text, _, check = line.rpartition(",")
            key, *values = text.split(",")
            if _check(text) != check or len(values) != len(columns):
                self._damaged[key] = f"{path}:{number}: was changed"
                continue
            self._values[key] = (
                tuple(_number(values[place]) if place >= 0 else None for place in places)
                if keep_values
                else ()
            )


def _check(line: str) -> str:
    return hashlib.sha256(line.encode()).hexdigest()[:16]


def _number(text: str) -> int | float | None:
    if not text:
        return None
    return int(text) if text.lstrip("-").isdigit() else float(text)
