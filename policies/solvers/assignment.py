"""One configuration per job at the least total cost: for one GPU type by prices and a dynamic program, for
several by an integer program.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from tempfile import TemporaryFile
from threading import Lock

import numpy as np

from .divisions import Options, priced_division

__all__ = ["Choice", "assign", "without_lines_of_highs"]

Choice = tuple[tuple[int, int, float], ...]
"""A job's configurations as (number of the GPU type, GPUs, cost relative to having none), ascending."""


def assign(
    choices: Sequence[Choice], capacity: Sequence[int], *, gap: float, search_nodes: int
) -> list[tuple[int, int] | None] | None:
    """(GPU type, GPUs) by job, None for no GPUs, that fit into the `capacity` of each type at the smallest
    sum of costs.

    With one GPU type the sum is the least (`priced_division`): prices leave few jobs a choice, which takes a
    twentieth of the time of the general program. With several HiGHS solves that to a relative gap of `gap`,
    or until it has searched `search_nodes` nodes of its tree; it never stops by the clock. The result is None
    if it has found no solution until then. Jobs with equal choices share a row of integer variables, which
    spares the solver their permutations. The first of them get the larger counts, and of equal counts the
    cheaper.
    """
    rows = sorted(set(choices))
    pairs = [
        (row, type_, n, cost)
        for row, choice in enumerate(rows)
        for type_, n, cost in choice
        if n <= capacity[type_]
    ]
    if not pairs:
        return [None] * len(choices)
    row_of = {choice: row for row, choice in enumerate(rows)}
    copies = np.bincount([row_of[choice] for choice in choices])
    counts: list[int] | None
    if len(capacity) == 1:
        counts = _divide(rows, copies.tolist(), capacity[0])
    else:
        counts = _solve(pairs, copies, capacity, gap, search_nodes)
    if counts is None:
        return None
    allotted: list[list[tuple[int, int]]] = [[] for _ in rows]
    assignments = sorted(zip(pairs, counts, strict=True), key=lambda entry: (entry[0][2], -entry[0][3]))
    for (row, type_, n, _), count in assignments:
        allotted[row] += [(type_, n)] * count
    return [allotted[row].pop() if allotted[row] else None for row in (row_of[choice] for choice in choices)]


def _divide(rows: Sequence[Choice], copies: Sequence[int], gpus: int) -> list[int]:
    """The numbers of `_solve` for one GPU type, at the least sum of costs."""
    options: list[Options] = []
    first_pair, pairs = 0, []
    for choice, number in zip(rows, copies, strict=True):
        possible = [(n, cost) for _, n, cost in choice if n <= gpus]
        if not possible:
            continue
        counts = (0, *[n for n, _ in possible])
        values = np.array([0.0, *[-cost for _, cost in possible]])
        served = min(number, gpus // min(counts[1:]))  # there is room for no more of such jobs
        options += [(counts, values)] * served
        pairs += [first_pair] * served
        first_pair += len(possible)
    numbers = [0] * first_pair
    for pair, k in zip(pairs, priced_division(options, gpus), strict=True):
        if k:
            numbers[pair + k - 1] += 1
    return numbers


def _solve(
    pairs: Sequence[tuple[int, int, int, float]], copies: np.ndarray, capacity: Sequence[int],
    gap: float, search_nodes: int,
) -> list[int] | None:  # fmt: skip
    """For each of `pairs`, the number of jobs of its row that get it."""
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array

    row = np.array([pair[0] for pair in pairs])
    type_ = np.array([pair[1] for pair in pairs])
    gpus = np.array([pair[2] for pair in pairs])
    cost = np.array([pair[3] for pair in pairs])
    column = np.arange(len(pairs))
    one_each = csr_array((np.ones(len(pairs)), (row, column)), shape=(len(copies), len(pairs)))
    gpus_by_type = csr_array((gpus, (type_, column)), shape=(len(capacity), len(pairs)))
    with without_lines_of_highs():
        result = milp(
            cost,
            integrality=np.ones(len(pairs)),
            bounds=Bounds(0, copies[row]),
            constraints=[LinearConstraint(one_each, ub=copies), LinearConstraint(gpus_by_type, ub=capacity)],
            # presolve costs more than it saves on programs this small
            options={"mip_rel_gap": gap, "node_limit": search_nodes, "presolve": False},
        )
    return None if result.x is None else np.rint(result.x).astype(int).tolist()


_ONE_AT_A_TIME = Lock()
_OF_HIGHS = b"Highs"  # its lines begin with the name of a class


@contextmanager
def without_lines_of_highs() -> Iterator[None]:
    """Drop the lines that HiGHS occasionally prints to file descriptor 1, whatever its options say: stdout
    belongs to the document of a command. What other threads print meanwhile follows at the end.
    """
    with _ONE_AT_A_TIME:
        try:
            stdout = os.dup(1)
        except OSError:  # the process has no stdout
            yield
            return
        with TemporaryFile() as printed:
            try:
                os.dup2(printed.fileno(), 1)
                yield
            finally:
                os.dup2(stdout, 1)
                os.close(stdout)
                printed.seek(0)
                for line in printed:
                    if not line.startswith(_OF_HIGHS):
                        os.write(1, line)
