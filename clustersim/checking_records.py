"""That the records of jobs and of the use of the cluster, as a folder states them, are those of its log."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice, pairwise
from math import inf, isclose
from operator import attrgetter
from typing import Any

from traces.files import shown

from .checking import Life, Log, Rule
from .checking_replay import repeated
from .columns import Columns, by_field
from .records import (
    FAIL,
    FAILED,
    FINISH,
    FINISHED,
    INTERRUPT,
    MIGRATE,
    PREEMPT,
    REJECT,
    REJECTED,
    RESIZE,
    RESTART,
    UNFINISHED,
    EventRecord,
    JobRecord,
    Snapshot,
)

__all__ = ["RESOLUTION_S", "Records", "Tally", "Usage", "counted"]

RESOLUTION_S = 1e-6
_BLOCK = 2000
_COUNTED = {PREEMPT: "preemptions", RESIZE: "resizes", RESTART: "restarts", MIGRATE: "migrations",
            INTERRUPT: "interruptions"}  # fmt: skip
_STATES = {FINISH: FINISHED, REJECT: REJECTED, FAIL: FAILED}
_NONE = [0] * len(_COUNTED)
_COMPARED = ("state", *_COUNTED.values(), "submit_s", "jct_s", "queue_s")
_compared = attrgetter(*_COMPARED)
Row = tuple[int, int, int, int, int]
"""GPUs allocated and stranded, jobs running and pending, GPUs out of service."""


def counted(records: Iterable[Any], columns: Columns) -> Iterator[Any]:
    """The records, whose numbers go into `columns` as they pass."""
    return chain.from_iterable(_counted(records, columns))


def _counted(records: Iterable[Any], columns: Columns) -> Iterator[list[Any]]:
    rest = iter(records)
    while block := list(islice(rest, _BLOCK)):
        columns.extend(by_field(block, columns.names))
        yield block


class Tally:
    """Job records, and what is kept of them as they are gone through for the first time: their numbers, a
    hash of each id, and where the order of submission is broken first.
    """

    def __init__(self, records: Iterable[JobRecord]):
        self.records = records
        self.columns = Columns(JobRecord, coded=("state",))
        self.hashes = array("q")
        self.disorder = ""
        self.watch: Callable[[JobRecord], None] | None = None  # called with each record
        self._last: list[JobRecord] = []

    def __iter__(self) -> Iterator[JobRecord]:
        return chain.from_iterable(self._pass())

    def _pass(self) -> Iterator[list[JobRecord]]:
        for block in _counted(self.records, self.columns):
            self.hashes.extend([hash(record.job_id) for record in block])
            if self.watch is not None:
                for record in block:
                    self.watch(record)
            if not self.disorder:
                self._check_order([*self._last, *block])
                self._last = block[-1:]
            yield block

    def _check_order(self, records: Sequence[JobRecord]) -> None:
        times = [record.submit_s for record in records]
        if times == sorted(times):
            return
        before, record = next((a, b) for a, b in pairwise(records) if b.submit_s < a.submit_s)
        text = f"its record follows that of job {before.job_id}, submitted at t={before.submit_s:g}"
        self.disorder = f"job {record.job_id}, submitted at t={record.submit_s:g}: {text}"


class Records(Rule):
    """`submitted`: how many jobs the manifest states, if it does."""

    name = "records"
    text = "one record a job, in order of submission, whose state and counts are those of the event log"

    def __init__(self, log: Log, tally: Tally, submitted: object):
        super().__init__(log)
        self._tally, self._submitted = tally, submitted

    def event(self, i: int, event: EventRecord, life: Life | None) -> None:
        """A reason is that of the record; events that have none give none."""
        if life is None or event.event in (PREEMPT, INTERRUPT):
            return
        record = life.record
        if event.event == REJECT:
            same = record is None or event.detail == record.reason
        elif event.event == FAIL:
            same = record is None or (bool(event.detail) and record.reason.startswith(event.detail))
        else:
            same = not event.detail
        if not same:
            self.at(i, event, f"{event.event} of job {event.job_id} says {shown(event.detail)}")

    def left(self, life: Life) -> None:
        assert life.record is not None
        for text in _contradictions(life, life.record):
            self.say(f"job {life.job_id}: {text}", job_id=life.job_id)

    def end(self, unrecorded: Sequence[Life]) -> None:
        tally, found = self._tally, len(self._tally.hashes)
        if isinstance(self._submitted, int) and self._submitted != found:
            self.say(f"{found} records of the {self._submitted} jobs that manifest.json states")
        if tally.disorder:
            self.say(tally.disorder)
        twice = repeated(tally.hashes, lambda: (record.job_id for record in tally.records))
        for job_id in sorted(twice):
            self.say(f"job {job_id} has two records", job_id=job_id)
        without = {life.job_id for life in unrecorded}
        if without:  # others have one, and more than one life
            without -= {record.job_id for record in tally.records}
        for life in unrecorded:
            if life.job_id in without and life.first is not None:
                without.remove(life.job_id)
                self.at(life.entered, life.first, f"job {life.job_id} has no record")


def _contradictions(life: Life, job: JobRecord) -> Iterator[str]:
    first, counts = life.first, life.counts
    if first is not None and (job.isolated_s is None) != (first.unit_s == 0):
        yield f"isolated_s is {job.isolated_s}, with {first.unit_s:g} s per unit when it was submitted"
    logged = (
        _STATES.get(life.last, UNFINISHED),
        *([counts.get(kind, 0) for kind in _COUNTED] if counts else _NONE),
        job.submit_s if first is None else first.time_s,
        None if job.finish_s is None else job.finish_s - job.submit_s,
        None if job.start_s is None else job.start_s - job.submit_s,
    )
    for name, recorded, value in zip(_COMPARED, _compared(job), logged, strict=True):
        if recorded != value and not _near(recorded, value):
            yield f"{name} is {recorded} in its record, {value} by the event log"
    if (job.deadline_s is None) != (job.deadline_met is None):
        yield f"deadline_met is {job.deadline_met} with the deadline {job.deadline_s}"
    elif job.deadline_s is not None:
        slack = -inf if job.finish_s is None else job.deadline_s - job.finish_s
        if abs(slack) > 2 * RESOLUTION_S and job.deadline_met != (slack > 0):
            yield f"deadline_met is {job.deadline_met}: it finished {job.finish_s}, due {job.deadline_s}"


def _near(a: Any, b: Any) -> bool:
    numbers = isinstance(a, float) and isinstance(b, float)
    return numbers and isclose(a, b, rel_tol=1e-9, abs_tol=2 * RESOLUTION_S)


class Usage(Rule):
    """After every instant of the log, the last row of usage.csv up to then states what the log adds up to.

    `complete`: the run ended by itself; of another, what the policy made of the last instant was not enacted.
    """

    name = "usage"
    text = "usage.csv is what the event log says of the cluster"

    def __init__(self, log: Log, snapshots: Iterable[Snapshot], complete: bool):
        super().__init__(log)
        self._rows, self._complete = iter(snapshots), complete
        self._next = next(self._rows, None)
        self._stated: Row = (0, 0, 0, 0, 0)
        self._row_s = -inf
        self._row: tuple[int, ...] = ()
        self._unsaid: tuple[int, EventRecord, Row, Row] | None = None

    def instant(self, first: int, batch: Sequence[EventRecord]) -> None:
        log, last = self.log, batch[-1]
        self._read_until(last.time_s)
        self._compare()
        stranded = log.gpus_of_busy_nodes - log.allocated
        logged = (log.allocated, stranded, log.holding, log.inside - log.holding, log.down)
        self._unsaid = (first + len(batch) - 1, last, self._stated, logged)

    def end(self, unrecorded: Sequence[Life]) -> None:
        if self._complete:
            self._compare()
        self._read_until(inf)

    def _compare(self) -> None:
        """Of the instant before: whether it was the last shows only at the next."""
        if self._unsaid is None:
            return
        i, event, stated, logged = self._unsaid
        if stated != logged:
            what = f"allocated, stranded, running, pending, down are {stated} in usage.csv"
            self.at(i, event, f"{what}, {logged} by the event log")

    def _read_until(self, now: float) -> None:
        while (row := self._next) is not None and row.time_s <= now:
            if row.time_s != now or row.time_s < self._row_s or row[1:] == self._row:
                text = f"t={row.time_s:g}: usage.csv states a change here, the event log has none"
                self.say(text, time_s=row.time_s)
            self._row = row[1:]
            self._row_s, self._stated = row.time_s, row[1:]
            self._next = next(self._rows, None)
