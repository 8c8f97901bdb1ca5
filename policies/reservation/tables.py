"""The tables that the kernels work on: lists of objects, or arrays of records once there is machine code.

`table[i].field` means the same in both. The classes say what a row holds, as whole numbers and floats; times
are seconds on the trace's clock, and -1 stands for no row.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import inf
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Change", "Job", "Pool", "Range", "Scope", "Size", "Stretch", "Table", "Tables", "VirtualNode"]


@dataclass(slots=True)
class Scope:
    """What holds for a whole decision; a table of one row.

    `now_s`; `rows`, `types`, `virtual_nodes`, `changes`: the rows in use of the line and of each table;
    `width`: the stretches kept for each GPU type; `short_s`: see `kernels.admit`.
    """

    now_s: float = -inf
    rows: int = 0
    types: int = 0
    virtual_nodes: int = 0
    changes: int = 0
    width: int = 0
    short_s: float = 0.0


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
    | `deadline_s` | infinite without a deadline |
    | `work`, `paying_s` | units of work left, with the guard; overhead left to pay |
    | `work_then`, `paying_then`, `then_s` | the same when they were last read, and when that was |
    | `speed` | units of work/s on what it holds |
    | `is_new`, `waits` | whether it never ran; whether it could run and holds no GPUs |
    | `held`, `held_type`, `held_row` | GPUs that it holds, their type, and the row of that size (or -1) |
    | `in_place` | 1: it runs at its address; 2: it holds whole nodes alone; 0: neither |
    | `size`, `type`, `row`, `start_s`, `end_s` | its rectangle: `size` GPUs (0: none), likewise |
    | `address` | the virtual node of the rectangle; -1: whole nodes |
    | `new_...`, `skip` | its rectangle in the calendar; 1 if that is another one, or none yet |
    | `next_on` | the next job on its virtual node in the calendar |
    | `retry_s` | when to reserve anew if it is behind |
    | `target`, `target_type` | what it is to hold from now on |
    | `growth`, `step`, `step_type` | its next step: growth of GPU time per GPU, size (0: none), type |
    """

    deadline_s: float = inf
    work: float = 0.0
    paying_s: float = 0.0
    work_then: float = 0.0
    paying_then: float = 0.0
    then_s: float = 0.0
    speed: float = 0.0
    is_new: int = 0
    waits: int = 0
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
    skip: int = 0
    new_start_s: float = 0.0
    new_end_s: float = 0.0
    new_type: int = 0
    new_row: int = -1
    new_address: int = 0
    next_on: int = -1
    retry_s: float = -inf
    target: int = 0
    target_type: int = 0
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


class Tables(NamedTuple):
    """All tables. `ranges`: by row of a job x types + type. `plans`: changes that are announced; `changes`:
    those of the calendar. Vectors of rows of jobs: `line` has all jobs in the system by deadline and order of
    submission, `listed` those that are filled anew or change, `staying` those that are due and stay in place.
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
    line: Any
    listed: Any
    staying: Any


class Table:
    """Rows of one class, or whole numbers (`int`), which grow in number. `rows` is what the kernels get."""

    def __init__(self, kind: type[Any]):
        self._kind, self.compiled = kind, False
        self.rows: Any = []
        self._columns: dict[str, Any] = {}

    def __len__(self) -> int:
        return len(self.rows)

    def grow(self, count: int) -> None:
        """Have at least `count` rows."""
        self.extend([self._kind() for _ in range(count - len(self))])

    def extend(self, rows: list[Any]) -> None:
        """Add these rows."""
        if rows and self.compiled:
            self._take(np.concatenate([self.rows, self._array_of(rows)]))
        elif rows:
            self.rows += rows

    def array(self) -> Any:
        """The rows as an array."""
        return self.rows if self.compiled else self._array_of(self.rows)

    def compile(self) -> None:
        """Be an array from now on."""
        self._take(self.array())
        self.compiled = True

    def __getitem__(self, i: int) -> Any:
        """A row, to read it."""
        return self._kind(*self.rows[i].item()) if self.compiled else self.rows[i]

    def rows_at(self, indices: list[int]) -> list[Any]:
        """Some rows, to read them."""
        if self.compiled:
            return [self._kind(*row) for row in self.rows[indices].tolist()]
        return [self.rows[i] for i in indices]

    def write(self, i: int, **values: float) -> None:
        if self.compiled:
            for name, value in values.items():
                self._columns[name][i] = value
        else:
            row = self.rows[i]
            for name, value in values.items():
                setattr(row, name, value)

    def _take(self, array: Any) -> None:
        self.rows = array
        self._columns = {name: array[name] for name in array.dtype.names or ()}

    def _array_of(self, rows: list[Any]) -> Any:
        if self._kind is int:
            return np.array(rows, np.int64)
        columns = fields(self._kind)
        kinds = [(field.name, float if field.type == "float" else np.int64) for field in columns]
        values = [tuple(getattr(row, field.name) for field in columns) for row in rows]
        return np.array(values, np.dtype(kinds, align=True))
