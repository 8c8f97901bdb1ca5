"""Jobs in the order of a key, kept sorted between decisions, so that policies neither sort nor rescan them.

Pending jobs are kept in one queue for each GPU count that they need (`Ranking`): a walk that can only place
jobs of up to n GPUs looks at the heads of those queues alone, however many larger jobs wait. Where keys
change while jobs wait, a walk first looks up the keys of the queues that it reads (`ChangingRanking`).
Running jobs whose keys never grow while they work are kept by the keys that were last looked up
(`NonIncreasingKeys`).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from heapq import heapify, heappop, heapreplace
from typing import Any, Generic, Protocol, TypeVar

__all__ = [
    "ChangingRanking",
    "CurrentKeys",
    "Entry",
    "Key",
    "NonIncreasingKeys",
    "Rank",
    "Rankable",
    "Ranking",
    "RunningOrder",
]


class Rankable(Hashable, Protocol):
    """What a ranking needs of a job."""

    @property
    def order(self) -> int:
        """Position in the order of submission."""

    @property
    def needs(self) -> float:
        """The GPUs of its request that must be free."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """The useful GPU counts, ascending."""


J = TypeVar("J", bound=Rankable)

Key = Callable[[J], Any]
"""A sort key. In a `Ranking` that of a job does not change while the job waits."""
Entry = tuple[Any, int, J]
"""(key, order of submission, job), the form in which jobs are sorted."""
Rank = tuple[Any, int]
"""(key, order of submission): a place in the order."""


class Ranking(Generic[J]):
    """The pending jobs by (key, order of submission).

    The GPUs that a job needs in a `walk` are its request, or its smallest size if `elastic`; of a job that
    shares a GPU its part of it.
    """

    __slots__ = ("_added", "_entries", "_key", "_needs", "_queues", "_removed")

    def __init__(self, key: Key[J], elastic: bool = False):
        self._key = key
        self._needs: Callable[[J], float] = _smallest if elastic else _requested
        self._queues: dict[float, list[Entry[J]]] = {}
        self._entries: dict[J, Entry[J]] = {}
        self._added: dict[J, Entry[J]] | None = None  # None until `changes` is first called
        self._removed: dict[J, Entry[J]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[J]:
        return self.walk(lambda gpus: True)

    def add(self, job: J) -> None:
        entry = (self._key(job), job.order, job)
        self._entries[job] = entry
        insort(self._queues.setdefault(self._needs(job), []), entry)
        if self._added is not None:
            self._added[job] = entry

    def remove(self, job: J) -> None:
        entry = self._entries.pop(job)
        queue = self._queues[self._needs(job)]
        del queue[bisect_left(queue, entry)]
        if self._added is not None and self._added.pop(job, None) is None:
            self._removed[job] = entry

    def rerank(self, job: J) -> None:
        """Look up the key of a waiting job again. For keys that change at moments that the policy knows."""
        self.remove(job)
        self.add(job)

    def changes(self) -> tuple[Collection[Entry[J]], Collection[Entry[J]]]:
        """The entries removed and those added since the last call; the first call returns all as added.

        For a policy that keeps its own tables of waiting jobs. A job removed and added again is in both.
        """
        added = self._entries.copy() if self._added is None else self._added
        removed, self._removed, self._added = self._removed, {}, {}
        return removed.values(), added.values()

    def walk(self, fits: Callable[[float], bool]) -> Iterator[J]:
        """In order, the jobs whose GPU count satisfies `fits`.

        `fits` is called again before each job; what fits must not grow during the walk.
        """
        return (entry[2] for entry in self.entries(fits))

    def entries(self, fits: Callable[[float], bool]) -> Iterator[Entry[J]]:
        """As `walk`, with the keys by which the jobs are sorted."""
        heads = [(queue[0], 0, gpus, queue) for gpus, queue in self._queues_that(fits)]
        heapify(heads)
        while heads:
            entry, index, gpus, queue = heads[0]
            if not fits(gpus):
                heappop(heads)
                continue
            if index + 1 < len(queue):
                heapreplace(heads, (queue[index + 1], index + 1, gpus, queue))
            else:
                heappop(heads)
            yield entry

    def _queues_that(self, fits: Callable[[float], bool]) -> list[tuple[float, list[Entry[J]]]]:
        """By GPU count, the queues that have jobs and whose count satisfies `fits`."""
        return [(gpus, queue) for gpus, queue in self._queues.items() if queue and fits(gpus)]

    def outdated(self, number: int | None = None) -> Iterator[tuple[J, Any, Any]]:
        """(job, the key that it is sorted by, its key now) of each job whose key has changed.

        `number` picks one job to look at, for another number another one; None: all.
        """
        for key, _, job in list(self._entries.values()) if number is None else self._one(number):
            now = self._key(job)
            if now is not key and now != key:
                yield job, key, now

    def _one(self, number: int) -> list[Entry[J]]:
        """One of the entries, if there are any."""
        queues = [queue for queue in self._queues.values() if queue]
        if not queues:
            return []
        turn, which = divmod(number, len(queues))
        return [queues[which][turn % len(queues[which])]]


class ChangingRanking(Ranking[J]):
    """A ranking by keys that change while jobs wait. The jobs are kept by the keys that were last looked up,
    and every walk looks up the keys of all jobs whose GPU count fits when it begins.

    For n such jobs that takes n keys and a sort: n comparisons if the order has not changed since the walk
    before, n log n at most. Fewer keys would not do, since any of them may have changed.
    """

    __slots__ = ()

    def changes(self) -> tuple[Collection[Entry[J]], Collection[Entry[J]]]:
        """As for every ranking. A job with another key is in both."""
        self._queues_that(lambda gpus: True)
        return super().changes()

    def outdated(self, number: int | None = None) -> Iterator[tuple[J, Any, Any]]:
        """None: no walk relies on an earlier key."""
        return iter(())

    def _queues_that(self, fits: Callable[[float], bool]) -> list[tuple[float, list[Entry[J]]]]:
        return [(gpus, self._look_up(gpus, queue)) for gpus, queue in super()._queues_that(fits)]

    def _look_up(self, gpus: float, queue: list[Entry[J]]) -> list[Entry[J]]:
        """The queue by the present keys: a new list, since a walk may still read the old one."""
        key = self._key
        present = [(key(job), order, job) for _, order, job in queue]
        for old_key, now in zip(queue, present, strict=True):
            if now[0] != old_key[0]:
                job = now[2]
                self._entries[job] = now
                if self._added is not None:
                    if self._added.pop(job, None) is None:
                        self._removed[job] = old_key
                    self._added[job] = now
        present.sort()
        self._queues[gpus] = present
        return present


def _requested(job: Rankable) -> float:
    return job.needs


def _smallest(job: Rankable) -> float:
    needs = job.needs
    return needs if needs < 1 else job.sizes[0]


class RunningOrder(Protocol[J]):
    """The running jobs by (key, order of submission); the last ones are the first to lose their GPUs."""

    def behind(self, rank: Rank) -> list[Entry[J]]:
        """All jobs that rank behind `rank`, and possibly others; sorted by upper bounds of their keys."""

    def take_last(self, rank: Rank) -> Entry[J] | None:
        """Remove and return the last job if it ranks behind `rank`."""

    def put_back(self, entry: Entry[J]) -> None:
        """Return an entry of `take_last` to the order."""


class CurrentKeys(Generic[J]):
    """A running order for which all keys are looked up."""

    __slots__ = ("_entries",)

    def __init__(self, key: Key[J], running: Iterable[J]):
        self._entries = sorted([(key(job), job.order, job) for job in running])

    def behind(self, rank: Rank) -> list[Entry[J]]:
        return self._entries[bisect_left(self._entries, rank) :]

    def take_last(self, rank: Rank) -> Entry[J] | None:
        return self._entries.pop() if self._entries and self._entries[-1] > rank else None

    def put_back(self, entry: Entry[J]) -> None:
        insort(self._entries, entry)


class NonIncreasingKeys(Generic[J]):
    """A running order by a key that never grows while a job runs, for example its remaining time.

    A key looked up earlier is then an upper bound of the present one, and the last job by these bounds is the
    last of all if its bound equals its present key. So a decision looks up few keys.
    """

    __slots__ = ("_bounds", "_key", "_latest", "_running", "_taken")

    def __init__(self, key: Key[J]):
        self._key = key
        self._bounds: list[Entry[J]] = []  # sorted, one per job; ended jobs are removed later
        self._latest: dict[J, tuple[int, Entry[J]]] = {}  # with the number of the job's start
        self._running: Mapping[J, int] = {}
        self._taken: list[Entry[J]] = []

    def update(self, running: dict[J, int]) -> None:
        """Begin a draft: add the jobs started since the last draft, and those that it took out.

        `running`: the running jobs in the order of their starts, with a number that each start changes.
        """
        self._running = running
        for entry in self._taken:
            insort(self._bounds, entry)
        self._taken.clear()
        for job in reversed(running):
            start = running[job]
            known = self._latest.get(job)
            if known is not None and known[0] == start:
                break
            if known is not None:
                del self._bounds[bisect_left(self._bounds, known[1])]
            self._look_up(job, start)
        if len(self._bounds) > 2 * len(running) + 64:
            self._latest = {job: known for job, known in self._latest.items() if job in running}
            self._bounds = [bound for bound in self._bounds if bound[2] in self._latest]

    def behind(self, rank: Rank) -> list[Entry[J]]:
        return self._bounds[bisect_left(self._bounds, rank) :]

    def take_last(self, rank: Rank) -> Entry[J] | None:
        bounds = self._bounds
        while bounds and bounds[-1] > rank:
            bound = bounds.pop()
            job = bound[2]
            if job not in self._running:
                del self._latest[job]
            elif self._look_up(job, self._latest[job][0]) == bound:
                self._taken.append(bounds.pop())
                return bound
        return None

    def put_back(self, entry: Entry[J]) -> None:
        self._taken.remove(entry)
        insort(self._bounds, entry)

    def rerank(self, job: J) -> None:
        """Look up the key of a running job again, which may have grown."""
        known = self._latest.get(job)
        if known is None or self._running.get(job) != known[0]:
            return  # its key is looked up when the next draft begins
        start, entry = known
        if entry in self._taken:
            self._taken.remove(entry)
        else:
            del self._bounds[bisect_left(self._bounds, entry)]
        self._look_up(job, start)

    def grown(self) -> Iterator[tuple[J, Any, Any]]:
        """(job, the key last looked up, its key now) of each running job whose key has grown."""
        for job, (start, (bound, _, _)) in list(self._latest.items()):
            if self._running.get(job) == start and (now := self._key(job)) > bound:
                yield job, bound, now

    def _look_up(self, job: J, start: int) -> Entry[J]:
        entry = (self._key(job), job.order, job)
        self._latest[job] = (start, entry)
        insort(self._bounds, entry)
        return entry
