"""The rules that the tables of a run folder agree with its log: jobs, and usage of the cluster."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice, pairwise
from math import inf
from operator import attrgetter
from typing import Any

from clustersim.audit.evidence import RESOLUTION_S, as_stated
from clustersim.audit.history import ClusterHistory, JobHistory, Rule
from clustersim.audit.log_pass import repeated
from clustersim.records import (
    ALLOCATES,
    FAIL,
    FAILED,
    FINISH,
    FINISHED,
    HOLD,
    INTERRUPT,
    MIGRATE,
    NOTE,
    PREEMPT,
    REJECT,
    REJECTED,
    REQUEUE,
    RESIZE,
    RESTART,
    SERVED,
    UNFINISHED,
    Columns,
    EventRecord,
    JobRecord,
    Snapshot,
    by_field,
)
from itertime.io import shown

__all__ = ["RecordsMatchLog", "Tally", "UsageMatchesLog", "counted"]

_BLOCK = 2000  # records that are turned into columns at once
_COUNTED = {PREEMPT: "preemptions", RESIZE: "resizes", RESTART: "restarts", MIGRATE: "migrations",
            INTERRUPT: "interruptions"}  # fmt: skip
_STATE_AFTER = {FINISH: FINISHED, REJECT: REJECTED, FAIL: FAILED, SERVED: SERVED}
_NO_COUNTS = [0] * len(_COUNTED)
_COMPARED = ("state", *_COUNTED.values(), "requeues", "submit_s", "eligible_s", "jct_s", "queue_s")
_compared = attrgetter(*_COMPARED)
Row = tuple[float, float, int, int, int]
"""GPUs allocated and stranded, jobs running and pending, GPUs out of service."""


def counted(records: Iterable[Any], columns: Columns) -> Iterator[Any]:
    """The records, unchanged. Iterating over them adds their numbers to `columns`."""
    return chain.from_iterable(_counted(records, columns))


def _counted(records: Iterable[Any], columns: Columns) -> Iterator[list[Any]]:
    record_iterator = iter(records)
    while block := list(islice(record_iterator, _BLOCK)):
        columns.extend(by_field(block, columns.names))
        yield block


class Tally:
    """Job records, with what the first iteration keeps: their numbers, a hash of each id, and the first place
    where they are not in order of submission.
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
        earlier, record = next((a, b) for a, b in pairwise(records) if b.submit_s < a.submit_s)
        text = f"its record follows that of job {earlier.job_id}, submitted at t={earlier.submit_s:g}"
        self.disorder = f"job {record.job_id}, submitted at t={record.submit_s:g}: {text}"


class RecordsMatchLog(Rule):
    """`submitted`: the number of jobs that the manifest states, None if it states none."""

    name = "records"
    text = "one record a job, in order of submission, whose state and counts are those of the event log"

    def __init__(self, history: ClusterHistory, tally: Tally, submitted: object):
        super().__init__(history)
        self._tally, self._submitted = tally, submitted

    def on_event(self, i: int, event: EventRecord, job: JobHistory | None) -> None:
        """The reason of a rejection or failure is that of the record. Other events state no reason, but for
        notes, of which the record has the last.
        """
        if job is None or event.event in (PREEMPT, INTERRUPT, REQUEUE, HOLD, NOTE):
            return
        record = job.record
        if event.event == REJECT:
            agrees = record is None or event.detail == record.reason
        elif event.event == FAIL:
            agrees = record is None or (bool(event.detail) and record.reason.startswith(event.detail))
        else:  # see `PhasesAsStated`
            agrees = not event.detail or (
                event.event in ALLOCATES and record is not None and bool(record.phases)
            )
        if not agrees:
            self.report_at(i, event, f"{event.event} of job {event.job_id} says {shown(event.detail)}")

    def on_departure(self, job: JobHistory) -> None:
        assert job.record is not None
        for text in _contradictions(job, job.record):
            self.report(f"job {job.job_id}: {text}", job_id=job.job_id)

    def on_end(self, unrecorded: Sequence[JobHistory]) -> None:
        tally, departed = self._tally, len(self._tally.hashes)
        if isinstance(self._submitted, int) and self._submitted != departed:
            self.report(f"{departed} records of the {self._submitted} jobs that manifest.json states")
        if tally.disorder:
            self.report(tally.disorder)
        elif job_id := self.history.disorder:
            self.report(f"job {job_id}: the log submits it in another order than the records", job_id=job_id)
        twice = repeated(tally.hashes, lambda: (record.job_id for record in tally.records))
        for job_id in sorted(twice):
            self.report(f"job {job_id} has two records", job_id=job_id)
        without = {job.job_id for job in unrecorded}
        if without:  # of the jobs that share an id, one may have a record
            without -= {record.job_id for record in tally.records}
        for job in unrecorded:
            if job.job_id in without and job.first is not None:
                without.remove(job.job_id)
                self.report_at(job.first_index, job.first, f"job {job.job_id} has no record")


def _contradictions(job: JobHistory, record: JobRecord) -> Iterator[str]:
    first_event, counts = job.first, job.counts
    if job.note and not record.reason.endswith(job.note):
        yield f"reason is {shown(record.reason)} in its record, and the last note {shown(job.note)}"
    if first_event is not None and (record.isolated_s is None) != (first_event.unit_s == 0):
        unit = f"{first_event.unit_s:g} s per unit"
        yield f"isolated_s is {record.isolated_s}, with {unit} when it was submitted"
    submit_s = record.submit_s if first_event is None else first_event.time_s
    eligible_s = job.totals.eligible_s
    logged = (
        _STATE_AFTER.get(job.last, UNFINISHED),
        *([counts.get(kind, 0) for kind in _COUNTED] if counts else _NO_COUNTS),
        counts.get(REQUEUE),
        submit_s,
        None if eligible_s == submit_s else eligible_s,
        None if record.finish_s is None else record.finish_s - record.submit_s,
        None if record.start_s is None else record.start_s - (record.eligible_s or record.submit_s),
    )
    for name, recorded, value in zip(_COMPARED, _compared(record), logged, strict=True):
        if not as_stated(recorded, value, roundings=2):
            yield f"{name} is {recorded} in its record, {value} by the event log"
    if (record.deadline_s is None) != (record.deadline_met is None):
        yield f"deadline_met is {record.deadline_met} with the deadline {record.deadline_s}"
    elif record.deadline_s is not None:
        slack = -inf if record.finish_s is None else record.deadline_s - record.finish_s
        if abs(slack) > 2 * RESOLUTION_S and record.deadline_met != (slack > 0):
            finish = f"it finished {record.finish_s}, due {record.deadline_s}"
            yield f"deadline_met is {record.deadline_met}: {finish}"


class UsageMatchesLog(Rule):
    """After every instant, the latest row of usage.csv agrees with the sums of the events so far.

    `complete`: whether the run ended by itself. If not, the decision at the last instant was not enacted, and
    that instant is not compared.
    """

    name = "usage"
    text = "usage.csv is what the event log says of the cluster"

    def __init__(self, history: ClusterHistory, snapshots: Iterable[Snapshot], complete: bool):
        super().__init__(history)
        self._rows, self._complete = iter(snapshots), complete
        self._next = next(self._rows, None)
        self._stated: Row = (0, 0, 0, 0, 0)
        self._row_s = -inf
        self._row: tuple[float, ...] = ()
        self._pending: tuple[int, EventRecord, Row, Row] | None = None

    def on_instant(self, first_index: int, batch: Sequence[EventRecord]) -> None:
        history, last_event = self.history, batch[-1]
        self._read_until(last_event.time_s)
        self._compare()
        waiting = history.inside - history.running - history.held
        logged = (*history.in_use_and_stranded(), history.running, waiting, history.down)
        self._pending = (first_index + len(batch) - 1, last_event, self._stated, logged)

    def on_end(self, unrecorded: Sequence[JobHistory]) -> None:
        if self._complete:
            self._compare()
        self._read_until(inf)

    def _compare(self) -> None:
        """Compare the previous instant; the next one shows that it was not the last."""
        if self._pending is None:
            return
        i, event, recorded, logged = self._pending
        if recorded != logged:
            problem = f"allocated, stranded, running, pending, down are {recorded} in usage.csv"
            self.report_at(i, event, f"{problem}, {logged} by the event log")

    def _read_until(self, now: float) -> None:
        while (row := self._next) is not None and row.time_s <= now:
            if row.time_s != now or row.time_s < self._row_s or row[1:] == self._row:
                text = f"t={row.time_s:g}: usage.csv states a change here, the event log has none"
                self.report(text, time_s=row.time_s)
            self._row = row[1:]
            self._row_s, self._stated = row.time_s, row[1:]
            self._next = next(self._rows, None)
