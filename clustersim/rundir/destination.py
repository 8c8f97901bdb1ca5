"""The destination folder of a run: that no other run writes into it, which existing contents are acceptable,
and which files are removed after a successful write.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from itertime.errors import UserError
from itertime.io import check_parquet, open_regular, shown

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

__all__ = ["REQUESTS", "SPOOL", "alive", "claimed", "remove", "usable"]

SPOOL = "jobs.spool"
"""Rows of jobs that are not yet in the order of their file."""
REQUESTS = "requests.csv"
"""The GPUs that submitted jobs ask for, for readers of a run in progress."""
_COLUMNS = {
    JOBS_CSV: {"job_id", "state", "jct_s", "gpu_seconds"},
    EVENTS_FILE: {"time_s", "event", "job_id"},
    USAGE_FILE: {"time_s", "allocated", "stranded"},
    PLANS_FILE: {"model", "plan", "iteration_s"},
}
"""Columns by which a table of a run, of any version, is told from another one of that name."""
_LONGEST_HEADER = 10_000  # bytes
_REPORT = "report.html"
_LEFT_OVER = re.compile(rf"\.({'|'.join(map(re.escape, (*OURS, SPOOL, REQUESTS)))})\.(\d+)\.(?:\w+\.)?tmp")

_NO_LOCKS = (errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
"""How some network file systems refuse to lock a folder: a run there is not kept from its folder."""


@contextmanager
def usable(folder: Path) -> Iterator[None]:
    """Claim the folder, and check that a run may write into it: UserError for one with files that no run
    wrote. Names do not decide: a trace may be `jobs.csv`.
    """
    with claimed(folder):
        _check_contents(folder)
        yield


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Make the folder, unless it is there. If the block fails, remove a folder made here.

    The folder belongs to this run or comparison until the block or the process ends. UserError for one that
    belongs to another.
    """
    is_new = not os.path.exists(folder)  # Path.exists raises for a name that is too long
    try:
        folder.mkdir(parents=True, exist_ok=True)
        claim = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise _unusable(folder, error) from None
    try:
        _lock(claim, folder)
        try:
            yield
        except BaseException:
            if is_new:
                with suppress(OSError):
                    folder.rmdir()
            raise
    finally:
        os.close(claim)  # ends the lock


def _lock(claim: int, folder: Path) -> None:
    try:
        fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        problem = "another run is writing into it; wait for its end, or choose another folder"
        raise UserError(f"{folder}: {problem}") from None
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise _unusable(folder, error) from None


def _check_contents(folder: Path) -> None:
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        raise _unusable(folder, error) from None
    foreign = [name for name in names if not _LEFT_OVER.fullmatch(name) and not _is_ours(folder / name)]
    if MANIFEST in names and MANIFEST not in foreign:
        foreign = []  # an earlier run, to which its user may have added files
    if foreign == [_REPORT] and len(names) > 1:
        foreign = []  # beside what a killed writer left
    if foreign:
        raise UserError(f"{folder}: holds {shown(foreign[0])}, which no run wrote; choose an empty folder")


def _unusable(folder: Path, error: OSError) -> UserError:
    return UserError(f"{folder}: cannot be used as a folder: {error.strerror or error}")


def _is_ours(path: Path) -> bool:
    """Whether a run wrote the file, by its content. UserError if that takes pyarrow, which is missing."""
    if path.name == JOBS_PARQUET:
        check_parquet(path)
    try:
        if path.name == MANIFEST:
            return str(read_json(path).get("format", "")).startswith("clustersim-run-")
        if path.name == SUMMARY:
            return "makespan_s" in read_json(path)
        if path.name == JOBS_PARQUET:
            import pyarrow.parquet as pq

            with open_regular(path) as file:
                return _COLUMNS[JOBS_CSV] <= set(pq.read_schema(file).names)
        with open_regular(path) as file:
            header = file.readline(_LONGEST_HEADER).decode(errors="replace")
        return path.name in _COLUMNS and _COLUMNS[path.name] <= set(header.rstrip().split(","))
    except (UserError, OSError, ValueError):  # pyarrow's errors are ValueErrors
        return False


def remove(folder: Path, *names: str) -> None:
    """Remove files of an earlier run, and temporary files of writers that were killed. Files that other
    processes are writing now stay.
    """
    left_over = [name for name in os.listdir(folder) if (m := _LEFT_OVER.fullmatch(name)) and not alive(m[2])]
    for name in (*names, *left_over):
        try:
            (folder / name).unlink(missing_ok=True)
        except OSError as error:
            raise UserError(f"{folder / name}: cannot be removed: {error.strerror or error}") from None


def alive(process: str) -> bool:
    """Whether the process of this number runs."""
    try:
        os.kill(int(process), 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True  # a process of another user
    return True
