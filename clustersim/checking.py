"""What must hold in every run, proved from its event log: who got which GPUs when.

The event log is all that is trusted; the records are compared with what it adds up to. `clustersim.testing`
applies the rules to a policy under test, `clustersim.checking_folder` to the folder of a run.

Here is what rules are made of: the evidence, the state of the log as it is replayed, and `Rule` itself.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import inf
from operator import itemgetter
from types import MappingProxyType
from typing import ClassVar, NamedTuple

from .checking_sums import PLAIN, Sums, Terms
from .cluster import Cluster, Placement
from .failures import Failures
from .overheads import Overheads
from .records import (
    ALLOCATES,
    FAIL,
    FINISH,
    INTERRUPT,
    NODE_DOWN,
    PREEMPT,
    REJECT,
    RELEASES,
    START,
    SUBMIT,
    EventRecord,
    JobRecord,
)

__all__ = ["Evidence", "Finding", "Known", "Life", "Log", "Rule", "Violation"]

MOST_KEPT = 1000
"""Violations of a rule of which the words are kept; more are counted."""

_AFTER = {SUBMIT: "new", REJECT: "gone", PREEMPT: "stopped", FINISH: "gone", INTERRUPT: "stopped",
          FAIL: "gone"}  # fmt: skip


class Known(NamedTuple):
    """What is known of a job: its work in units, to within `work_error`; the seconds per unit by GPUs; its
    parameters (for the size of its checkpoints). None is unknown. `alone`: it can run on no other number of
    GPUs.
    """

    work: float | None = None
    work_error: float = 0.0
    unit_s: Mapping[int, float] = MappingProxyType({})
    alone: bool = False
    parameters: float | None = None


Knows = Callable[[JobRecord | None, EventRecord | None, bool], Known]
"""What is known of a job by its record and the first event of its log (None: there is none), and whether it
runs training plans."""


@dataclass(frozen=True)
class Evidence:
    """What a run left behind. `events` in order of time, `records` in order of submission; both may be gone
    through several times.

    `end_s`: when it ended at the earliest, None if unknown; then nothing is said of what a job held or waited
    at the end. `resolution_s`: the largest error of a difference of two recorded times.
    """

    cluster: Cluster
    overheads: Overheads
    events: Iterable[EventRecord]
    records: Iterable[JobRecord]
    knows: Knows
    end_s: float | None = None
    resolution_s: float = 0.0
    failures: Failures | None = None


class Violation(NamedTuple):
    """A broken rule, in words; where it has a place in the log, its event (from 0), time and job."""

    text: str
    event: int | None = None
    time_s: float | None = None
    job_id: str | None = None


@dataclass(frozen=True)
class Finding:
    """One rule, what breaks it (nothing: it is proved), and for what there is no proof either way.

    `violations`: the first 1,000, and how many `more` there are.
    """

    rule: str
    text: str
    violations: tuple[Violation, ...]
    unproved: str = ""
    more: int = 0


class Life:
    """A job in the system as the log tells of it, up to the present event.

    `first` is its first event, at `entered` in the log; `given` the one that gave it the GPUs that it holds.
    `phase`: new, running, stopped, gone, or unknown before its first event. `terms`: on which the present
    event gives it GPUs. `counts`: of events by kind, but of those that come once. `planned`: it runs training
    plans.
    """

    __slots__ = (
        "counts", "entered", "first", "given", "job_id", "known", "last", "phase", "planned", "record",
        "sums", "terms",
    )  # fmt: skip

    def __init__(self, job_id: str, first: EventRecord | None, entered: int):
        self.job_id, self.first, self.entered = job_id, first, entered
        self.record: JobRecord | None = None
        self.known = _NOTHING
        self.phase, self.last, self.planned = "unknown", "", False
        self.given: EventRecord | None = None
        self.sums, self.terms = Sums(), PLAIN
        self.counts: dict[str, int] = {}


_NOTHING = Known()


class Log:
    """The state of cluster and jobs as the log is replayed: GPUs in use by node, how many in all, and how
    many there are on the nodes that run something; how many jobs hold GPUs, how many were submitted and have
    not left, GPUs of nodes out of service; `count` events, and the times of the first and the last.
    """

    def __init__(self, evidence: Evidence):
        self.evidence, self.cluster = evidence, evidence.cluster
        self.lives: dict[str, Life] = {}
        self.used: dict[int, int] = {}
        self.allocated = self.gpus_of_busy_nodes = self.holding = self.inside = self.down = self.count = 0
        self.first_s = self.last_s = 0.0
        self.submitted = array("q")  # a hash of each submitted job's id
        self._asked, self._asked_for = 0, set[int]()  # so many of them, which only a broken log has looked up
        self._cycle = lru_cache(10_000)(evidence.overheads.cycle)

    def life(self, i: int, event: EventRecord, record: Callable[[str, float], JobRecord | None]) -> Life:
        """The job of an event, with the terms on which that gives it GPUs."""
        job_id = event.job_id
        life = self.lives.get(job_id)
        if life is None:
            life = self.lives[job_id] = Life(job_id, event, i)
            life.record, life.planned = record(job_id, event.time_s), bool(event.plan)
            life.known = self.evidence.knows(life.record, event, life.planned)
        elif event.plan and not life.planned:
            life.planned, life.known = True, self.evidence.knows(life.record, life.first, True)
        life.terms = self._terms(event, life) if event.event in ALLOCATES else PLAIN
        return life

    def holders(self, node: int) -> list[str]:
        """The jobs with GPUs on a node, in the order in which they got them."""
        gifts = [life.given for life in self.lives.values() if life.given is not None]
        here = [given for given in gifts if any(place == node for place, _ in given.placement)]
        return [given.job_id for given in sorted(here, key=itemgetter(0))]

    def known_before(self, job_id: str) -> bool:
        """Whether a job of this id was submitted before, by its hash: for words, not for proofs."""
        self._asked_for.update(self.submitted[self._asked :])
        self._asked = len(self.submitted)
        return hash(job_id) in self._asked_for

    def apply(self, event: EventRecord, life: Life) -> None:
        """An event happens to a job."""
        kind = event.event
        life.sums.add(event, self.evidence.resolution_s, life.terms)
        life.phase, life.last = _AFTER.get(kind, "running"), kind
        if kind == SUBMIT:
            self.inside += 1
            self.submitted.append(hash(event.job_id))
            return
        if kind in ALLOCATES or kind in RELEASES:
            self._exchange(life, event)
        if life.phase == "gone":
            self.inside -= 1
            del self.lives[life.job_id]
        elif kind != START:
            life.counts[kind] = life.counts.get(kind, 0) + 1

    def turn(self, event: EventRecord) -> None:
        """A node goes out of service, or comes back."""
        size = sum([count for _, count in event.placement])
        self.down += size if event.event == NODE_DOWN else -size

    def _exchange(self, life: Life, event: EventRecord) -> None:
        """Take back what a job holds, and give it what the event gives."""
        if life.given is not None:
            self.holding -= 1
            self._add(life.given.placement, -1)
            life.given = None
        if event.event in ALLOCATES:
            self.holding += 1
            self._add(event.placement, 1)
            life.given = event

    def _add(self, placement: Placement, sign: int) -> None:
        used = self.used
        for node, count in placement:
            before = used.get(node, 0)
            after = used[node] = before + sign * count
            self.allocated += sign * count
            if (before > 0) != (after > 0) and 0 <= node < self.cluster.nodes:
                size = self.cluster.size_of(node)
                self.gpus_of_busy_nodes += size if after > 0 else -size

    def _terms(self, event: EventRecord, life: Life) -> Terms:
        evidence, parameters = self.evidence, life.known.parameters
        if parameters is None:
            return PLAIN
        mtbf_s = inf
        if evidence.failures is not None:
            nodes = (node for node, _ in event.placement if 0 <= node < self.cluster.nodes)
            gpus = sum(self.cluster.size_of(node) for node in nodes)
            mtbf_s = evidence.failures.node_mtbf_s(gpus) if gpus else inf
        loads = event.event != START and (not life.sums.crashed or life.sums.kept)
        loads = loads and evidence.overheads.shares_load(parameters)
        return Terms(self._cycle(parameters, max(1, len(event.placement)), mtbf_s), loads)


class Rule:
    """A rule and what breaks it. The log calls what a rule has of `event` (before it is applied, with the job
    that it is about; None for an event of a node), `interrupted` (a failure has taken a job's GPUs),
    `instant` (all events of a time have been applied; the first one's number), `left` (a job has left the
    system, or the run has ended) and, at last, `end`.
    """

    name: ClassVar[str] = ""
    text: ClassVar[str] = ""

    def __init__(self, log: Log):
        self.log, self.evidence = log, log.evidence
        self.sees: Collection[str] | None = None  # the kinds of events that it looks at; None: all
        self.violations: list[Violation] = []
        self.more = 0

    def event(self, i: int, event: EventRecord, life: Life | None) -> None: ...

    def interrupted(self, i: int, event: EventRecord, life: Life) -> None: ...

    def instant(self, first: int, batch: Sequence[EventRecord]) -> None: ...

    def left(self, life: Life) -> None: ...

    def end(self, unrecorded: Sequence[Life]) -> None:
        """`unrecorded`: lives without a record of their own."""

    def unproved(self) -> str:
        """For what, if anything, the evidence is lacking."""
        return ""

    def say(self, text: str, i: int | None = None, time_s: float | None = None, job_id: str = "") -> None:
        if len(self.violations) < MOST_KEPT:
            self.violations.append(Violation(text, i, time_s, job_id or None))
        else:
            self.more += 1

    def at(self, i: int, event: EventRecord, text: str) -> None:
        self.say(f"t={event.time_s:g}: {text}", i, event.time_s, event.job_id)

    def finding(self) -> Finding:
        return Finding(self.name, self.text, tuple(self.violations), self.unproved(), self.more)
