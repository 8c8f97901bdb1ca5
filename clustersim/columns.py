"""Records by columns of numbers: what is left in memory of records that have been written."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from functools import cache
from math import nan
from operator import attrgetter
from typing import Any, Self, get_type_hints

import numpy as np

__all__ = ["Columns"]

_NUMBERS = (int, float, bool, int | None, float | None, bool | None)


class Columns:
    """The numeric fields of records of one kind, and texts of which there are few (`coded`), in arrays.

    A number takes 8 bytes; None is NaN.
    """

    def __init__(self, kind: type, coded: Sequence[str] = ()):
        self._arrays = {name: array("d") for name in _numeric(kind)}
        self._codes: dict[str, tuple[array[int], dict[str, int]]] = {name: (array("H"), {}) for name in coded}
        self._length = 0

    @classmethod
    def of(cls, records: Iterable[Any], kind: type, coded: Sequence[str] = ()) -> Self:
        columns = cls(kind, coded)
        columns.extend(list(records))
        return columns

    def __len__(self) -> int:
        return self._length

    def extend(self, records: Sequence[Any]) -> None:
        self._length += len(records)
        for name, numbers in self._arrays.items():
            values = list(map(attrgetter(name), records))
            try:
                numbers.fromlist(values)  # all or nothing
            except TypeError:
                numbers.fromlist([nan if value is None else value for value in values])
        for name, (codes, known) in self._codes.items():
            codes.extend([known.setdefault(getattr(record, name), len(known)) for record in records])

    def __getitem__(self, name: str) -> np.ndarray:
        """A column of numbers, in the order in which records were added."""
        return np.array(self._arrays[name])

    def equal(self, name: str, text: str) -> np.ndarray:
        """For each record whether its text `name`, one of those coded, is `text`."""
        codes, known = self._codes[name]
        return np.array(codes) == known.get(text, -1)


@cache
def _numeric(kind: type) -> tuple[str, ...]:
    return tuple(name for name, hint in get_type_hints(kind).items() if hint in _NUMBERS)
