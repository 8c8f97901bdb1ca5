"""Who gets how much of shared links: max-min fair shares by progressive filling.

A job sends over some links at once, `demand[link]` bytes/s over each when nothing holds it back. Its *share*
is the fraction of that which it gets, the same on all of its links, at most 1: a collective is as fast as
its slowest hop. All shares grow together from 0; when a link is full, the jobs on it keep what they have;
the others go on (Bertsekas and Gallager, Data Networks, 2nd edition, 1992, section 6.5.2). In the result
every job has either all it asks for, or a link that is full and on which nobody has a larger share.

As each NIC has an equal part in its job's demand, equal shares are equal bandwidths per NIC.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heapreplace
from math import isclose
from typing import Generic, TypeVar

__all__ = ["Links", "max_min_shares"]

Job = TypeVar("Job", bound=Hashable)
Demand = Mapping[int, float]
_FULL = 1.0 - 1e-12  # rounding of the sums aside
_SAME = 1.0 + 1e-12


def max_min_shares(demands: Sequence[Demand], capacity: Mapping[int, float]) -> list[float]:
    """The share of each job: `demands` in bytes/s by link, positive; `capacity` in bytes/s by link.

    A link that is not in `capacity` holds nobody back.

    >>> max_min_shares([{0: 6.0}, {0: 6.0, 1: 6.0}, {1: 2.0}], {0: 6.0, 1: 6.0})
    [0.5, 0.5, 1.0]
    """
    shares = [1.0] * len(demands)
    fixed = [False] * len(demands)
    on_link: dict[int, list[int]] = {}
    for job, demand in enumerate(demands):
        for link in demand:
            if link in capacity:
                on_link.setdefault(link, []).append(job)
    left = {link: capacity[link] for link in on_link}

    def level_of(link: int) -> float:
        """The share at which the link is full, if all on it that still grow grow to that."""
        asked = sum([demands[job][link] for job in on_link[link] if not fixed[job]])
        if not asked or left[link] >= asked * _FULL:
            return 1.0
        return max(left[link], 0.0) / asked

    # Levels never fall while others are fixed at lower ones, so an old one is a bound, looked at again when
    # it is the lowest.
    queue = [(level, link) for link in on_link if (level := level_of(link)) < 1.0]
    heapify(queue)
    while queue:
        before, link = queue[0]
        level = level_of(link)
        if level >= 1.0:
            heappop(queue)
        elif level > before * _SAME:
            heapreplace(queue, (level, link))
        else:
            heappop(queue)
            for job in on_link[link]:
                if not fixed[job]:
                    fixed[job], shares[job] = True, level
                    for other in demands[job]:
                        if other in left:
                            left[other] -= level * demands[job][other]
    return shares


class Links(Generic[Job]):
    """The links and who sends over them. After some changes, `settle` gives the new shares.

    Shares are worked out again only for jobs connected to a change through links that are asked for more
    than they carry; a link with room for everybody on it connects nobody.
    """

    def __init__(self, capacity: Mapping[int, float]):
        self._capacity = dict(capacity)
        self._demands: dict[Job, Demand] = {}
        self._most: dict[Job, Demand] = {}  # what it sends if nobody else is there
        self._on_link: dict[int, dict[Job, None]] = {}
        self._hot: dict[int, None] = {}  # asked for all that they carry, or more
        self._shares: dict[Job, float] = {}
        self._touched: dict[int, None] = {}
        self._fresh: dict[Job, None] = {}

    def share(self, job: Job) -> float:
        """The job's share as of the last `settle`; 1 for one that sends over no link."""
        return self._shares.get(job, 1.0)

    def add(self, job: Job, demand: Demand) -> None:
        """Let `job`, which must not be here yet, send `demand` bytes/s by link."""
        assert job not in self._demands
        known = {link: amount for link, amount in demand.items() if link in self._capacity and amount > 0}
        alone = min((self._capacity[link] / amount for link, amount in known.items()), default=1.0)
        self._demands[job] = known
        self._most[job] = {link: min(alone, 1.0) * amount for link, amount in known.items()}
        self._fresh[job] = None
        for link in known:
            self._on_link.setdefault(link, {})[job] = None
            self._touched[link] = None

    def remove(self, job: Job) -> None:
        """Forget `job`; nothing happens if it is not here."""
        for link in self._demands.pop(job, ()):
            del self._on_link[link][job]
            self._touched[link] = None
        self._most.pop(job, None)
        self._shares.pop(job, None)
        self._fresh.pop(job, None)

    def settle(self) -> list[tuple[Job, float]]:
        """The jobs whose share is new or has changed since the last call, with it."""
        was_hot = [link for link in self._touched if link in self._hot]
        for link in self._touched:
            self._measure(link)
        now_hot = [link for link in self._touched if link in self._hot]
        jobs = self._connected([*was_hot, *now_hot])
        for job in self._fresh:
            jobs.setdefault(job)
        self._touched, self._fresh = {}, {}
        demands = [{link: d for link, d in self._demands[job].items() if link in self._hot} for job in jobs]
        changed = []
        for job, share in zip(jobs, max_min_shares(demands, self._capacity), strict=True):
            before = self._shares.get(job, 0.0)
            if not isclose(before, share, rel_tol=1e-12):
                self._shares[job] = share
                changed.append((job, share))
        return changed

    def _measure(self, link: int) -> None:
        asked = sum([self._most[job][link] for job in self._on_link[link]])
        if asked > self._capacity[link] * _FULL:
            self._hot[link] = None
        else:
            self._hot.pop(link, None)

    def _connected(self, links: Iterable[int]) -> dict[Job, None]:
        """The jobs that hot links connect to somebody on `links`, in an order that depends on what happened
        alone.
        """
        jobs: dict[Job, None] = {}
        seen = dict.fromkeys(links)
        queue = list(seen)
        while queue:
            for job in self._on_link[queue.pop()]:
                if job not in jobs:
                    jobs[job] = None
                    more = [link for link in self._demands[job] if link in self._hot and link not in seen]
                    seen.update(dict.fromkeys(more))
                    queue += more
        return jobs
