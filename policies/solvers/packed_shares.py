"""Shares of time where two jobs may run on the same GPUs (Gavel's space sharing).

Narayanan et al., "Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads" (Gavel), OSDI
2020, section 3.1. There X[k, j] is the fraction of time that a combination k of one or two jobs spends on GPU
type j; C_m are the combinations that job m is part of:

    throughput(m, X) = sum over k in C_m and j of T[m, k, j] X[k, j]
    sum over k in C_m and j of X[k, j] <= 1;    sum over k of gpus[k] X[k, j] <= capacity[j]

Only jobs of as many GPUs form a pair, as in Gavel. n jobs have n(n - 1)/2 pairs. How much jobs slow each
other down depends on their kinds alone, so here the variable is X[m, b, j], the time that job m spends beside
any job of kind b. These times belong to pairs of jobs if and only if

    sum over m of kind a of X[m, b, j] = sum over m of kind b of X[m, a, j]        for kinds a != b
    X[m, a, j] <= sum over the other jobs m' of kind a of X[m', a, j]              for m of kind a

The first is a transport between two sets of jobs. The second is the condition for numbers to be the degrees
of a graph with weights. So the optimum is that of Gavel's program, with n times the number of kinds as
variables. A pair takes its GPUs once; each of its jobs counts half of them.

A pair in which both jobs together do no more work than one alone is left out: with the same time divided
between them, alone, both do as much. So without a pair that gains, the programs are those without sharing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .time_shares import Problem, each, grouped

__all__ = ["Partners", "packed_each", "packed_grouped"]

Array = NDArray[np.float64]
Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Partners:
    """Which jobs may share GPUs. `kind`: of each job, -1 for a job that shares with no other. `speed` (kinds,
    kinds): the speed of a job of one kind beside one of another, relative to its speed alone; 0 where no such
    pair is made.
    """

    kind: Sequence[int]
    speed: Array


@dataclass(frozen=True)
class _Packed(Problem):
    """A problem with columns (alone, type 0), (alone, type 1), ..., (beside kind 0, type 0), ...

    `kind` (rows,): the kind of a row's jobs, -1 for jobs that share with none.
    """

    kind: Indices

    def alike(self) -> bool:
        return False

    def types(self) -> Indices:
        return np.arange(self.rates.shape[1]) % len(self.capacity)

    def parts(self) -> Array:
        return np.where(np.arange(self.rates.shape[1]) < len(self.capacity), 1.0, 0.5)

    def further(self, row: Indices, column: Indices) -> tuple[Any, Any]:
        from scipy.sparse import csr_array

        types, pairs = len(self.capacity), len(row)
        shared = np.flatnonzero(column >= types)
        job_kind, partner_kind = self.kind[row[shared]], column[shared] // types - 1
        copies, on = self.copies[row[shared]], column[shared] % types
        distinct, kinds = job_kind != partner_kind, len(self.kind) + int(self.kind.max()) + 1
        low, high = np.minimum(job_kind, partner_kind)[distinct], np.maximum(job_kind, partner_kind)[distinct]
        flows, balance = np.unique((low * kinds + high) * types + on[distinct], return_inverse=True)
        sums, sum_of = np.unique(
            (job_kind * types + on)[~distinct], return_inverse=True
        )  # Y: time by kind and type
        same_kind, sum_columns = shared[~distinct], np.arange(len(sums))
        entries = [
            np.where(job_kind < partner_kind, copies, -copies)[distinct],
            copies[~distinct],
            -np.ones(len(sums)),
        ]
        where = [balance, len(flows) + sum_of, len(flows) + sum_columns]
        columns = [shared[distinct], same_kind, pairs + sum_columns]
        equal = csr_array(
            (np.concatenate(entries), (np.concatenate(where), np.concatenate(columns))),
            shape=(len(flows) + len(sums), pairs + len(sums)),
        )
        each_one = np.arange(len(same_kind))
        at_most = csr_array(  # 2 X[m] <= Y
            (
                np.repeat([2.0, -1.0], len(same_kind)),
                (np.tile(each_one, 2), np.concatenate([same_kind, pairs + sum_of])),
            ),
            shape=(len(same_kind), pairs + len(sums)),
        )
        return equal, at_most


def packed_grouped(
    rates: Array, gpus: Sequence[int], capacity: Sequence[int], weights: Sequence[float] | None,
    partners: Partners | None,
) -> tuple[Problem, list[int]]:  # fmt: skip
    """`grouped`, with columns for the time beside jobs of each kind; without `partners` the same."""
    if partners is None:
        return grouped(rates, gpus, capacity, weights)
    problem, row_of = grouped(rates, gpus, capacity, weights, partners.kind)
    kind = np.zeros(len(problem.gpus), dtype=np.int64)
    kind[row_of] = partners.kind
    return _packed(problem, kind, partners), row_of


def packed_each(
    rates: Array, gpus: Sequence[int], capacity: Sequence[int], partners: Partners | None
) -> Problem:
    """`each`, with columns for the time beside jobs of each kind; without `partners` the same."""
    problem = each(rates, gpus, capacity)
    return problem if partners is None else _packed(problem, np.array(partners.kind), partners)


def _packed(problem: Problem, kind: Indices, partners: Partners) -> _Packed:
    speed = np.where(kind[:, None] >= 0, partners.speed[kind], 0.0)  # (rows, kinds)
    packed_rates = problem.rates[:, None, :] * speed[:, :, None]
    rates = np.concatenate([problem.rates, packed_rates.reshape(len(kind), -1)], axis=1)
    return _Packed(rates, problem.gpus, problem.copies, problem.capacity, problem.weights, kind)
