"""The tables that the kernels work on: lists of objects, or arrays of records once there is machine code.

`table[i].field` means the same in both. The classes say what a row holds, as whole numbers and floats; times
are seconds on the trace's clock, and -1 stands for no row.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import inf
from typing import Any, NamedTuple

import numpy as np

__all__ = [
    "Change",
    "Job",
    "Pool",
    "Range",
    "Scope",
    "Size",
    "Slot",
    "Stretch",
    "Table",
    "Tables",
    "VirtualNode",
]


@dataclass(slots=True)
class Scope:
    """What holds for a whole decision; a table of one row.

    `now_s`; `rows`, `types`, `waiting`, `in_place`, `virtual_nodes`, `changes`: the rows in use of each table
    or list; `width`: the stretches kept for each GPU type; `short_s`: see `kernels.admit`; the other fields
    are the rectangle that was looked for last, and whether the job would go on there (`goes_on`).
    """

    now_s: float = 0.0
    rows: int = 0
    types: int = 0
    waiting: int = 0
    in_place: int = 0
    virtual_nodes: int = 0
    changes: int = 0
    width: int = 0
    short_s: float = 0.0
    start_s: float = 0.0
    end_s: float = 0.0
    size: int = 0
    type: int = 0
    row: int = -1
    address: int = 0
    goes_on: int = 0


@dataclass(slots=True)
class Pool:
    """A GPU type: nodes and GPUs in service, GPUs of a node, what a GPU is worth (1: the best type); in a
    decision the `spare` GPUs, those of them that are `held_back`, those that no job holds (`idle`), and the
    number of its `stretches`.
    """

    nodes: int = 0
    gpus: int = 0
    node_gpus: int = 1
    value: float = 1.0
    spare: int = 0
    held_back: int = 0
    idle: int = 0
    stretches: int = 0


@dataclass(slots=True)
class Size:
    """A GPU count that jobs of a kind can run on: units of work/s, what a change to it and a first start cost
    at most, the whole nodes that it takes, whether a job may be given it, and whether it is part of a node.
    """

    size: int = 0
    rate: float = 0.0
    restart_s: float = 0.0
    launch_s: float = 0.0
    nodes: int = 0
    reservable: int = 0
    is_part: int = 0


@dataclass(slots=True)
class Range:
    """The sizes of a job on one GPU type, ascending: rows `first` to `end`; none if it cannot run there."""

    first: int = 0
    end: int = 0


@dataclass(slots=True)
class Job:
    """A job in the system.

    | field | |
    |---|---|
    | `deadline_s`, `order` | infinite without a deadline; the order of submission |
    | `work`, `paying_s` | units of work left, with the guard; overhead left to pay |
    | `work_then`, `paying_then`, `then_s` | the same when they were last read, and when that was |
    | `speed` | units of work/s on what it holds |
    | `held`, `held_type`, `held_row` | GPUs that it holds, their type, and the row of that size (or -1) |
    | `in_place` | 1: it runs at its address; 2: it holds whole nodes alone; 0: neither |
    | `size`, `type`, `row`, `start_s`, `end_s` | its rectangle: `size` GPUs (0: none), likewise |
    | `address` | the virtual node of the rectangle; -1: whole nodes |
    | `on_launch` | 1 if its rectangle begins with a launch, not a restart, and it has not started |
    | `retry_s` | when to reserve anew if it is behind |
    | `target`, `target_type` | what it is to hold from now on |
    | `skip`, `new_...` | while jobs are filled anew: 1 for those that are, and their new rectangles |
    | `next_on`, `..._on` | the next job on its virtual node, and its rectangle there |
    | `growth`, `step`, `step_type` | its next step: growth of GPU time per GPU, size (0: none), type |
    """

    deadline_s: float = inf
    order: int = 0
    work: float = 0.0
    paying_s: float = 0.0
    work_then: float = 0.0
    paying_then: float = 0.0
    then_s: float = 0.0
    speed: float = 0.0
    held: int = 0
    held_type: int = 0
    held_row: int = -1
    in_place: int = 0
    size: int = 0
    type: int = 0
    row: int = -1
    start_s: float = 0.0
    end_s: float = 0.0
    address: int = 0
    on_launch: int = 0
    retry_s: float = -inf
    target: int = 0
    target_type: int = 0
    skip: int = 0
    new_start_s: float = 0.0
    new_end_s: float = 0.0
    new_size: int = 0
    new_type: int = 0
    new_row: int = -1
    new_address: int = 0
    new_goes_on: int = 0
    next_on: int = -1
    start_on: float = 0.0
    end_on: float = 0.0
    gpus_on: int = 0
    growth: float = 0.0
    step: int = 0
    step_type: int = 0


@dataclass(slots=True)
class Stretch:
    """Since `time_s` there are `free` whole nodes of a type, until the next stretch."""

    time_s: float = 0.0
    free: int = 0


@dataclass(slots=True)
class VirtualNode:
    """A node for small jobs: it takes one of the cluster from `opens_s` to `closes_s`. `job`: its first."""

    job: int = -1
    type: int = 0
    opens_s: float = 0.0
    closes_s: float = 0.0


@dataclass(slots=True)
class Change:
    """`nodes` more are free, or in service, from `time_s` on."""

    time_s: float = 0.0
    type: int = 0
    nodes: int = 0


@dataclass(slots=True)
class Slot:
    """Lists of rows of jobs: those that wait, by deadline; that are filled anew; of the heap; that change;
    that are due and stay in place.
    """

    waiting: int = 0
    in_place: int = 0
    filled: int = 0
    heap: int = 0
    changed: int = 0


class Tables(NamedTuple):
    """All tables. `ranges`: by row of a job x types + type. `plans`: changes that are announced; `changes`:
    those of the calendar.
    """

    scope: Any
    pools: Any
    jobs: Any
    ranges: Any
    sizes: Any
    stretches: Any
    virtual: Any
    plans: Any
    changes: Any
    slots: Any


class Table:
    """Rows of one class, which grow in number. `rows` is what the kernels get."""

    def __init__(self, row: type[Any], count: int, compiled: bool):
        self._row, self._compiled = row, False
        self.rows: Any = [row() for _ in range(count)]
        if compiled:
            self.compile()

    def __len__(self) -> int:
        return len(self.rows)

    def grow(self, count: int) -> None:
        """Have at least `count` rows."""
        self.extend([self._row() for _ in range(count - len(self))])

    def extend(self, rows: list[Any]) -> None:
        """Add these rows."""
        if rows and self._compiled:
            self._take_records(np.concatenate([self.rows, self._records_of(rows)]))
        elif rows:
            self.rows += rows

    def records(self) -> Any:
        """The rows as an array of records."""
        return self.rows if self._compiled else self._records_of(self.rows)

    def compile(self) -> None:
        """Be an array of records from now on."""
        self._take_records(self.records())
        self._compiled = True

    def __getitem__(self, i: int) -> Any:
        """A row, to read it."""
        return self._row(*self.rows[i].item()) if self._compiled else self.rows[i]

    def column(self, name: str, count: int) -> list[Any]:
        """The values of a field in the first rows."""
        if self._compiled:
            return list(self._columns[name][:count].tolist())
        return [getattr(row, name) for row in self.rows[:count]]

    def write_column(self, name: str, values: list[int]) -> None:
        """Set a field of the first rows."""
        if self._compiled:
            self._columns[name][: len(values)] = values
        else:
            for row, value in zip(self.rows, values, strict=False):
                setattr(row, name, value)

    def write(self, i: int, **values: float) -> None:
        if self._compiled:
            for name, value in values.items():
                self._columns[name][i] = value
        else:
            row = self.rows[i]
            for name, value in values.items():
                setattr(row, name, value)

    def _take_records(self, records: Any) -> None:
        self.rows = records
        self._columns = {name: records[name] for name in records.dtype.names}

    def _records_of(self, rows: list[Any]) -> Any:
        names = [field.name for field in fields(self._row)]
        kinds = [float if field.type == "float" else np.int64 for field in fields(self._row)]
        values = [tuple(getattr(row, name) for name in names) for row in rows]
        return np.array(values, np.dtype(list(zip(names, kinds, strict=True)), align=True))
