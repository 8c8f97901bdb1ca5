"""The story of one job, from the records of its run: why the job waited, where it ran, and what that cost.

Records state what happened, not why the policy decided so. The explanation of a wait is how many GPUs were
free, which jobs held the others, and which jobs were ahead.
"""

from __future__ import annotations

import difflib
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from math import inf
from operator import attrgetter

from clustersim.records import (
    ALLOCATES,
    ELIGIBLE,
    ENDS,
    HOLD,
    INTERRUPT,
    LOADED,
    NOTE,
    PREEMPT,
    RATE,
    RELEASES,
    REQUEUE,
    RESTART,
    START,
    SUBMIT,
    WAITS_AFTER,
    EventRecord,
    JobRecord,
    Recorded,
)
from itertime.errors import UserError

from .allocations import stated_end_s

__all__ = ["Explanation", "Spell", "Wait", "explain"]

_MOST_COMPARED = 10_000  # ids that are compared with an unknown one, to suggest the closest

Interval = tuple[float, float]
"""From and to, in seconds on the trace's clock."""


@dataclass(frozen=True)
class Wait:
    """A time without GPUs.

    | field | meaning |
    |---|---|
    | needed | the GPUs that ended the wait, or the request if nothing ended it |
    | short_s | seconds during which fewer than `needed` were free |
    | free | the fewest and the most free GPUs |
    | holders | jobs that held GPUs meanwhile, with their GPU-seconds, most first |
    | ahead | jobs that waited when the wait began and were submitted earlier |
    | overtakers | jobs submitted later that got GPUs meanwhile, by time |
    | after | the kind of the event that began the wait |
    | down | the most GPUs out of service |
    """

    from_s: float
    to_s: float
    needed: int
    short_s: float
    free: tuple[int, int]
    holders: tuple[tuple[str, float], ...]
    ahead: tuple[str, ...]
    overtakers: tuple[str, ...]
    after: str
    down: int


@dataclass(frozen=True)
class Spell:
    """A time with GPUs.

    | field | meaning |
    |---|---|
    | given | the event that gave the GPUs |
    | ended, why | kind of the event that ended the spell (None: the run ended), and its stated reason |
    | paid_s | overhead of getting the GPUs, loads included |
    | takers | jobs that got GPUs of the same nodes at the instant of a preemption |
    | lost_s | seconds of work lost to the failure, or the requeue, that ended the spell |
    """

    given: EventRecord
    to_s: float
    ended: str | None
    paid_s: float
    takers: tuple[str, ...]
    lost_s: float = 0.0
    why: str = ""


@dataclass(frozen=True)
class Explanation:
    """The record of a job, with its waits and spells in order of time. `notes`: what the policy noted, and
    when the job was held. If the run ended before the submission, `submitted` is false and there are none of
    them.
    """

    record: JobRecord
    spells: tuple[Wait | Spell, ...]
    submitted: bool = True
    notes: tuple[EventRecord, ...] = ()


def explain(run: Recorded, job_id: str) -> Explanation:
    """The story of `job_id`. UserError, with the most similar ids, if there is no such job.

    Each table of the run is read at most twice, and only up to the end of the story.
    """
    record = next((job for job in run.jobs if job.job_id == job_id), None)
    if record is None:
        job_ids = [job.job_id for job in islice(run.jobs, _MOST_COMPARED)]
        raise UserError(f"--job {job_id}: {_instead(job_id, job_ids)}")
    job_events, last_s = _own_events(run, job_id)
    log = [event for event in job_events if event.event not in (RATE, LOADED, NOTE)]
    notes = tuple(event for event in job_events if event.event in (NOTE, HOLD, ELIGIBLE))
    loads = {event.time_s: event.overhead_s for event in job_events if event.event == LOADED}
    end_s = max(last_s, stated_end_s(run.manifest))
    pairs = [
        (event, next_event, end_s if next_event is None else next_event.time_s)
        for event, next_event in zip(log, [*log[1:], None], strict=False)  # empty for a job not submitted
    ]
    other_jobs = _Others(
        job_id,
        [(e.time_s, to_s) for e, next_event, to_s in pairs if _waits(e, next_event) and to_s > e.time_s],
        {to_s: e for e, next_event, to_s in pairs if next_event is not None and next_event.event == PREEMPT},
    )
    other_jobs.read(run)
    spells: list[Wait | Spell] = []
    for event, next_event, to_s in pairs:
        if event.event in ALLOCATES:
            loaded_s = sum(seconds for time_s, seconds in loads.items() if event.time_s < time_s <= to_s)
            spells.append(_spell(event, next_event, to_s, loaded_s, other_jobs))
        elif _waits(event, next_event) and to_s > event.time_s:
            needed_gpus = next_event.gpus if next_event is not None else record.gpus or 0
            spells.append(_wait(run, event, to_s, needed_gpus, other_jobs))
    return Explanation(record, tuple(spells), bool(log), notes)


def _waits(event: EventRecord, next_event: EventRecord | None) -> bool:
    """Whether the job waits for GPUs between `event` and its next event (None: the end of the run)."""
    return event.event in WAITS_AFTER and (next_event is None or next_event.event in ALLOCATES)


def _own_events(run: Recorded, job_id: str) -> tuple[list[EventRecord], float]:
    """The events of a job, and the time of the last event of the log up to the job's end."""
    job_events: list[EventRecord] = []
    last_s = 0.0
    for event in run.events:
        last_s = event.time_s
        if event.job_id == job_id:
            job_events.append(event)
            if event.event in ENDS:
                break
    return job_events, last_s


def _instead(job_id: str, job_ids: Sequence[str]) -> str:
    close = difflib.get_close_matches(job_id, job_ids, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(close)}?" if close else f"its jobs are {', '.join(job_ids[:3])}, ..."
    return f"the run has no such job; {hint}" if job_ids else "the run has no jobs"


def _spell(
    allocation: EventRecord, next_event: EventRecord | None, to_s: float, loaded_s: float, other_jobs: _Others
) -> Spell:
    paid_s = min(allocation.overhead_s + loaded_s, to_s - allocation.time_s)
    if next_event is None:
        return Spell(allocation, to_s, ended=None, paid_s=paid_s, takers=())
    return Spell(
        given=allocation,
        to_s=to_s,
        ended=next_event.event,
        paid_s=paid_s,
        takers=tuple(other_jobs.takers[to_s]) if next_event.event == PREEMPT else (),
        lost_s=next_event.overhead_s if next_event.event in (INTERRUPT, REQUEUE) else 0.0,
        why=next_event.detail,
    )


def _wait(run: Recorded, began: EventRecord, to_s: float, needed_gpus: int, other_jobs: _Others) -> Wait:
    from_s = began.time_s
    meanwhile = other_jobs.waits[from_s, to_s]
    fewest, most_free, short_s, down = _free_gpus(run, from_s, to_s, needed_gpus)
    held = sorted(meanwhile.held.items(), key=lambda item: (-item[1], meanwhile.first[item[0]]))
    return Wait(
        from_s=from_s,
        to_s=to_s,
        needed=needed_gpus,
        short_s=short_s,
        free=(fewest, most_free),
        holders=tuple(held),
        ahead=tuple(meanwhile.ahead),
        overtakers=tuple(meanwhile.overtakers),
        after=began.event,
        down=down,
    )


def _free_gpus(run: Recorded, from_s: float, to_s: float, needed_gpus: int) -> tuple[int, int, float, int]:
    """The fewest and the most free GPUs over an interval of positive length, the seconds with fewer than
    `needed_gpus`, and the most GPUs out of service.
    """
    total = run.cluster.gpus
    fewest, most_free, short_s, down = total, 0, 0.0, 0
    now, out = from_s, 0
    allocated: float = 0

    def advance(then_s: float) -> None:
        nonlocal fewest, most_free, short_s, down, now
        if then_s > now:
            free = int(total - allocated)  # whole ones
            fewest, most_free, down = min(fewest, free), max(most_free, free), max(down, out)
            short_s += then_s - now if free < needed_gpus else 0.0
            now = then_s

    for row in run.snapshots:
        if row.time_s >= to_s:
            break
        advance(row.time_s)
        allocated, out = row.allocated + row.down, row.down
    advance(to_s)
    if most_free < needed_gpus:
        short_s = to_s - from_s  # exactly all of it, free of the rounding of the sum
    return fewest, most_free, short_s, down


# Other jobs


class _Meanwhile:
    """Other jobs during one wait. `held`: GPU-seconds by job. `first`: the number of the first allocation of
    each holder, the tie-break between equal holders. `ahead`, `overtakers`: as in `Wait`.
    """

    def __init__(self) -> None:
        self.held: dict[str, float] = {}
        self.first: dict[str, int] = {}
        self.ahead: list[str] = []
        self.overtakers: dict[str, None] = {}


class _Others:
    """Other jobs during the waits of a job and at its preemptions, from one pass over the event log.

    `waits`: the intervals of the waits, in order. `preempted`: by time of a preemption, the event that had
    given the job its GPUs. `takers`: by the same time, the jobs that got GPUs on those nodes. Only the jobs
    in the system and the jobs that the result names are kept in memory.
    """

    def __init__(self, job_id: str, waits: Sequence[Interval], preempted: Mapping[float, EventRecord]):
        self.job_id, self.preempted = job_id, preempted
        self.waits = {wait: _Meanwhile() for wait in waits}
        self.takers: dict[float, list[str]] = {time_s: [] for time_s in preempted}
        self._intervals = list(waits)
        self._begins = [from_s for from_s, _ in waits]
        self._order: dict[str, int] = {}  # of submission, for the jobs in the system
        self._waiting: dict[str, None] = {}
        self._allocations: dict[str, tuple[int, EventRecord]] = {}  # in force, with their numbers

    def read(self, run: Recorded) -> None:
        """Read the log up to the last wait's end or the last preemption, whichever is later."""
        last_s = max((*(to_s for _, to_s in self._intervals), *self.preempted), default=-inf)
        submitted = allocated = 0
        for time_s, group in groupby(run.events, key=attrgetter("time_s")):
            if time_s > last_s:
                break
            for event in group:
                if event.event == SUBMIT:
                    self._order[event.job_id] = submitted
                    submitted += 1
                if event.event in ALLOCATES:
                    self._allocate(event, allocated)
                    allocated += 1
                elif event.event in RELEASES:
                    self._release(event.job_id, time_s)
                self._track(event)
            wait = self._wait_at(time_s)
            if wait is not None and wait[0] == time_s:
                mine, order = self._order.get(self.job_id, -1), self._order
                ahead = [job_id for job_id in self._waiting if order.get(job_id, mine) < mine]
                self.waits[wait].ahead = sorted(ahead, key=order.__getitem__)
        for job_id in list(self._allocations):
            self._release(job_id, inf)

    def _track(self, event: EventRecord) -> None:
        """Note whether the job of an event waits from now on, and whether it leaves the system."""
        job_id = event.job_id
        if event.event in WAITS_AFTER:
            self._waiting[job_id] = None
        else:
            self._waiting.pop(job_id, None)
        if event.event in ENDS and job_id != self.job_id:
            self._order.pop(job_id, None)

    def _allocate(self, event: EventRecord, number: int) -> None:
        now, job_id = event.time_s, event.job_id
        self._release(job_id, now)
        self._allocations[job_id] = number, event
        lost = self.preempted.get(now)
        if lost is not None:
            nodes = {node for node, _ in lost.placement}
            if any(node in nodes for node, _ in event.placement):
                self.takers[now].append(job_id)
        wait = self._wait_at(now)
        if wait is not None and now < wait[1] and event.event in (START, RESTART):
            mine = self._order.get(self.job_id, inf)
            if self._order.get(job_id, -1) > mine:
                self.waits[wait].overtakers[job_id] = None

    def _release(self, job_id: str, now: float) -> None:
        """End an allocation, and add its GPU-seconds to every wait that it overlaps."""
        number, allocation = self._allocations.pop(job_id, (0, None))
        if allocation is None:
            return
        i = max(0, bisect_right(self._begins, allocation.time_s) - 1)
        for from_s, to_s in self._intervals[i:]:
            if from_s >= now:
                break
            seconds = min(to_s, now) - max(from_s, allocation.time_s)
            if seconds > 0:
                meanwhile = self.waits[from_s, to_s]
                meanwhile.held[job_id] = meanwhile.held.get(job_id, 0.0) + seconds * allocation.gpus
                meanwhile.first.setdefault(job_id, number)

    def _wait_at(self, now: float) -> Interval | None:
        """The last wait that began no later than `now`."""
        i = bisect_right(self._begins, now) - 1
        return self._intervals[i] if i >= 0 else None
