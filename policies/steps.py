"""GPUs handed out step by step, each time to the job that deserves its next step most."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush

from clustersim.scheduler import JobView

__all__ = ["Price", "by_steps"]

Price = Callable[[JobView, int, int], float]
"""price(job, held, size): the lowest is served first. `held` and `size` are neighbours in (0, *job.sizes)."""


def by_steps(jobs: Sequence[JobView], gpus: int, price: Price) -> dict[JobView, int]:
    """GPUs by job, in the order of `jobs`, which is also that of ties; jobs that get none are left out.

    A step for which there are too few GPUs is passed over, and the job with it.
    """
    held: dict[JobView, int] = dict.fromkeys(jobs, 0)
    steps = [(price(job, 0, job.sizes[0]), i, 0) for i, job in enumerate(jobs)]
    heapify(steps)
    while steps and gpus:
        _, i, level = heappop(steps)
        job = jobs[i]
        size = job.sizes[level]
        if size - held[job] > gpus:
            continue
        gpus -= size - held[job]
        held[job] = size
        if level + 1 < len(job.sizes):
            heappush(steps, (price(job, size, job.sizes[level + 1]), i, level + 1))
    return {job: size for job, size in held.items() if size}
