"""Replaying a log under the rules of `clustersim.checking`.

The log is gone through once, by instants, and the records beside it: they are in order of submission, as the
log's submissions are. Memory holds the jobs in the system and a few numbers of each other; of a log and
records that contradict each other, also what has not found its counterpart.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from operator import itemgetter

from .checking import Evidence, Finding, Life, Log, Rule
from .records import INTERRUPT, NODE_EVENTS, JobRecord

__all__ = ["prove", "repeated"]

_SLACK_S = 1e-6  # between a job's submission in the log and in its record, both rounded to that


def prove(evidence: Evidence, rules: Sequence[Callable[[Log], Rule]]) -> list[Finding]:
    """Replay the log under `rules`: a finding each, in their order."""
    log = Log(evidence)
    active = [rule(log) for rule in rules]
    _replay(log, active)
    return [rule.finding() for rule in active]


def _replay(log: Log, rules: Sequence[Rule]) -> None:
    records, bereft = _Records(log.evidence.records), list[Life]()
    interrupted, instant, left = (_having(rules, name) for name in ("interrupted", "instant", "left"))

    @lru_cache(1000)
    def see(kind: str) -> list[Callable[..., None]]:
        return _having([rule for rule in rules if rule.sees is None or kind in rule.sees], "event")

    def leave(life: Life) -> None:
        if life.record is None:
            bereft.append(life)
        else:
            for call in left:
                call(life)

    for time_s, group in groupby(log.evidence.events, key=itemgetter(0)):
        batch, first = list(group), log.count
        if not first:
            log.first_s = time_s
        for i, event in enumerate(batch, first):
            life = None if event.event in NODE_EVENTS else log.life(i, event, records.take)
            for call in see(event.event):
                call(i, event, life)
            if life is None:
                log.turn(event)
            else:
                log.apply(event, life)
                if life.phase == "gone":
                    leave(life)
                elif event.event == INTERRUPT:
                    for call in interrupted:
                        call(i, event, life)
        log.count += len(batch)
        log.last_s = max(log.last_s, time_s)
        for call in instant:
            call(first, batch)
    _end(log, records, leave, bereft)
    for rule in rules:
        rule.end(bereft)


def _having(rules: Sequence[Rule], name: str) -> list[Callable[..., None]]:
    """The methods of the rules that have one of that name of their own."""
    return [getattr(rule, name) for rule in rules if getattr(type(rule), name) is not getattr(Rule, name)]


def _end(log: Log, records: _Records, leave: Callable[[Life], None], bereft: list[Life]) -> None:
    """Whoever is still in the system leaves it; records that no event was for find their job, or none."""
    evidence = log.evidence
    end_s = None if evidence.end_s is None else max(evidence.end_s, log.last_s)
    for life in log.lives.values():
        life.sums.end(end_s, evidence.resolution_s)
        leave(life)
    waiting: dict[str, list[Life]] = {}
    for life in bereft:
        waiting.setdefault(life.job_id, []).append(life)
    bereft.clear()
    for record in records.rest():
        lives = waiting.get(record.job_id)
        life = lives.pop(0) if lives else Life(record.job_id, None, -1)
        life.record = record
        if life.first is None:
            life.known = evidence.knows(record, None, False)
        leave(life)
    bereft += [life for lives in waiting.values() for life in lives]


class _Records:
    """Job records beside the log: in both, jobs come in order of submission. What is not where it should be
    is kept until it is asked for.
    """

    def __init__(self, records: Iterable[JobRecord]):
        self._to_come = iter(records)
        self._next = next(self._to_come, None)
        self._passed: dict[str, list[JobRecord]] = {}

    def take(self, job_id: str, now: float) -> JobRecord | None:
        """The record of a job that is submitted now; None if it is not among those submitted up to now."""
        if self._passed and (passed := self._passed.get(job_id)):
            record = passed.pop(0)
            if not passed:
                del self._passed[job_id]
            return record
        while (coming := self._next) is not None and coming.submit_s <= now + _SLACK_S:
            self._next = next(self._to_come, None)
            if coming.job_id == job_id:
                return coming
            self._passed.setdefault(coming.job_id, []).append(coming)
        return None

    def rest(self) -> Iterator[JobRecord]:
        """Those that nobody asked for."""
        for passed in self._passed.values():
            yield from passed
        if self._next is not None:
            yield self._next
        yield from self._to_come


def repeated(hashes: array[int], ids: Callable[[], Iterable[str]]) -> set[str]:
    """The ids that are there more than once. `hashes` of all `ids`, which are asked for only if two are
    equal.
    """
    import numpy as np

    ordered = np.sort(np.frombuffer(hashes, dtype=np.int64))
    suspects = set(ordered[1:][ordered[1:] == ordered[:-1]].tolist())
    seen, twice = set[str](), set[str]()
    for job_id in ids() if suspects else ():
        if hash(job_id) in suspects:
            (twice if job_id in seen else seen).add(job_id)
    return twice
