"""All jobs in the order of a key, looked at one by one as far as somebody asks.

Under load thousands of jobs wait for the few that the cluster has room for. A policy that hands out GPUs from
the front of a line, and stops when none are left, never comes to most of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import merge
from typing import Any

from clustersim.scheduler import JobView, State

__all__ = ["Walk", "everybody"]

Walk = Callable[[Callable[[int], bool]], Iterator[JobView]]
"""walk(fits): jobs in order; those that wait are left out if their smallest size does not fit when they are
looked at. What fits must not grow during the walk.
"""


def everybody(state: State, key: Callable[[JobView], Any]) -> Walk:
    """Those who run and those who wait, by (`key`, order of submission).

    `key` as for `State.pending_by`: the same function object each time, its value fixed while a job waits.
    """

    def place(job: JobView) -> tuple[Any, int]:
        return key(job), job.order

    def walk(fits: Callable[[int], bool]) -> Iterator[JobView]:
        waiting = state.pending_by(key, elastic=True).walk(fits)
        return merge(sorted(state.running, key=place), waiting, key=place)

    return walk
