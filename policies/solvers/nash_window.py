"""Rounds of a window for jobs with concave gains, less a penalty on the makespan: Shockwave's program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from .assignment import without_lines_of_highs

__all__ = ["Bid", "falling", "rounds_of_window"]

_WIDE = (1, 2, 3)
"""A round holds at most m jobs that are each wider than 1 / (m + 1) of the cluster; for these m."""
_ROUNDING = 12  # digits of a gain: equal ones to that many are one piece


class Bid(NamedTuple):
    """A job that wants rounds of the window.

    | field | |
    |---|---|
    | `gpus` | in each round that it gets |
    | `gains` | of its first round, its second, ...: what each adds to the objective; they never grow |
    | `left_s` | seconds of work left |
    """

    gpus: int
    gains: tuple[float, ...]
    left_s: float


def falling(gains: Sequence[float]) -> list[float]:
    """Gains that never grow, of the least concave line above the sums of `gains`: each run of gains that grow
    has its mean. A first round that a restart shortens gains less than a second.

    >>> falling([1.0, 3.0, 2.0, 0.5])
    [2.0, 2.0, 2.0, 0.5]
    """
    runs: list[tuple[float, int]] = []
    for gain in gains:
        total, count = gain, 1
        while runs and runs[-1][0] * count < total * runs[-1][1]:
            previous_run = runs.pop()
            total, count = total + previous_run[0], count + previous_run[1]
        runs.append((total, count))
    return [total / count for total, count in runs for _ in range(count)]


def _limits_of_wide(gpus: np.ndarray, capacity: int, rounds: int) -> Iterator[tuple[np.ndarray, float]]:
    """Sets of jobs, and how many rounds each may get at most: m at once of those wider than 1 / (m + 1) of
    the cluster, and one of those of which no two fit beside each other.
    """
    for m in _WIDE:
        wide = gpus * (m + 1) > capacity
        if wide.sum() > m:
            yield wide, float(m * rounds)
    for i in np.flatnonzero(gpus * 2 <= capacity).tolist():
        rivals = gpus > max(capacity / 2, capacity - gpus[i])
        if rivals.any():
            rivals[i] = True
            yield rivals, float(rounds)


def rounds_of_window(
    bids: Sequence[Bid], capacity: int, rounds: int, round_s: float, *,
    makespan_weight: float = 0.0, other_gpu_s: float = 0.0, gap: float = 1e-3, search_nodes: int = 200,
) -> list[int] | None:  # fmt: skip
    """How many of the `rounds` each job gets, of `round_s` seconds and `capacity` GPUs each: integers n that
    maximise

        sum over jobs j of (gain of the first n[j] rounds of j) - makespan_weight x H

    with H at least the seconds that any job has left behind the window, and at least the GPU-seconds left
    then, those of `other_gpu_s` included, over the capacity. The GPUs of all rounds are one sum. That leaves
    out which rounds a job gets, on which neither gains nor H depend. Jobs too wide to run beside each other
    are limited by number. So the value is at least that of the best schedule, and equal to it where all jobs
    have equally many GPUs; a few of the rounds may have no place elsewhere.

    Equal gains of a job are one piece of its line, so the program has a few columns a job. None if HiGHS
    finds nothing in `search_nodes` nodes of its tree; it never stops by the clock.
    """
    if not bids:
        return []
    from scipy.optimize import Bounds, LinearConstraint, milp

    jobs, gpus = len(bids), np.array([bid.gpus for bid in bids], dtype=float)
    left_s = np.array([bid.left_s for bid in bids])
    pieces = [
        (j, len(list(equal_gains)), gain)
        for j, bid in enumerate(bids)
        for gain, equal_gains in groupby(round(gain, _ROUNDING) for gain in bid.gains[:rounds])
    ]
    limits = [(gpus, float(capacity * rounds)), *_limits_of_wide(gpus, capacity, rounds)]
    room = np.zeros((len(limits), jobs + len(pieces) + 1))  # columns: n, the pieces of the gains, H
    room[:, :jobs] = [row for row, _ in limits]
    constraints = [
        LinearConstraint(_sums_of_pieces(jobs, [j for j, _, _ in pieces]), 0.0, 0.0),
        LinearConstraint(room, ub=np.array([upper_bounds for _, upper_bounds in limits])),
    ]
    if makespan_weight:
        behind = np.zeros((jobs + 1, room.shape[1]))  # H + what the rounds do >= what is left
        behind[:, -1] = 1.0
        behind[np.arange(jobs), np.arange(jobs)] = round_s
        behind[-1, :jobs] = gpus * round_s / capacity
        total = (float(gpus @ left_s) + other_gpu_s) / capacity
        constraints.append(LinearConstraint(behind, lb=np.append(left_s, total)))
    upper_bounds = [*[min(rounds, len(bid.gains)) for bid in bids], *[n for _, n, _ in pieces], np.inf]
    with without_lines_of_highs():
        result = milp(
            np.array([*[0.0] * jobs, *[-gain for _, _, gain in pieces], makespan_weight]),
            integrality=np.arange(room.shape[1]) < jobs,
            bounds=Bounds(np.zeros(len(upper_bounds)), np.array(upper_bounds, dtype=float)),
            constraints=constraints,
            options={"mip_rel_gap": gap, "node_limit": search_nodes},
        )
    return None if result.x is None else np.rint(result.x[:jobs]).astype(int).tolist()


def _sums_of_pieces(jobs: int, owners: Sequence[int]) -> Any:
    """The matrix, over all columns, of: the rounds of a job less those of its pieces. `owners`: of each
    piece, the job.
    """
    from scipy.sparse import csr_array

    columns, pieces = np.arange(jobs), np.arange(len(owners))
    ones = np.concatenate([np.ones(jobs), -np.ones(len(owners))])
    places = (
        np.concatenate([columns, np.array(owners, dtype=int)]),
        np.concatenate([columns, jobs + pieces]),
    )
    return csr_array((ones, places), shape=(jobs, jobs + len(owners) + 1))
