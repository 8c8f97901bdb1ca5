"""Planned runs kept on disk, so that later processes need not search again.

Each curve is one file, named by a hash of everything that the curve depends on: planner, space, model, batch,
counts, system, profile, and the source of the modules that compute it. A file is plain JSON below a line with
its key and a digest of the rest. Damaged, foreign and outdated files are ignored and replaced.
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import math
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

from itertime.errors import UserError
from itertime.io import read_bytes, write_bytes
from itertime.spec import Plan, parse_options

VARIABLE = "ITERTIME_CACHE"  # a folder, or "off"
MOST_FILES, MOST_BYTES = 2000, 64_000_000
LARGEST_FILE = 4_000_000
STALE_S = 3600.0  # age from which a temporary file counts as left by a killed process
MAGIC = "itertime-curve-1"
CODE = ("arrays.py", "cached.py", "spec", "costs", "schedule", "prediction.py", "planning")
"""The source that curves depend on: folders of the package with all their modules, and single modules."""
PACKAGE = Path(__file__).parents[1]
_FIELDS = tuple(field.name for field in fields(Plan))
_log = logging.getLogger("itertime")

Row = tuple[int, float, float, float, Plan]  # GPUs, seconds per iteration, bytes, MFU, plan


class CurveCache:
    """Curves in one folder, at most `MOST_FILES` and `MOST_BYTES` of them; the least recently used go first.

    Nothing here raises: a folder that cannot be read or written acts as an empty cache. Several processes may
    use one folder at once, since files appear whole.
    """

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)

    def key(self, *parts: object) -> str:
        """The name of a curve that depends on `parts`, each represented by its `repr`, and on the code."""
        text = repr((MAGIC, code_version(), *parts))
        return hashlib.blake2b(text.encode(), digest_size=20).hexdigest()

    def load(self, key: str) -> dict[int, Row] | None:
        """The rows kept under `key`, by the first count that each serves; None without a valid file."""
        path = self._path(key)
        try:
            rows = _parse(read_bytes(path, LARGEST_FILE, links=False), key)
        except (OSError, ValueError, TypeError, RecursionError, UserError) as error:
            if not isinstance(error, FileNotFoundError):
                _log.debug("%s is not used: %s", path, error)
            return None
        with suppress(OSError):
            os.utime(path)
        return rows

    def save(self, key: str, rows: dict[int, Row]) -> None:
        """Keeps `rows`, whole or not at all, then removes old files beyond the bounds."""
        plain_rows = [[count, *row[:4], *_plain(row[4])] for count, row in rows.items()]
        body = json.dumps(plain_rows, allow_nan=False, separators=(",", ":")).encode()
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_bytes(self._path(key), f"{MAGIC} {key} {_digest(body)}\n".encode() + body)
            self._make_room()
        except (OSError, UserError) as error:
            _log.debug("%s is not kept: %s", key, error)

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.json"

    def _make_room(self) -> None:
        """Removes leftovers of killed processes and, where a bound is exceeded, curves down to three quarters
        of the bounds.
        """
        files = sorted(self._files())
        abandoned = [entry for entry in files if entry[2].suffix == ".tmp"]
        curves = [entry for entry in files if entry[2].suffix != ".tmp"]
        removable = [path for age, _, path in abandoned if time.time() - age > STALE_S]
        total_bytes = sum(size for _, size, _ in curves)
        if len(curves) > MOST_FILES or total_bytes > MOST_BYTES:
            for index, (_, size, path) in enumerate(curves):
                if len(curves) - index <= 0.75 * MOST_FILES and total_bytes <= 0.75 * MOST_BYTES:
                    break
                removable.append(path)
                total_bytes -= size
        for path in removable:
            with suppress(OSError):
                path.unlink()

    def _files(self) -> Iterator[tuple[float, int, Path]]:
        """Time of last use, bytes and path of each file whose name is one that this module gives."""
        for entry in os.scandir(self.folder):
            name = entry.name.removeprefix(".").partition(".")[0]
            if len(name) == 40 and entry.name.endswith((".json", ".tmp")):
                with suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    yield status.st_mtime, status.st_size, Path(entry.path)


def default_cache() -> CurveCache | None:
    """The cache in the folder that `ITERTIME_CACHE` names, or in the user's cache folder by the XDG base
    directory specification; None where the variable says "off" or there is no home.
    """
    setting = os.environ.get(VARIABLE, "")
    if setting == "off":
        return None
    if setting:
        return CurveCache(setting)
    base = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(base):  # the specification says to ignore relative paths
        return CurveCache(Path(base, "itertime", "curves"))
    home = os.environ.get("HOME", "")
    return CurveCache(Path(home, ".cache", "itertime", "curves")) if os.path.isabs(home) else None


@functools.cache
def code_version() -> str:
    """A hash of the source that computes curves, read once a process."""
    return source_hash(PACKAGE, CODE)


def source_hash(root: Path, names: Iterable[str]) -> str:
    """A hash of the modules `names` below `root`, and of all modules in those that are folders."""
    digest = hashlib.sha256()
    for name in names:
        path = root / name
        for module in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            source = read_bytes(module)
            digest.update(f"{module.relative_to(root).as_posix()} {len(source)}\n".encode())
            digest.update(source)
    return digest.hexdigest()


def _plain(plan: Plan) -> list[object]:
    """The fields of a plan as JSON holds them; the options, the last one, as text."""
    *columns, options = vars(plan).values()
    return [*columns, options.text]


def _digest(body: bytes) -> str:
    return hashlib.blake2b(body, digest_size=20).hexdigest()


def _parse(content: bytes, key: str) -> dict[int, Row]:
    """The rows in a file that `save` wrote; ValueError or TypeError for any other content."""
    head, _, body = content.partition(b"\n")
    if head != f"{MAGIC} {key} {_digest(body)}".encode():
        raise ValueError("another key, or damaged")
    rows: dict[int, Row] = {}
    for count, gpus, seconds, size, mfu, *plan in json.loads(body):
        _check((count, gpus), (seconds, size, mfu), plan)
        *columns, options = plan  # the last field
        plan_fields = dict(zip(_FIELDS, [*columns, parse_options(options)], strict=True))
        rows[count] = gpus, seconds, size, mfu, Plan(**plan_fields)
    return rows


def _check(counts: Sequence[Any], numbers: Sequence[Any], plan: Sequence[Any]) -> None:
    if any(type(count) is not int or count < 1 for count in counts):
        raise ValueError(f"counts {counts}")
    if any(type(number) is not float or not 0 < number < math.inf for number in numbers):
        raise ValueError(f"numbers {numbers}")
    if len(plan) != len(_FIELDS):
        raise ValueError("another form of plan")
