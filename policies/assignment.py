"""One configuration per job, at least cost, by an integer program."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock

import numpy as np

__all__ = ["Choice", "assign"]

Choice = tuple[tuple[int, float], ...]
"""A job's configurations as (GPUs, cost relative to having none), by GPUs."""


def assign(choices: Sequence[Choice], gpus: int, *, gap: float, search_nodes: int) -> list[int] | None:
    """GPUs by job, 0 for none, such that they add up to at most `gpus` and the sum of costs is smallest.

    Solved by HiGHS to a relative gap of `gap` or until `search_nodes` nodes of its tree are done, never by
    the clock; None if it has found nothing by then. Jobs with equal choices are one row of whole numbers,
    which spares the solver their permutations; the first of them get the larger counts.
    """
    rows = sorted(set(choices))
    pairs = [(row, n, cost) for row, choice in enumerate(rows) for n, cost in choice if n <= gpus]
    if not pairs:
        return [0] * len(choices)
    row_of = {choice: row for row, choice in enumerate(rows)}
    copies = np.bincount([row_of[choice] for choice in choices])
    counts = _solve(pairs, copies, gpus, gap, search_nodes)
    if counts is None:
        return None
    hands: list[list[int]] = [[] for _ in rows]
    for (row, n, _), count in zip(pairs, counts, strict=True):
        hands[row] += [n] * count  # ascending
    return [hands[row].pop() if hands[row] else 0 for row in (row_of[choice] for choice in choices)]


def _solve(
    pairs: Sequence[tuple[int, int, float]], copies: np.ndarray, gpus: int, gap: float, search_nodes: int
) -> list[int] | None:
    """How many jobs of the row have each (row, GPUs, cost)."""
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array

    row = np.array([pair[0] for pair in pairs])
    taken = np.array([pair[1] for pair in pairs])
    cost = np.array([pair[2] for pair in pairs])
    one_each = csr_array((np.ones(len(pairs)), (row, np.arange(len(pairs)))), shape=(len(copies), len(pairs)))
    with _stdout_spared():
        result = milp(
            cost,
            integrality=np.ones(len(pairs)),
            bounds=Bounds(0, copies[row]),
            constraints=[LinearConstraint(one_each, ub=copies), LinearConstraint(taken[None, :], ub=gpus)],
            # presolve costs more than it saves on programs as small as these
            options={"mip_rel_gap": gap, "node_limit": search_nodes, "presolve": False},
        )
    return None if result.x is None else np.rint(result.x).astype(int).tolist()


_ONE_AT_A_TIME = Lock()


@contextmanager
def _stdout_spared() -> Iterator[None]:
    """Send to stderr what is written to file descriptor 1: HiGHS prints a line there now and then, whatever
    its options say, and stdout belongs to the command's document.
    """
    with _ONE_AT_A_TIME:
        stdout = os.dup(1)
        try:
            os.dup2(2, 1)
            yield
        finally:
            os.dup2(stdout, 1)
            os.close(stdout)
