"""Jobs in the order of a key, kept sorted between decisions, so that a policy never sorts or rescans them.

Pending jobs are kept apart by the GPUs they need (`Ranking`): a walk that can only place jobs of up to n
GPUs looks at the heads of those queues alone, however many larger jobs wait. Running jobs whose keys fall as
they work are kept by the keys that were last looked up (`FallingKeys`).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterator
from heapq import heapify, heappop, heapreplace
from typing import Any

from .active import JobView

__all__ = ["Entry", "FallingKeys", "Key", "Ranking"]

Key = Callable[[JobView], Any]
"""A sort key that stays the same while the job waits."""
Entry = tuple[Any, int, JobView]
"""(key, order of submission, job), as they are sorted."""


class Ranking:
    """The pending jobs by (key, order of submission).

    What a job needs at least, to be asked for by `walk`, is its request, or if `elastic` its smallest size.
    """

    __slots__ = ("_came", "_entries", "_key", "_left", "_needs", "_queues")

    def __init__(self, key: Key, elastic: bool = False):
        self._key = key
        self._needs = _smallest if elastic else _requested
        self._queues: dict[int, list[Entry]] = {}
        self._entries: dict[JobView, Entry] = {}
        self._came: dict[JobView, Entry] | None = None  # nobody asks for changes
        self._left: dict[JobView, Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[JobView]:
        return self.walk(lambda gpus: True)

    def add(self, job: JobView) -> None:
        entry = (self._key(job), job.order, job)
        self._entries[job] = entry
        insort(self._queues.setdefault(self._needs(job), []), entry)
        if self._came is not None:
            self._came[job] = entry

    def remove(self, job: JobView) -> None:
        entry = self._entries.pop(job)
        queue = self._queues[self._needs(job)]
        del queue[bisect_left(queue, entry)]
        if self._came is not None and self._came.pop(job, None) is None:
            self._left[job] = entry

    def changes(self) -> tuple[Collection[Entry], Collection[Entry]]:
        """The entries that left and those that came since the last call; at the first call all have come.

        For a policy that keeps its own tables of those who wait. A job that left and came back is in both.
        """
        came = self._entries.copy() if self._came is None else self._came
        left, self._left, self._came = self._left, {}, {}
        return left.values(), came.values()

    def walk(self, fits: Callable[[int], bool]) -> Iterator[JobView]:
        """The jobs in order who need a number of GPUs that `fits`.

        Room is asked for again before each job and must not grow during the walk.
        """
        heads = [(*queue[0], 0, gpus, queue) for gpus, queue in self._queues.items() if queue and fits(gpus)]
        heapify(heads)
        while heads:
            _, _, job, index, gpus, queue = heads[0]
            if not fits(gpus):
                heappop(heads)
                continue
            if index + 1 < len(queue):
                heapreplace(heads, (*queue[index + 1], index + 1, gpus, queue))
            else:
                heappop(heads)
            yield job


def _requested(job: JobView) -> int:
    return job.requested


def _smallest(job: JobView) -> int:
    return job.sizes[0]


class FallingKeys:
    """Running jobs by a key that never grows while a job runs, such as its remaining time.

    A key looked up earlier is then an upper bound of what it is now: a job whose bound lies below a limit
    need not be looked at again to know that its key does too.
    """

    __slots__ = ("_bounds", "_key", "_latest")

    def __init__(self, key: Key):
        self._key = key
        self._bounds: list[Entry] = []  # sorted; also of jobs that no longer run, until `_forget`
        self._latest: dict[JobView, tuple[int, Entry]] = {}  # with the job's allocation

    def beyond(self, limit: tuple[Any, int], running: dict[JobView, None]) -> list[Entry]:
        """The entries of `running` (by start) that are above `limit`, ascending, by the keys
        of now.
        """
        self._note_starts(running)
        first = bisect_left(self._bounds, limit)
        candidates, self._bounds[first:] = self._bounds[first:], []
        beyond = []
        for bound in candidates:
            job = bound[2]
            allocation, latest = self._latest.get(job, (0, None))
            if latest is not bound:
                continue  # of an earlier allocation
            if not job.running:
                del self._latest[job]
                continue
            entry = (self._key(job), job.order, job)
            self._latest[job] = (allocation, entry)
            if entry > limit:
                beyond.append(entry)
            else:
                insort(self._bounds, entry)
        beyond.sort()
        self._bounds += beyond
        return beyond

    def _note_starts(self, running: dict[JobView, None]) -> None:
        """Look up the keys of the jobs that started since the last call: the last ones of `running`."""
        for job in reversed(running):
            allocation = job._job.generation
            known = self._latest.get(job)
            if known is not None and known[0] == allocation:
                break
            entry = (self._key(job), job.order, job)
            self._latest[job] = (allocation, entry)
            insort(self._bounds, entry)
        if len(self._bounds) > 2 * len(running) + 64:
            self._forget()

    def _forget(self) -> None:
        """Drop what no longer runs."""
        self._latest = {job: known for job, known in self._latest.items() if job.running}
        self._bounds = [b for b in self._bounds if self._latest.get(b[2], (0, None))[1] is b]
