"""Jobs in the order of a key, kept sorted between decisions, so that a policy never sorts or rescans them.

Pending jobs are kept apart by the GPUs they need (`Ranking`): a walk that can only place jobs of up to n
GPUs looks at the heads of those queues alone, however many larger jobs wait. Running jobs whose keys fall as
they work are kept by the keys that were last looked up (`FallingKeys`).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterable, Iterator
from heapq import heapify, heappop, heapreplace
from typing import Any, Protocol

from .job_view import JobView

__all__ = ["Entry", "FallingKeys", "Key", "KeysOfNow", "Line", "Ranking", "Turn"]

Key = Callable[[JobView], Any]
"""A sort key that stays the same while the job waits."""
Entry = tuple[Any, int, JobView]
"""(key, order of submission, job), as they are sorted."""
Turn = tuple[Any, int]
"""(key, order of submission): where in the order a job comes."""


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


class Line(Protocol):
    """The running jobs by (key, order of submission), of whom the last have to go first."""

    def behind(self, turn: Turn) -> list[Entry]:
        """All whose turn comes after `turn`, and maybe others: ascending by a key that none exceeds."""

    def take_last(self, turn: Turn) -> Entry | None:
        """Take the last of all out of the line, if its turn comes after `turn`."""

    def put_back(self, entry: Entry) -> None:
        """Into the line again."""


class KeysOfNow:
    """A line in which all keys are looked up."""

    __slots__ = ("_entries",)

    def __init__(self, key: Key, running: Iterable[JobView]):
        self._entries = sorted([(key(job), job.order, job) for job in running])

    def behind(self, turn: Turn) -> list[Entry]:
        return self._entries[bisect_left(self._entries, turn) :]

    def take_last(self, turn: Turn) -> Entry | None:
        return self._entries.pop() if self._entries and self._entries[-1] > turn else None

    def put_back(self, entry: Entry) -> None:
        insort(self._entries, entry)


class FallingKeys:
    """A line by a key that never grows while a job runs, such as its remaining time.

    A key looked up earlier is then an upper bound of what it is now, and the last by these bounds is the last
    of all if its bound is its key of now: few need be looked at again at each decision.
    """

    __slots__ = ("_bounds", "_key", "_latest", "_taken")

    def __init__(self, key: Key):
        self._key = key
        self._bounds: list[Entry] = []  # sorted, one per job; also of some that no longer run
        self._latest: dict[JobView, tuple[int, Entry]] = {}  # with the job's allocation
        self._taken: list[Entry] = []

    def begin(self, running: dict[JobView, None]) -> None:
        """Line up those who run, in order of their start; also who was taken out before, for a draft."""
        for entry in self._taken:
            insort(self._bounds, entry)
        self._taken.clear()
        for job in reversed(running):
            allocation = job._job.generation
            known = self._latest.get(job)
            if known is not None and known[0] == allocation:
                break
            if known is not None:
                del self._bounds[bisect_left(self._bounds, known[1])]
            self._note(job, allocation)
        if len(self._bounds) > 2 * len(running) + 64:
            self._latest = {job: known for job, known in self._latest.items() if job.running}
            self._bounds = [bound for bound in self._bounds if bound[2] in self._latest]

    def behind(self, turn: Turn) -> list[Entry]:
        return self._bounds[bisect_left(self._bounds, turn) :]

    def take_last(self, turn: Turn) -> Entry | None:
        bounds = self._bounds
        while bounds and bounds[-1] > turn:
            bound = bounds.pop()
            job = bound[2]
            if not job.running:
                del self._latest[job]
            elif self._note(job, self._latest[job][0]) == bound:
                self._taken.append(bounds.pop())
                return bound
        return None

    def put_back(self, entry: Entry) -> None:
        self._taken.remove(entry)
        insort(self._bounds, entry)

    def _note(self, job: JobView, allocation: int) -> Entry:
        entry = (self._key(job), job.order, job)
        self._latest[job] = (allocation, entry)
        insort(self._bounds, entry)
        return entry
