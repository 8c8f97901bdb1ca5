"""Jobs in memory by column: a few bytes for a value, and none for one that all jobs of a block have."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields
from itertools import chain, count, islice, repeat
from operator import attrgetter, eq
from typing import Any, Generic, TypeVar, overload

from traces.job import Job, maker_of

__all__ = ["PackedJobs"]

JobType = TypeVar("JobType", bound=Job)

BLOCK_JOBS = 1000
_Column = bytes | tuple[Any]
"""A column of a block: pickled, or the one value that all of its jobs have."""


class PackedJobs(Sequence[JobType], Generic[JobType]):
    """Jobs of a dataclass in the order in which they are added; a job is made when it is looked at.

    A job of a log of Slurm takes some 70 bytes, and 900 as an object with its values. Going through all jobs
    is fast, and so is looking at neighbours, since the block that was read last is kept.
    """

    def __init__(self, kind: type[JobType], jobs: Iterable[JobType] = ()):
        self.kind = kind
        self._names = [field.name for field in fields(kind)]
        self._values_of: Callable[[JobType], tuple[Any, ...]] = attrgetter(*self._names)
        self._job_of = maker_of(kind)
        self._blocks: list[list[_Column]] = []
        self._waiting: list[tuple[Any, ...]] = []
        self._last_read: tuple[int, list[tuple[Any, ...]]] = -1, []
        self.extend(jobs)

    def append(self, job: JobType) -> None:
        """Add a job."""
        self._waiting.append(self._values_of(job))
        if len(self._waiting) == BLOCK_JOBS:
            self._blocks.append(list(map(_packed, zip(*self._waiting, strict=True))))
            self._waiting = []

    def extend(self, jobs: Iterable[JobType]) -> None:
        """Add jobs."""
        for job in jobs:
            self.append(job)

    def __len__(self) -> int:
        return len(self._blocks) * BLOCK_JOBS + len(self._waiting)

    def __iter__(self) -> Iterator[JobType]:
        return map(self._job_of, self.rows(*self._names))

    @overload
    def __getitem__(self, place: int) -> JobType: ...
    @overload
    def __getitem__(self, place: slice) -> PackedJobs[JobType]: ...
    def __getitem__(self, place: int | slice) -> JobType | PackedJobs[JobType]:
        places = range(len(self))[place]
        if isinstance(places, range):
            return self.taken(places)
        block, row = divmod(places, BLOCK_JOBS)
        if block == len(self._blocks):
            return self._job_of(self._waiting[row])
        if self._last_read[0] != block:
            self._last_read = block, list(_rows(self._blocks[block]))
        return self._job_of(self._last_read[1][row])

    def rows(self, *names: str) -> Iterator[tuple[Any, ...]]:
        """The values of the fields `names` of each job."""
        places = [self._names.index(name) for name in names]
        blocks = (_rows([columns[place] for place in places]) for columns in self._blocks)
        return chain(
            chain.from_iterable(blocks), (tuple(row[place] for place in places) for row in self._waiting)
        )

    def fields_in_use(self) -> set[str]:
        """The fields in which a job has another value than the default of the field."""
        defaults = {field.name: field.default for field in fields(self.kind)}
        return {
            name
            for place, name in enumerate(self._names)
            if any(row[place] != defaults[name] for row in self._waiting)
            or any(_has_other(columns[place], defaults[name]) for columns in self._blocks)
        }

    def column(self, name: str) -> Iterator[Any]:
        """The value of a field of each job."""
        return (value for (value,) in self.rows(name))

    def taken(self, places: Sequence[int]) -> PackedJobs[JobType]:
        """The jobs of these places, in the order of `places`."""
        if len(places) == len(self) and all(map(eq, places, count())):
            return self
        jobs = PackedJobs(self.kind)
        end = len(places) // BLOCK_JOBS * BLOCK_JOBS
        jobs._blocks = [[] for _ in range(end // BLOCK_JOBS)]
        last_columns = list[list[Any]]()
        for name in self._names:  # a column at a time, so that memory holds one column and not all
            values = list(self.column(name))
            for block, start in zip(jobs._blocks, range(0, end, BLOCK_JOBS), strict=True):
                block.append(_packed(tuple(values[i] for i in places[start : start + BLOCK_JOBS])))
            last_columns.append([values[i] for i in places[end:]])
        jobs._waiting = list(zip(*last_columns, strict=True))
        return jobs

    def replaced(self, **columns: Iterable[Any]) -> PackedJobs[JobType]:
        """The jobs with other values in some fields: for each field a value of each job."""
        jobs = PackedJobs(self.kind)
        values_of = {self._names.index(name): iter(values) for name, values in columns.items()}
        for block in self._blocks:
            new_block = list(block)
            for place, values in values_of.items():
                new_block[place] = _packed(tuple(islice(values, BLOCK_JOBS)))
            jobs._blocks.append(new_block)
        for row in self._waiting:
            new_row = list(row)
            for place, values in values_of.items():
                new_row[place] = next(values)
            jobs._waiting.append(tuple(new_row))
        return jobs


def _packed(column: tuple[Any, ...]) -> _Column:
    first_value = column[0]
    if column.count(first_value) == len(column):
        # Equal numbers may be of different types.
        is_number = isinstance(first_value, int | float)
        if not is_number or len(set(map(type, column))) == 1:
            return (first_value,)
    return pickle.dumps(column, pickle.HIGHEST_PROTOCOL)


def _has_other(column: _Column, default: Any) -> bool:
    values = pickle.loads(column) if isinstance(column, bytes) else column
    return any(value != default for value in values)


def _rows(columns: Iterable[_Column]) -> Iterator[tuple[Any, ...]]:
    """The rows of a block with these columns."""
    values = [
        pickle.loads(column) if isinstance(column, bytes) else repeat(column[0], BLOCK_JOBS)
        for column in columns
    ]
    return zip(*values, strict=True)
