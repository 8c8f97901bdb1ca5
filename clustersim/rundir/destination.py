"""The destination folder of a run: which existing contents are acceptable, and which files are removed after
a successful write.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from itertime.errors import UserError
from itertime.io import shown

from .format import (
    EVENTS_FILE,
    JOBS_CSV,
    JOBS_PARQUET,
    MANIFEST,
    OURS,
    PLANS_FILE,
    SUMMARY,
    USAGE_FILE,
    read_json,
)

__all__ = ["SPOOL", "remove", "usable"]

SPOOL = "jobs.spool"
"""Rows of jobs that are not yet in the order of their file."""
_COLUMNS = {
    JOBS_CSV: {"job_id", "state", "jct_s", "gpu_seconds"},
    EVENTS_FILE: {"time_s", "event", "job_id"},
    USAGE_FILE: {"time_s", "allocated", "stranded"},
    PLANS_FILE: {"model", "plan", "iteration_s"},
}
"""Columns by which a table of a run, of any version, is told from another one of that name."""
_LONGEST_HEADER = 10_000  # bytes
_REPORT = "report.html"
_LEFT_OVER = re.compile(rf"\.({'|'.join(map(re.escape, (*OURS, SPOOL)))})\.(\d+)\.(?:\w+\.)?tmp")


@contextmanager
def usable(folder: Path) -> Iterator[None]:
    """Make the folder, or check that a run may write into it. If the block fails, remove a folder made here.

    UserError for a folder with files that no run wrote. Names do not decide: a trace may be `jobs.csv`.
    """
    made = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        names = sorted(os.listdir(folder))
    except OSError as error:
        raise UserError(f"{folder}: cannot be used as a folder: {error.strerror or error}") from None
    foreign = [name for name in names if not _LEFT_OVER.fullmatch(name) and not _is_ours(folder / name)]
    if MANIFEST in names and MANIFEST not in foreign:
        foreign = []  # an earlier run, to which its user may have added files
    if foreign == [_REPORT] and len(names) > 1:
        foreign = []  # beside what a killed writer left
    if foreign:
        raise UserError(f"{folder}: holds {shown(foreign[0])}, which no run wrote; choose an empty folder")
    try:
        yield
    except BaseException:
        if made:
            with suppress(OSError):
                folder.rmdir()
        raise


def _is_ours(path: Path) -> bool:
    """Whether a run wrote the file, by its content."""
    try:
        if path.name == MANIFEST:
            return str(read_json(path).get("format", "")).startswith("clustersim-run-")
        if path.name == SUMMARY:
            return "makespan_s" in read_json(path)
        if path.name == JOBS_PARQUET:
            import pyarrow.parquet as pq

            return _COLUMNS[JOBS_CSV] <= set(pq.read_schema(path).names)
        with path.open("rb") as file:
            first = file.readline(_LONGEST_HEADER).decode(errors="replace")
        return path.name in _COLUMNS and _COLUMNS[path.name] <= set(first.rstrip().split(","))
    except (UserError, OSError, ValueError):  # pyarrow's errors are ValueErrors
        return False


def remove(folder: Path, *names: str) -> None:
    """Remove files of an earlier run, and temporary files of writers that were killed. Files that other
    processes are writing now stay.
    """
    left_over = [
        name for name in os.listdir(folder) if (m := _LEFT_OVER.fullmatch(name)) and not _alive(m[2])
    ]
    for name in (*names, *left_over):
        try:
            (folder / name).unlink(missing_ok=True)
        except OSError as error:
            raise UserError(f"{folder / name}: cannot be removed: {error.strerror or error}") from None


def _alive(process: str) -> bool:
    try:
        os.kill(int(process), 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True  # a process of another user
    return True
