"""The records of a run by field, for work on all of them at once: each field is collected once a run."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Sequence
from functools import wraps
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np

from clustersim.records import FINISHED, Run

__all__ = [
    "RecordTable",
    "events_of",
    "finished",
    "jobs_of",
    "numbered",
    "per_run",
    "rows_by_number",
    "snapshots_of",
]

Found = TypeVar("Found")


class RecordTable:
    """Records of one kind, field by field. A field is collected when it is first needed, and kept."""

    def __init__(self, records: Sequence[Any]):
        self._records = records
        self._values: dict[str, list[Any]] = {}
        self._numbers: dict[str, np.ndarray] = {}

    def __len__(self) -> int:
        return len(self._records)

    def values(self, name: str) -> list[Any]:
        """The values of a field, as the records have them. Not to be changed."""
        if name not in self._values:
            self._values[name] = list(map(attrgetter(name), self._records))
        return self._values[name]

    def __getitem__(self, name: str) -> np.ndarray:
        """The values of a field of numbers as 64-bit floats; None is NaN. Not to be changed."""
        if name not in self._numbers:
            self._numbers[name] = np.array(self.values(name), dtype=float)
        return self._numbers[name]

    def equal(self, name: str, text: str) -> np.ndarray:
        """For each record, whether a field of text is `text`."""
        return np.fromiter(map(text.__eq__, self.values(name)), bool, len(self))


def per_run(compute: Callable[[Run], Found]) -> Callable[[Run], Found]:
    """`compute`, with its result for each run kept as long as the run exists. The result must not hold the
    run itself, and neither its readers nor anything else may change it or the records.
    """
    result_of_run: dict[int, Found] = {}

    @wraps(compute)
    def found(run: Run) -> Found:
        key = id(run)
        if key not in result_of_run:
            result_of_run[key] = compute(run)
            weakref.finalize(run, result_of_run.pop, key, None).atexit = False
        return result_of_run[key]

    return found


@per_run
def jobs_of(run: Run) -> RecordTable:
    """The job records of a run."""
    return RecordTable(run.jobs)


@per_run
def events_of(run: Run) -> RecordTable:
    """The event log of a run."""
    return RecordTable(run.events)


@per_run
def snapshots_of(run: Run) -> RecordTable:
    """The snapshots of a run."""
    return RecordTable(run.snapshots)


@per_run
def finished(run: Run) -> np.ndarray:
    """For each job, whether it finished."""
    return jobs_of(run).equal("state", FINISHED)


def numbered(values: Sequence[Hashable]) -> tuple[list[int], list[Any]]:
    """The distinct values in order of appearance, and the number of each value among them.

    >>> numbered(["b", "a", "b"])
    ([0, 1, 0], ['b', 'a'])
    """
    distinct = list(dict.fromkeys(values))
    numbers = {value: number for number, value in enumerate(distinct)}
    return list(map(numbers.__getitem__, values)), distinct


def rows_by_number(numbers: Sequence[int] | np.ndarray, count: int) -> list[np.ndarray]:
    """For each number below `count`, the places where it stands among `numbers`."""
    if not count:
        return []
    order = np.argsort(numbers, kind="stable")
    return np.split(order, np.searchsorted(np.asarray(numbers)[order], np.arange(1, count)))
