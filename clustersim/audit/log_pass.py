"""One pass over an event log under all rules, with the job records read beside the log.

Both are in order of submission, so memory holds the jobs in the system and a few numbers for each other job.
If log and records contradict each other, memory also holds every job and record without a counterpart.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from operator import attrgetter

import numpy as np

from clustersim.records import INTERRUPT, NODE_EVENTS, REQUEUE, JobRecord

from .evidence import RESOLUTION_S, Evidence, Finding
from .history import GONE, ClusterHistory, JobHistory, Rule

__all__ = ["prove", "repeated"]


def prove(evidence: Evidence, rules: Sequence[Callable[[ClusterHistory], Rule]]) -> list[Finding]:
    """Read the log once under all `rules`. Returns a finding for each rule, in order."""
    history = ClusterHistory(evidence)
    active = [rule(history) for rule in rules]
    _go_through(history, active)
    return [rule.finding() for rule in active]


def _go_through(history: ClusterHistory, rules: Sequence[Rule]) -> None:
    records, unrecorded = _Records(history.evidence.records), list[JobHistory]()
    on_interrupt, on_instant, on_departure = (
        _overriding(rules, hook) for hook in ("on_interrupt", "on_instant", "on_departure")
    )

    @lru_cache(1000)
    def on_event(kind: str) -> list[Callable[..., None]]:
        return _overriding([rule for rule in rules if rule.kinds is None or kind in rule.kinds], "on_event")

    def depart(job: JobHistory) -> None:
        if job.record is None:
            unrecorded.append(job)
        else:
            for call in on_departure:
                call(job)

    for time_s, group in groupby(history.evidence.events, key=attrgetter("time_s")):
        batch, first_index = list(group), history.event_count
        if not first_index:
            history.first_s = time_s
        for i, event in enumerate(batch, first_index):
            job = None if event.event in NODE_EVENTS else history.job_of(i, event, records.take)
            for call in on_event(event.event):
                call(i, event, job)
            if job is None:
                history.apply_to_node(event)
            else:
                history.apply(event, job)
                if job.state == GONE:
                    depart(job)
                elif event.event in (INTERRUPT, REQUEUE):
                    for call in on_interrupt:
                        call(i, event, job)
        history.event_count += len(batch)
        history.last_s = max(history.last_s, time_s)
        for call in on_instant:
            call(first_index, batch)
    history.disorder = records.disorder
    _close(history, records, depart, unrecorded)
    for rule in rules:
        rule.on_end(unrecorded)


def _overriding(rules: Sequence[Rule], hook: str) -> list[Callable[..., None]]:
    """The methods called `hook` of the rules that override it."""
    return [getattr(rule, hook) for rule in rules if getattr(type(rule), hook) is not getattr(Rule, hook)]


def _close(
    history: ClusterHistory,
    records: _Records,
    depart: Callable[[JobHistory], None],
    unrecorded: list[JobHistory],
) -> None:
    """Close jobs that are still in the system, then match the records for which no event was seen."""
    evidence = history.evidence
    end_s = None if evidence.end_s is None else max(evidence.end_s, history.last_s)
    for job in history.jobs.values():
        job.totals.end(end_s, evidence.resolution_s)
        depart(job)
    by_id: dict[str, list[JobHistory]] = {}
    for job in unrecorded:
        by_id.setdefault(job.job_id, []).append(job)
    unrecorded.clear()
    for record in records.rest():
        candidates = by_id.get(record.job_id)
        job = candidates.pop(0) if candidates else JobHistory(record.job_id, None, -1)
        job.record = record
        if job.first is None:
            job.facts = evidence.facts_of(record, None, False)
        depart(job)
    unrecorded += [job for jobs in by_id.values() for job in jobs]


class _Records:
    """Job records, taken one by one in order of submission. A record out of order is kept until its job is
    submitted.
    """

    def __init__(self, records: Iterable[JobRecord]):
        self._to_come = iter(records)
        self._next = next(self._to_come, None)
        self._passed: dict[str, list[JobRecord]] = {}
        self.disorder = ""  # the first job whose record is not where its submission is

    def take(self, job_id: str, now: float) -> JobRecord | None:
        """The record of a job that is submitted at `now`; None if the records up to then have none."""
        if self._passed and (passed := self._passed.get(job_id)):
            record = passed.pop(0)
            self.disorder = self.disorder or job_id
            if not passed:
                del self._passed[job_id]
            return record
        while (coming := self._next) is not None and coming.submit_s <= now + RESOLUTION_S:
            self._next = next(self._to_come, None)
            if coming.job_id == job_id:
                return coming
            self._passed.setdefault(coming.job_id, []).append(coming)
        return None

    def rest(self) -> Iterator[JobRecord]:
        """The records that have not been taken."""
        for passed in self._passed.values():
            yield from passed
        if self._next is not None:
            yield self._next
        yield from self._to_come


def repeated(hashes: array[int], ids: Callable[[], Iterable[str]]) -> set[str]:
    """The ids that appear more than once. `hashes` of all ids, in any order; `ids` is called only if two of
    them are equal.
    """
    ordered = np.sort(np.frombuffer(hashes, dtype=np.int64))
    suspects = set(ordered[1:][ordered[1:] == ordered[:-1]].tolist())
    seen, twice = set[str](), set[str]()
    for job_id in ids() if suspects else ():
        if hash(job_id) in suspects:
            (twice if job_id in seen else seen).add(job_id)
    return twice
