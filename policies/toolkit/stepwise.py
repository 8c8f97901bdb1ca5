"""Jobs in the order of a key, and GPUs handed out to them one step at a time.

Under load thousands of jobs wait for the few GPUs that become free. A policy that hands out GPUs in order,
and stops when none remain, should not look at most of the jobs. Both functions here look only as far as
needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush, merge
from typing import Any

from clustersim.scheduler import JobView, State

__all__ = ["Price", "Walk", "allocate_stepwise", "jobs_by"]

Walk = Callable[[Callable[[float], bool]], Iterator[JobView]]
"""walk(fits): jobs in order. A pending job is left out if its smallest size does not fit when the walk
reaches it. Sizes that do not fit must not start to fit during the walk.
"""

Price = Callable[[JobView, int, int], float]
"""price(job, held, size): the lowest is served first. `held` and `size` are neighbours in (0, *job.sizes)."""


def jobs_by(state: State, key: Callable[[JobView], Any]) -> Walk:
    """Running and pending jobs by (`key`, order of submission).

    `key` as for `State.pending_by`: the same function object at every call, its value fixed while a job
    waits.
    """

    def rank(job: JobView) -> tuple[Any, int]:
        return key(job), job.order

    def walk(fits: Callable[[float], bool]) -> Iterator[JobView]:
        pending = state.pending_by(key, elastic=True).walk(fits)
        return merge(sorted(state.running, key=rank), pending, key=rank)

    return walk


def allocate_stepwise(walk: Walk, gpus: int, price: Price) -> dict[JobView, int]:
    """Give out `gpus` GPUs, always the cheapest next step of any job. Returns GPUs by job, in order of
    submission, without the jobs that get none.

    `walk` yields the jobs in the order of the prices of their first steps. Ties are broken by order of
    submission. A job takes no further steps once its next step is larger than the remaining GPUs.
    """
    remaining = gpus
    held: dict[JobView, int] = {}
    steps: list[tuple[float, int, int, JobView, int]] = []
    unseen = walk(lambda size: size <= remaining)

    def push(job: JobView, level: int) -> None:
        cost = price(job, job.sizes[level - 1] if level else 0, job.sizes[level])
        heappush(steps, (cost, job.order, len(held), job, level))

    def push_next_first_step() -> None:
        job = next(unseen, None)
        if job is not None:
            push(job, 0)

    push_next_first_step()
    while steps and remaining:
        *_, job, level = heappop(steps)
        size = job.sizes[level]
        added_gpus = size - held.get(job, 0)
        if added_gpus <= remaining:
            remaining -= added_gpus
            held[job] = size
            if level + 1 < len(job.sizes):
                push(job, level + 1)
        if not level:
            push_next_first_step()  # first steps come in order of price, so the heap needs only one of them
    return {job: held[job] for job in sorted(held, key=lambda job: job.order)}
