"""GPUs handed out step by step, each time to the job that deserves its next step most.

Under load thousands of jobs wait for the few that the cluster has room for. A policy that hands out GPUs from
the front of a line, and stops when none are left, never comes to most of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush, merge
from typing import Any

from clustersim.scheduler import JobView, State

__all__ = ["Price", "Walk", "by_steps", "everybody"]

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


Price = Callable[[JobView, int, int], float]
"""price(job, held, size): the lowest is served first. `held` and `size` are neighbours in (0, *job.sizes)."""


def by_steps(walk: Walk, gpus: int, price: Price) -> dict[JobView, int]:
    """GPUs by job, in order of submission, which is also that of ties; jobs that get none are left out.

    `walk` in the order of what the first steps cost. A step for which there are too few GPUs is passed over,
    and the job with it.
    """
    left = gpus
    held: dict[JobView, int] = {}
    steps: list[tuple[float, int, int, JobView, int]] = []
    line = walk(lambda size: size <= left)

    def push(job: JobView, level: int) -> None:
        cost = price(job, job.sizes[level - 1] if level else 0, job.sizes[level])
        heappush(steps, (cost, job.order, len(held), job, level))

    def push_next() -> None:
        job = next(line, None)
        if job is not None:
            push(job, 0)

    push_next()
    while steps and left:
        *_, job, level = heappop(steps)
        size = job.sizes[level]
        more = size - held.get(job, 0)
        if more <= left:
            left -= more
            held[job] = size
            if level + 1 < len(job.sizes):
                push(job, level + 1)
        if not level:
            push_next()  # first steps come in order, so one of them is enough in the heap
    return {job: held[job] for job in sorted(held, key=lambda job: job.order)}
