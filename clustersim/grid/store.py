"""The results folder of a grid: a cell is in it whole or not at all, whichever process is killed.

| path | holds |
|---|---|
| `grid.json` | the cells of the grid: axes, seed, key; written before anything runs |
| `cells/KEY/` | what `clustersim run --out` writes, and `cell.json`: the inputs that KEY is the hash of |
| `failures/KEY.json` | why a cell failed, with its traceback; removed when the cell succeeds |
| `locks/KEY` | held by the process that makes the cell, so that two clients do not make it twice |
| `rows/` | of a grid with `keep: rows` instead of folders in `cells/`: a file of rows for each batch |
| `bounds/` | bounds of the jobs of cells, which cells with the same jobs share |

A cell is written to `cells/.KEY.RANDOM.tmp` and renamed. Everything is JSON or CSV; nothing is unpickled.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from math import inf
from pathlib import Path
from typing import Any, BinaryIO

from clustersim.rundir import MANIFEST, MANIFEST_HASH, read_json
from itertime.errors import UserError
from itertime.io import digest, open_own, read_bytes, replacing, sha256

from .rows import MetricRows, rows_file

__all__ = ["FORMAT", "Store", "read_object", "write_json"]

FORMAT = "clustersim-grid-1"
_OURS = (
    "cells", "rows", "failures", "locks", "bounds",
    "grid.json", "timings.csv", "results.csv", "results.parquet", "comparison.csv", "report.html", "runs",
)  # fmt: skip
_CELL = "cell.json"


class Store:
    """A results folder. Keys are those of `clustersim.grid.inputs.key_of`."""

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        self.cells, self.failures, self.locks = (self.folder / n for n in ("cells", "failures", "locks"))
        self.bounds = self.folder / "bounds"
        self.rows = MetricRows(self.folder / "rows")

    def open(self) -> None:
        """Make the folder, or accept one that a grid made. UserError for any other, or if that fails."""
        try:
            names = sorted(os.listdir(self.folder)) if self.folder.exists() else []
            if names and not self.is_grid():
                problem = f"holds {names[0]}, which no grid wrote"
                raise UserError(f"{self.folder}: {problem}; choose an empty folder with --out")
            for folder in (self.cells, self.failures, self.locks, self.bounds):
                if folder.is_symlink():
                    raise UserError(f"{folder}: is a link; remove it, or let all of {self.folder} be one")
            for folder in (self.cells, self.failures, self.locks):
                folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"{self.folder}: cannot be used as a folder: {error.strerror or error}") from None

    def is_grid(self) -> bool:
        """Whether a grid wrote this folder, even if the grid was killed early or `grid.json` is damaged."""
        with suppress(UserError):
            if read_object(self.folder / "grid.json").get("format") == FORMAT:
                return True
        return all(name in _OURS or name.startswith(".") for name in os.listdir(self.folder))

    def write_rows(self, lines: list[str]) -> None:
        """Write the rows of a batch of cells (`row_of`). Claim the cells first."""
        name, content = rows_file(lines)
        folder = self.folder / "rows"
        folder.mkdir(exist_ok=True)
        _write_synced(folder / name, content)

    def cell(self, key: str) -> Path:
        return self.cells / key

    def has(self, key: str) -> bool:
        return self.cell(key).is_dir()

    def damage(self, key: str) -> str | None:
        """What is wrong with a cell in the folder; None if every byte is what was written.

        The key is the hash of the inputs in `cell.json`, which has the hash of `manifest.json`, which has
        the hashes of the other files.
        """
        folder = self.cell(key)
        try:
            cell = read_object(folder / _CELL)
            if digest(cell["inputs"])[:24] != key:
                return f"{folder / _CELL}: is not the one of this cell"
            manifest = read_bytes(folder / MANIFEST)
            if hashlib.sha256(manifest).hexdigest() != cell[MANIFEST_HASH]:
                return f"{folder / MANIFEST}: was changed"
            for name, expected in json.loads(manifest)["files"].items():
                if sha256(folder / name) != expected:
                    return f"{folder / name}: was changed"
        except (UserError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            return f"{folder}: is not complete: {error}"
        return None

    @contextmanager
    def claim(self, key: str) -> Iterator[bool]:
        """Whether this process may make the cell: not while another one does. Ends with the process."""
        path = self.locks / key
        while True:
            file = open_own(path)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.close()
                yield False
                return
            except OSError as error:
                file.close()
                problem = f"{error.strerror}; use a file system with flock"
                raise OSError(error.errno, problem, str(path)) from None
            if _same_file(file, path):
                break
            file.close()  # the last holder has just removed the file
        try:
            yield True
        finally:
            path.unlink(missing_ok=True)
            file.close()

    def drop_claim(self, key: str) -> None:
        """Remove what a killed process has left of its claim. That of a living one stays."""
        if (self.locks / key).exists():
            with self.claim(key):
                pass

    @contextmanager
    def making(self, key: str, inputs: Mapping[str, Any]) -> Iterator[Path]:
        """A folder to write a run to, which becomes the cell if the block succeeds. Claim the cell first."""
        for left_over in self.cells.glob(f".{key}.*tmp"):  # of a killed process
            shutil.rmtree(left_over, ignore_errors=True)
        temporary, place = self.cells / f".{key}.{secrets.token_hex(8)}.tmp", self.cell(key)
        temporary.mkdir()  # fails if another user has put anything in its place
        try:
            yield temporary
            manifest = sha256(temporary / MANIFEST)
            write_json(temporary / _CELL, {"format": FORMAT, MANIFEST_HASH: manifest, "inputs": inputs})
            if place.exists():  # a damaged cell
                shutil.rmtree(place)
            os.rename(temporary, place)
            _sync(self.cells)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def failure(self, key: str) -> dict[str, Any] | None:
        """The record of a cell that failed."""
        with suppress(UserError):
            return read_object(self.failures / f"{key}.json")
        return None

    def record_failure(self, key: str, record: Mapping[str, Any]) -> None:
        write_json(self.failures / f"{key}.json", record)

    def forget_failure(self, key: str) -> None:
        (self.failures / f"{key}.json").unlink(missing_ok=True)


def read_object(path: Path) -> dict[str, Any]:
    """A JSON object of a grid, of any length. UserError if there is none."""
    return read_json(path, largest=inf, remedy="run the grid again")


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """Write a JSON object whole or not at all, and flush it to disk. UserError if that fails."""
    _write_synced(path, (json.dumps(document, indent=1, allow_nan=False) + "\n").encode())


def _write_synced(path: Path, content: bytes) -> None:
    with replacing(path) as temporary, temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _same_file(file: BinaryIO, path: Path) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def _sync(folder: Path) -> None:
    """Flush a rename to disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
