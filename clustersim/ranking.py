"""Pending jobs in the order of a key, kept sorted between decisions, so that a policy never sorts or
rescans the queue.

Jobs are kept apart by the GPUs they request: a walk that can only place jobs of up to n GPUs looks at the
heads of those queues alone, however many larger jobs wait.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heapreplace
from typing import Any

from .active import JobView

__all__ = ["Key", "Ranking"]

Key = Callable[[JobView], Any]
"""A sort key that stays the same while the job waits."""


class Ranking:
    """The pending jobs by (key, order of submission)."""

    __slots__ = ("_entries", "_key", "_queues")

    def __init__(self, key: Key):
        self._key = key
        self._queues: dict[int, list[tuple[Any, int, JobView]]] = {}
        self._entries: dict[JobView, tuple[Any, int, JobView]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[JobView]:
        return self.walk(lambda gpus: True)

    def add(self, job: JobView) -> None:
        entry = (self._key(job), job.order, job)
        self._entries[job] = entry
        insort(self._queues.setdefault(job.requested, []), entry)

    def remove(self, job: JobView) -> None:
        entry = self._entries.pop(job)
        queue = self._queues[job.requested]
        del queue[bisect_left(queue, entry)]

    def walk(self, fits: Callable[[int], bool]) -> Iterator[JobView]:
        """The jobs in order whose request `fits`.

        Room is asked for again before each job and must not grow during the walk.
        """
        heads = [
            (*queue[0], 0, queue) for queue in self._queues.values() if queue and fits(queue[0][2].requested)
        ]
        heapify(heads)
        while heads:
            _, _, job, index, queue = heads[0]
            if not fits(job.requested):
                heappop(heads)
                continue
            if index + 1 < len(queue):
                heapreplace(heads, (*queue[index + 1], index + 1, queue))
            else:
                heappop(heads)
            yield job
