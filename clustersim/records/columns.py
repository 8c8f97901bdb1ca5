"""Records by columns: their values field by field, and the numbers that stay in memory once records have
been written to a folder.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from operator import attrgetter
from struct import Struct
from typing import Any, Self, get_type_hints

import numpy as np

from .records import Gpus

__all__ = ["Columns", "Fields", "all_equal", "by_field"]

_SURE, _MAYBE = (int, float, bool, Gpus), (int | None, float | None, bool | None)

Fields = Mapping[str, Sequence[Any]]
"""The values of several records, field by field."""


def by_field(records: Sequence[Any], names: Sequence[str]) -> Fields:
    """The values of two or more fields."""
    if not records:
        return dict.fromkeys(names, ())
    # Named tuples of exactly these fields are rows already.
    in_order = getattr(records[0], "_fields", None) == tuple(names)
    rows = records if in_order else map(attrgetter(*names), records)
    return dict(zip(names, zip(*rows, strict=True), strict=True))


def all_equal(values: Sequence[Any]) -> bool:
    """Whether there are several values, all equal."""
    return len(values) > 1 and values.count(values[0]) == len(values)


class Columns:
    """The numeric fields of records of one kind, and text fields of few values (`coded`), in arrays.

    A number takes 8 bytes; None is NaN.
    """

    def __init__(self, kind: type, coded: Sequence[str] = ()):
        self._kind = kind
        self._sure, self._maybe = _numeric(kind)
        self._arrays = {name: array("d") for name in (*self._sure, *self._maybe)}
        self._codes: dict[str, tuple[array[int], dict[str, int]]] = {name: (array("H"), {}) for name in coded}
        self._length = 0

    @classmethod
    def of(cls, records: Iterable[Any], kind: type, coded: Sequence[str] = ()) -> Self:
        columns = cls(kind, coded)
        columns.extend(by_field(list(records), columns.names))
        return columns

    @property
    def names(self) -> list[str]:
        """The fields that are stored."""
        return [*self._arrays, *self._codes]

    def __len__(self) -> int:
        return self._length

    def extend(self, fields: Fields) -> None:
        """Add records; other fields than those in `names` are ignored."""
        length = len(next(iter(fields.values())))
        numbers = Struct(f"{length}d").pack  # several times as fast as array.extend
        for name in self._sure:
            self._arrays[name].frombytes(numbers(*fields[name]))
        for name in self._maybe:
            self._arrays[name].frombytes(np.array(fields[name], dtype=float).tobytes())
        for name, (codes, names) in self._codes.items():
            codes.extend([names.setdefault(text, len(names)) for text in fields[name]])
        self._length += length

    def where(self, mask: np.ndarray) -> Self:
        """The records for which `mask`, one truth value a record, is true."""
        part = type(self)(self._kind, tuple(self._codes))
        for name, values in self._arrays.items():
            part._arrays[name] = array("d", np.array(values)[mask].tobytes())
        for name, (codes, names) in self._codes.items():
            part._codes[name] = (array("H", np.array(codes)[mask].tobytes()), dict(names))
        part._length = int(mask.sum())
        return part

    def __getitem__(self, name: str) -> np.ndarray:
        """A column of numbers, in the order in which records were added."""
        return np.array(self._arrays[name])

    def equal(self, name: str, text: str) -> np.ndarray:
        """For each record, whether the coded field `name` is `text`."""
        codes, names = self._codes[name]
        return np.array(codes) == names.get(text, -1)


@cache
def _numeric(kind: type) -> tuple[list[str], list[str]]:
    """The fields that are numbers, and those that may also be None."""
    hints = get_type_hints(kind).items()
    return [name for name, hint in hints if hint in _SURE], [name for name, hint in hints if hint in _MAYBE]
