"""What other jobs did while one job waited, and who took its place: one pass over the event log."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import groupby
from math import inf
from operator import itemgetter

from .allocations import TAKES
from .checking_sums import GIVES
from .records import EventRecord
from .run_result import Recorded

__all__ = ["WAITS", "Surroundings", "free_gpus"]

WAITS = ("submit", "preempt", "interrupt")
"""After these a job waits."""

_ENDS = ("finish", "reject", "fail")


class Others:
    """During one wait of a job: the GPU-seconds that others `held`, and which of them began `first`; who was
    `ahead` of it, and its `overtakers`.
    """

    def __init__(self) -> None:
        self.held: dict[str, float] = {}
        self.first: dict[str, int] = {}
        self.ahead: list[str] = []
        self.overtakers: dict[str, None] = {}


class Surroundings:
    """What happens around the waits of a job, and at the times at which it is preempted.

    `waits`: (from, to), one after the other; `preempted`: by time, what gave the job the GPUs that are taken.
    `takers`: who got GPUs of those nodes then. Memory holds the jobs in the system, and those that are named.
    """

    def __init__(
        self, job_id: str, waits: Sequence[tuple[float, float]], preempted: Mapping[float, EventRecord]
    ):
        self.job_id, self.preempted = job_id, preempted
        self.waits = {wait: Others() for wait in waits}
        self.takers: dict[float, list[str]] = {time_s: [] for time_s in preempted}
        self._begins = [from_s for from_s, _ in waits]
        self._spans = list(waits)
        self._order: dict[str, int] = {}  # of submission, of the jobs in the system
        self._waiting: dict[str, None] = {}
        self._held: dict[str, tuple[int, EventRecord]] = {}

    def read(self, run: Recorded) -> None:
        """Go through the log, up to where nothing more can be learnt from it."""
        last_s = max((*(to_s for _, to_s in self._spans), *self.preempted), default=-inf)
        submitted = begun = 0
        for time_s, group in groupby(run.events, key=itemgetter(0)):
            if time_s > last_s:
                break
            for event in group:
                if event.event == "submit":
                    self._order[event.job_id] = submitted
                    submitted += 1
                if event.event in GIVES:
                    self._begin(event, begun)
                    begun += 1
                elif event.event in TAKES:
                    self._end(event.job_id, time_s)
                self._note(event)
            wait = self._wait_at(time_s)
            if wait is not None and wait[0] == time_s:
                mine, order = self._order.get(self.job_id, -1), self._order
                ahead = [job_id for job_id in self._waiting if order.get(job_id, mine) < mine]
                self.waits[wait].ahead = sorted(ahead, key=order.__getitem__)
        for job_id in list(self._held):
            self._end(job_id, inf)

    def _note(self, event: EventRecord) -> None:
        """Who waits from now on, and who is in the system."""
        job_id = event.job_id
        if event.event in WAITS:
            self._waiting[job_id] = None
        else:
            self._waiting.pop(job_id, None)
        if event.event in _ENDS and job_id != self.job_id:
            self._order.pop(job_id, None)

    def _begin(self, event: EventRecord, number: int) -> None:
        now, job_id = event.time_s, event.job_id
        self._end(job_id, now)
        self._held[job_id] = number, event
        lost = self.preempted.get(now)
        if lost is not None:
            nodes = {node for node, _ in lost.placement}
            if any(node in nodes for node, _ in event.placement):
                self.takers[now].append(job_id)
        wait = self._wait_at(now)
        if wait is not None and now < wait[1] and event.event in ("start", "restart"):
            mine = self._order.get(self.job_id, inf)
            if self._order.get(job_id, -1) > mine:
                self.waits[wait].overtakers[job_id] = None

    def _end(self, job_id: str, now: float) -> None:
        """An allocation ends: it counts in every wait that it lasted into."""
        number, given = self._held.pop(job_id, (0, None))
        if given is None:
            return
        i = max(0, bisect_right(self._begins, given.time_s) - 1)
        for from_s, to_s in self._spans[i:]:
            if from_s >= now:
                break
            seconds = min(to_s, now) - max(from_s, given.time_s)
            if seconds > 0:
                others = self.waits[from_s, to_s]
                others.held[job_id] = others.held.get(job_id, 0.0) + seconds * given.gpus
                others.first.setdefault(job_id, number)

    def _wait_at(self, now: float) -> tuple[float, float] | None:
        """The last wait that has begun by now."""
        i = bisect_right(self._begins, now) - 1
        return self._spans[i] if i >= 0 else None


def free_gpus(run: Recorded, from_s: float, to_s: float, needed: int) -> tuple[int, int, float, int]:
    """The fewest and the most free GPUs over an interval of positive length, the seconds with fewer than
    `needed`, and the most that were out of service.
    """
    total = run.cluster.gpus
    least, most, short_s, down = total, 0, 0.0, 0
    now, taken, out = from_s, 0, 0

    def until(then_s: float) -> None:
        nonlocal least, most, short_s, down, now
        if then_s > now:
            free = total - taken
            least, most, down = min(least, free), max(most, free), max(down, out)
            short_s += then_s - now if free < needed else 0.0
            now = then_s

    for row in run.snapshots:
        if row.time_s >= to_s:
            break
        until(row.time_s)
        taken, out = row.allocated + row.down, row.down
    until(to_s)
    if most < needed:
        short_s = to_s - from_s  # all of it, which the sum of its parts misses by rounding
    return least, most, short_s, down
