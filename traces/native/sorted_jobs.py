"""Jobs on disk, in order of submission: memory holds only a few blocks of a trace of any length."""

from __future__ import annotations

import marshal
import os
import tempfile
from collections.abc import Callable, Iterator
from heapq import merge
from itertools import pairwise
from operator import attrgetter
from typing import Any, BinaryIO, Self

from itertime.errors import UserError
from traces.job import Job, SubmissionKey, job_of, submission_key

__all__ = ["StoredJobs"]

RUN_JOBS = 50_000  # sorted at a time
BLOCK_JOBS = 1000  # read at a time
IN_MEMORY_BYTES = 4_000_000  # the most that is kept without a file

_Row = tuple[Any, ...]  # the fields of a job, then its line
_values_of = attrgetter(*Job.__dataclass_fields__)


class StoredJobs:
    """Jobs in order of submission (see `submission_order`), which can be iterated any number of times.

    Jobs are added in any order, each with its line. An external merge sort (Knuth, The Art of Computer
    Programming, vol. 3, section 5.4) sorts them in runs and merges the runs while reading. The rows lie in an
    unnamed temporary file that disappears with the process. A trace whose rows are already in order of
    submission is one run. `sha256` is the hash of the file that the jobs came from. `has_dependencies`:
    whether any job waits for another.
    """

    def __init__(self) -> None:
        self.sha256 = ""
        self.has_dependencies = False
        self._blocks = _Blocks()
        self._runs: list[list[int]] = []
        self._waiting: list[_Row] = []
        self._last: SubmissionKey | None = None
        self._length = 0

    def add(self, line: int, job: Job) -> None:
        """Add the job of a line. Raises UserError if the temporary file cannot be written."""
        self._length += 1
        if job.depends is not None:
            self.has_dependencies = True
        self._waiting.append((*_values_of(job), line))
        if len(self._waiting) >= RUN_JOBS:
            self._flush()

    def finish(self, sha256: str) -> Self:
        """Declare that all jobs have been added, and set the hash of their file."""
        self._flush()
        self.sha256 = sha256
        return self

    def ids(self) -> Iterator[tuple[int, str]]:
        """(line, id) of each job, in no particular order."""
        self._flush()
        for run in self._runs:
            for row in self._rows(run):
                yield row[-1], row[0]

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Job]:
        runs = [self._rows(run) for run in self._runs]
        rows = runs[0] if len(runs) == 1 else merge(*runs, key=_key)
        return (job_of(row[:-1]) for row in rows)

    def _rows(self, run: list[int]) -> Iterator[_Row]:
        for i in run:
            yield from marshal.loads(self._blocks[i])

    def _flush(self) -> None:
        rows, self._waiting = self._waiting, []
        if not rows:
            return
        if any(later[1] <= earlier[1] for earlier, later in pairwise(rows)):
            rows.sort(key=_key)
        if self._last is None or _key(rows[0]) < self._last:
            self._runs.append([])
        self._last = _key(rows[-1])
        for i in range(0, len(rows), BLOCK_JOBS):
            self._runs[-1].append(self._blocks.add(marshal.dumps(rows[i : i + BLOCK_JOBS])))


def _key(row: _Row) -> SubmissionKey:
    return submission_key(row[1], row[0])


class _Blocks:
    """A sequence of byte strings: in memory up to `IN_MEMORY_BYTES`, then in an unnamed file.

    Forked processes share the file, so reading does not move its position. A pickled copy holds all blocks in
    memory.
    """

    def __init__(self) -> None:
        self._places: list[tuple[int, int]] = []
        self._memory: list[bytes] = []
        self._file: BinaryIO | None = None
        self._end = 0

    def add(self, block: bytes) -> int:
        self._places.append((self._end, len(block)))
        self._end += len(block)
        if self._file is None:
            self._memory.append(block)
            if self._end > IN_MEMORY_BYTES:
                self._try(self._move_to_file)
        else:
            self._try(lambda: self._write(block))
        return len(self._places) - 1

    def __getitem__(self, i: int) -> bytes:
        if self._file is None:
            return self._memory[i]
        place, size = self._places[i]
        return os.pread(self._file.fileno(), size, place)

    def __getstate__(self) -> dict[str, Any]:
        blocks = [self[i] for i in range(len(self._places))]
        return {"_places": self._places, "_memory": blocks, "_file": None, "_end": self._end}

    def _move_to_file(self) -> None:
        self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 (lives as long as this object)
        for block in self._memory:
            self._write(block)
        self._memory.clear()

    def _write(self, block: bytes) -> None:
        assert self._file is not None
        unwritten = memoryview(block)
        while unwritten:
            unwritten = unwritten[self._file.write(unwritten) :]

    def _try(self, step: Callable[[], None]) -> None:
        try:
            step()
        except OSError as error:
            where = tempfile.gettempdir() if tempfile.tempdir else "a temporary file"
            text = f"{where}: the trace cannot be stored there: {error.strerror or error}"
            raise UserError(f"{text}; set TMPDIR to a folder with more space") from None
