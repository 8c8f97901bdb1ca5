"""The tables that the rules work on: rows of one kind, whole numbers and floats.

For the rules `table[i].field` is the same in plain and in machine code: rows are objects in a list, or
records in an array. All other code has `table.field[i]`, which is fast with both. Times are seconds on the
trace's clock; -1 stands for no row.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import inf
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Job", "Plan", "Pool", "Size", "Table", "Tables"]


@dataclass(slots=True)
class Job:
    """A job in the system. Its rectangle is the size `row` from `start_s` to `end_s` at `address`."""

    deadline_s: float = inf  # infinite without a deadline
    first_row: int = 0  # its sizes: from this row to before `end_row`, by type, ascending
    end_row: int = 0
    work: float = 0.0  # units of work left, with the guard
    paying_s: float = 0.0  # overhead left to pay
    work_then: float = 0.0  # both when they were last read, and when that was
    paying_then: float = 0.0
    then_s: float = 0.0
    speed: float = 0.0  # units of work/s on what it holds
    is_new: int = 0  # whether it never ran
    waits: int = 0  # whether it could run and holds no GPUs
    held: int = 0  # GPUs that it holds, their type, and the row of that size
    held_type: int = 0
    held_row: int = -1
    in_place: int = 0  # 1: it runs at its address; 2: it holds whole nodes alone; 0: neither
    row: int = -1  # of its rectangle; -1: it has none
    start_s: float = 0.0
    end_s: float = 0.0
    address: int = -1  # the virtual node; -1: whole nodes
    target: int = -1  # the size that it is to hold from now on


@dataclass(slots=True)
class Size:
    """A GPU count of a type that a job can run on: units of work/s, what a change to it and a first start
    cost at most, and the whole nodes that it takes; 0 of a size that is part of a node.
    """

    type: int = 0
    gpus: int = 0
    rate: float = 0.0
    restart_s: float = 0.0
    launch_s: float = 0.0
    nodes: int = 0


@dataclass(slots=True)
class Pool:
    """A GPU type: nodes and GPUs in service, GPUs of a node, what a GPU is worth (1: the best type); in a
    decision the `spare` GPUs, and those that no job holds (`idle`).
    """

    nodes: int = 0
    gpus: int = 0
    node_gpus: int = 1
    value: float = 1.0
    spare: int = 0
    idle: int = 0


@dataclass(slots=True)
class Plan:
    """A change that is announced: `nodes` more of a type are in service from `time_s` on."""

    time_s: float = -inf
    type: int = 0
    nodes: int = 0


class Column:
    """A field of all rows of a list."""

    def __init__(self, rows: list[Any], name: str):
        self._rows, self._name = rows, name

    def __getitem__(self, i: int) -> Any:
        return getattr(self._rows[i], self._name)

    def __setitem__(self, i: int, value: float) -> None:
        setattr(self._rows[i], self._name, value)


class Table:
    """Rows of a kind: `rows` for the rules, and an attribute for each field with its column. `compiled`:
    whether the rows are records in an array, else objects in a list.
    """

    def __init__(self, kind: type[Any]):
        self.rows: Any = []
        self.compiled, self._fields = False, fields(kind)
        for field in self._fields:
            setattr(self, field.name, Column(self.rows, field.name))

    def extend(self, rows: list[Any]) -> None:
        """Add these rows."""
        if self.compiled:
            self.show(np.concatenate([self.rows, self.array_of(rows)]))
        else:
            self.rows += rows

    def show(self, array: Any) -> None:
        """Have the rows of an array from now on. Its columns are views, which answer with Python's numbers,
        several times as fast as arrays answer with theirs.
        """
        self.rows, self.compiled = array, True
        for name in array.dtype.names:
            setattr(self, name, memoryview(array[name]))

    def array_of(self, rows: list[Any]) -> Any:
        """Rows as records in an array."""
        kinds = [(field.name, "f8" if field.type == "float" else "i8") for field in self._fields]
        values = [tuple(getattr(row, name) for name, _ in kinds) for row in rows]
        return np.array(values, np.dtype(kinds, align=True))


class Tables(NamedTuple):
    """All that a rule knows. `line`: the rows of all jobs in the system, by deadline and submission."""

    now_s: float
    line: Any
    jobs: Any
    sizes: Any
    pools: Any
    plans: Any
