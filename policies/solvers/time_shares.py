"""Shares of time: the fraction of its time that each job runs on each type of GPU, by linear programs.

Narayanan et al., "Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads" (Gavel), OSDI
2020. The variables X[m, j], the fraction of time that job m spends on GPU type j, obey (section 3.1)

    0 <= X[m, j] <= 1;    sum over j of X[m, j] <= 1;    sum over m of gpus[m] X[m, j] <= capacity[j]

and give job m the throughput(m, X) = sum over j of rates[m, j] X[m, j]. Jobs with equal rates and requests
share a row and get equal shares: all objectives here are concave, so the mean of an optimum over such jobs is
an optimum too. This keeps the programs small and their solution independent of the order of the jobs. Jobs of
different weights have rows of their own.

With a single type of GPU, X is a column, a job's relative throughput is X[m] itself, and the constraints are

    0 <= X[m] <= 1;    sum over m of load[m] X[m] <= capacity        with load[m] = gpus[m] x copies[m]

A common level is then limited either by the row that needs most of its time or by all GPUs together
(`level_of_shares`), and the largest sum is a fractional knapsack (`fullest_shares`; Dantzig, Operations
Research 1957).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Level",
    "Problem",
    "each",
    "fullest_shares",
    "grouped",
    "in_turn",
    "largest_level",
    "level_of_shares",
    "most_throughput",
    "water_filling",
]

Array = NDArray[np.float64]
_SLACK = 1e-7  # relative; HiGHS keeps constraints to an absolute 1e-7


@dataclass(frozen=True)
class Problem:
    """Rows of jobs that share a cluster; see the module's docstring.

    `rates` (rows, types): throughput of one job of the row, relative to its best type, between 0 and 1; 0
    where it cannot run. `gpus` (rows,): GPUs of one job. `copies` (rows,): number of jobs in the row.
    `capacity` (types,): GPUs of each type. `weights` (rows,): how much one job of the row counts, for
    objectives that weigh jobs.

    Where jobs share GPUs (`packed_shares`) there are more columns than types: each is a type and how the job
    runs there. The first ones are the types, with the job alone on its GPUs.
    """

    rates: Array
    gpus: Array
    copies: Array
    capacity: Array
    weights: Array

    @property
    def alone(self) -> Array:
        """The throughput of one job of the row alone on its GPUs: (rows, types)."""
        return self.rates[:, : len(self.capacity)]

    def usable(self) -> NDArray[np.bool_]:
        """Whether a row can run in a column: (rows, columns)."""
        return (self.rates > 0) & (self.gpus[:, None] <= self.capacity[self.types()][None, :])

    def types(self) -> NDArray[np.int64]:
        """The type of each column: (columns,)."""
        return np.arange(len(self.capacity))

    def parts(self) -> Array:
        """The part of its GPUs that a job in a column takes from all others: (columns,)."""
        return np.ones(len(self.capacity))

    def further(self, row: NDArray[np.int64], column: NDArray[np.int64]) -> tuple[Any, Any] | None:
        """Matrices E and L with the further constraints E (X, Y) = 0 and L (X, Y) <= 0 over the variables
        X[row, column] and any others Y >= 0; None if there are none.
        """
        return None

    def alike(self) -> bool:
        """Whether there is one type of GPU and all rows can run on it: closed forms then replace the
        solver.
        """
        return len(self.capacity) == 1 and bool(self.usable().all())


@dataclass(frozen=True)
class Level:
    """The optimum of a max-min program: `shares` X (rows, types), the common `level`, and `prices` (rows,):
    by how much one more unit of required throughput in a row would lower the level.
    """

    shares: Array
    level: float
    prices: Array


def grouped(
    rates: Array, gpus: Sequence[int], capacity: Sequence[int], weights: Sequence[float] | None = None,
    labels: Sequence[int] | None = None,
) -> tuple[Problem, list[int]]:  # fmt: skip
    """The problem with one row per distinct kind of job, and the row of each job.

    `rates` (jobs, types) in any unit; `gpus`: the request of each job; `capacity`: GPUs of each type;
    `weights` of the jobs, 1 if None. Jobs of different `labels` have rows of their own.
    """
    counts = [1.0] * len(gpus) if weights is None else weights
    kinds = [
        (n, tuple(row), weight, label)
        for n, row, weight, label in zip(
            gpus, _relative(rates).tolist(), counts, labels or [0] * len(gpus), strict=True
        )
    ]
    rows = {kind: i for i, kind in enumerate(sorted(set(kinds)))}
    row_of = [rows[kind] for kind in kinds]
    problem = Problem(
        np.array([kind[1] for kind in rows], dtype=float).reshape(len(rows), len(capacity)),
        np.array([kind[0] for kind in rows], dtype=float),
        np.bincount(row_of, minlength=len(rows)).astype(float),
        np.array(capacity, dtype=float),
        np.array([kind[2] for kind in rows], dtype=float),
    )
    return problem, row_of


def each(rates: Array, gpus: Sequence[int], capacity: Sequence[int]) -> Problem:
    """The problem with one row per job, in their order, all of weight 1; arguments as for `grouped`."""
    ones = np.ones(len(gpus))
    return Problem(_relative(rates), np.array(gpus, dtype=float), ones, np.array(capacity, dtype=float), ones)


def _relative(rates: Array) -> Array:
    """Rates relative to each job's best type, as jobs count work in different units."""
    return rates / rates.max(axis=1, keepdims=True)


def largest_level(problem: Problem, required: Array, floors: Array | None = None) -> Level:
    """Maximise the level such that throughput(m, X) >= level x required[m] in every row.

    `required` (rows,) in units of `rates`. Rows in which it is 0 must keep a throughput of `floors[m]`
    instead.
    """
    if problem.alike():
        lower_bounds = np.zeros_like(required) if floors is None else floors
        load, gpus = problem.gpus * problem.copies, float(problem.capacity[0])
        column, level, prices = level_of_shares(load, gpus, required, lower_bounds)
        return Level(_cleared(column[:, None]), level, prices)
    scale = float(required.max())
    need = required / scale
    program = _Program(problem, with_level=True)
    program.minimise[-1] = -1.0
    result = program.solve(need, floors)
    prices = -result.ineqlin.marginals[: len(need)] / scale
    return Level(program.shares(result), float(result.x[-1]) / scale, prices)


def water_filling(problem: Problem, required: Array) -> Array:
    """The shares X (rows, types) with the lexicographically largest sorted vector of
    throughput(m, X) / required[m]: no job's can grow except at the cost of a job that has no more.

    One program is solved per level. Rows with a positive price limit the level in every optimum and are fixed
    there; the others rise further.
    """
    floors, free = np.zeros_like(required), required > 0
    while True:
        best = largest_level(problem, np.where(free, required, 0.0), floors)
        stuck = free & (best.prices * required > _SLACK * float((best.prices * required).max()))
        floors[stuck] = best.level * required[stuck] * (1 - _SLACK)
        free &= ~stuck
        if not stuck.any() or not free.any():
            return best.shares


def most_throughput(problem: Problem, weights: Array, floors: Array | None = None) -> Array:
    """The shares X (rows, types) that maximise the sum over jobs of weights[m] x throughput(m, X), where each
    row keeps a throughput of at least `floors[m]`.
    """
    if problem.alike():
        lower_bounds = np.zeros_like(weights) if floors is None else floors
        load, gpus = problem.gpus * problem.copies, float(problem.capacity[0])
        return _cleared(fullest_shares(load, gpus, weights / problem.gpus, lower_bounds)[:, None])
    program = _Program(problem, with_level=False)
    program.minimise[: len(program.row)] = -(weights * problem.copies)[program.row] * program.rate
    return program.shares(program.solve(np.zeros_like(weights), floors))


def in_turn(shares: Array, row_of: Sequence[int]) -> Array:
    """The shares X (jobs, types) with the same sum over each row as `shares` (rows, types), where the first
    job of a row gets as much time as possible, then the next.
    """
    remaining = shares * np.bincount(row_of, minlength=len(shares))[:, None]
    mine = np.zeros((len(row_of), shares.shape[1]))
    for job, row in enumerate(row_of):
        time = 1.0
        for type_ in range(shares.shape[1]):
            mine[job, type_] = min(time, remaining[row, type_])
            time -= mine[job, type_]
        remaining[row] -= mine[job]
    mine[mine < _SLACK] = 0.0
    return mine


class _Program:
    """The constraints of a problem, as a sparse linear program over the usable pairs (row, column)."""

    def __init__(self, problem: Problem, with_level: bool):
        self.problem = problem
        self.row, self.column = np.nonzero(problem.usable())
        self.rate = problem.rates[self.row, self.column]
        self.with_level = with_level
        self.further = problem.further(self.row, self.column)
        self.variables = len(self.row) if self.further is None else self.further[0].shape[1]
        self.minimise = np.zeros(self.variables + with_level)

    def solve(self, need: Array, floors: Array | None) -> Any:
        """The result of `linprog`. Constraints are in the order throughput, time, GPUs, further ones."""
        from scipy.optimize import linprog
        from scipy.sparse import csr_array, vstack

        problem, types = self.problem, len(self.problem.capacity)
        rows, pairs = len(problem.rates), len(self.row)
        width, variable = len(self.minimise), np.arange(pairs)
        entries = [-self.rate, need[need > 0]] if self.with_level else [-self.rate]
        where = [self.row, np.flatnonzero(need > 0)] if self.with_level else [self.row]
        columns = [variable, np.full(int((need > 0).sum()), width - 1)] if self.with_level else [variable]
        throughput = csr_array(
            (np.concatenate(entries), (np.concatenate(where), np.concatenate(columns))), shape=(rows, width)
        )
        time = csr_array((np.ones(pairs), (self.row, variable)), shape=(rows, width))
        load = (problem.gpus * problem.copies)[self.row] * problem.parts()[self.column]
        gpus = csr_array((load, (problem.types()[self.column], variable)), shape=(types, width))
        lower_bounds = np.zeros(rows) if floors is None else floors
        at_most, limits = [throughput, time, gpus], [-lower_bounds, np.ones(rows), problem.capacity]
        equal = None
        if self.further is not None:
            equal, inequality = (
                csr_array((m.data, m.indices, m.indptr), (m.shape[0], width)) for m in self.further
            )
            at_most, limits = [*at_most, inequality], [*limits, np.zeros(inequality.shape[0])]
        result = linprog(
            self.minimise,
            A_ub=vstack(at_most, format="csr"),
            b_ub=np.concatenate(limits),
            A_eq=equal,
            b_eq=None if equal is None else np.zeros(equal.shape[0]),
            bounds=(0, None),
            method="highs-ds",
        )
        if result.x is None:
            raise ArithmeticError(f"linear program of {rows} rows and {types} GPU types: {result.message}")
        return result

    def shares(self, result: Any) -> Array:
        """X as a table, without the solver's rounding errors."""
        shares = np.zeros(self.problem.rates.shape)
        shares[self.row, self.column] = result.x[: len(self.row)]
        return _cleared(shares)


def _cleared(shares: Array) -> Array:
    """Shares clipped to 0 and 1, with rounding errors set to 0."""
    shares = np.clip(shares, 0.0, 1.0)
    shares[shares < _SLACK] = 0.0
    return shares


# One type of GPU: closed forms


def level_of_shares(
    load: Array, capacity: float, required: Array, floors: Array
) -> tuple[Array, float, Array]:
    """`largest_level` on one type of GPU: the largest level at which X[m] >= level x required[m], and
    X[m] >= floors[m] where nothing is required. Returns X (rows,), the level, and its prices (rows,).

    Where several rows need all of their time, each has an equal part of the price.

    >>> X, level, prices = level_of_shares(np.array([8., 4.]), 8.0, np.array([1., 2.]), np.zeros(2))
    >>> X, level, prices
    (array([0.5, 1. ]), 0.5, array([0.5 , 0.25]))
    """
    positive = required > 0
    remaining = max(0.0, capacity - float(load @ np.where(positive, 0.0, floors)))
    total, largest = float(load @ required), float(required.max())
    if remaining * largest <= total:
        level, prices = remaining / total, load / total
    else:
        level, longest = 1 / largest, required == largest
        prices = longest / (largest * longest.sum())
    return np.where(positive, level * required, floors), level, prices


def fullest_shares(load: Array, capacity: float, worth: Array, floors: Array) -> Array:
    """`most_throughput` on one type of GPU: X (rows,) >= floors with the largest sum of worth[m] x load[m]
    X[m].

    What the floors leave goes to the rows with the highest worth, of equal rows to the last: the jobs that
    were submitted last have received least.

    >>> fullest_shares(np.array([8., 4., 4.]), 10.0, np.array([1., 1., 2.]), np.array([0., 0.5, 0.]))
    array([0.25, 1.  , 1.  ])
    """
    order = np.argsort(worth, kind="stable")[::-1]
    room = (load * np.maximum(0.0, 1 - floors))[order]
    room_before = np.cumsum(room) - room
    remaining = capacity - float(load @ floors)
    shares = np.minimum(1.0, floors)
    shares[order] += np.clip(remaining - room_before, 0.0, room) / load[order]
    return shares
