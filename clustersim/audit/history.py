"""The state of jobs and cluster during one pass over an event log, and `Rule`, the base class of all rules.

Only the event log is trusted: records are compared with the sums of its events.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache
from math import inf
from operator import attrgetter
from typing import ClassVar

from clustersim.cluster import MILLION, Joins, Placement, SharedPlacement, in_use
from clustersim.records import (
    ALLOCATES,
    ELIGIBLE,
    ENDS,
    HOLD,
    INTERRUPT,
    NODE_DOWN,
    NOTE,
    PREEMPT,
    RELEASES,
    REPLAN,
    REQUEUE,
    START,
    SUBMIT,
    EventRecord,
    JobRecord,
)

from .charges import terms_of
from .evidence import MOST_KEPT, Evidence, Finding, JobFacts, Violation
from .totals import PLAIN, ChargeTerms, JobTotals

__all__ = ["GONE", "HELD", "NEW", "RUNNING", "STOPPED", "UNKNOWN", "ClusterHistory", "JobHistory", "Rule"]

UNKNOWN, NEW, RUNNING, STOPPED, GONE = "unknown", "new", "running", "stopped", "gone"
"""States of a job: before its first event, submitted, with GPUs, without GPUs again, out of the system."""

HELD = "held"
"""The state of a job that is in the system and not to be run."""

_STATE_AFTER = {
    SUBMIT: NEW, PREEMPT: STOPPED, INTERRUPT: STOPPED, REQUEUE: STOPPED, HOLD: HELD,
} | dict.fromkeys(ENDS, GONE)  # fmt: skip
_NO_FACTS = JobFacts()


class JobHistory:
    """A job in the system, up to the present event of the log.

    | attribute | meaning |
    |---|---|
    | first, first_index | the first event of the job (None if there is none), and its number in the log |
    | record | the record of the job; None until one is found |
    | facts | what is known of the job apart from the log |
    | state, last | the state of the job, and the kind of its last event |
    | planned | whether the job runs training plans |
    | allocation | the event that gave the job its present GPUs; None without GPUs |
    | totals | the sums over the events of the job |
    | terms | the terms of the allocation that the present event makes |
    | counts | number of events by kind, without kinds that occur once |
    | note | the last note of the policy |
    """

    __slots__ = (
        "allocation", "counts", "facts", "first", "first_index", "job_id", "last", "note", "planned",
        "record", "state", "terms", "totals",
    )  # fmt: skip

    def __init__(self, job_id: str, first_event: EventRecord | None, first_index: int):
        self.job_id, self.first, self.first_index = job_id, first_event, first_index
        self.record: JobRecord | None = None
        self.facts = _NO_FACTS
        self.state, self.last, self.planned = UNKNOWN, "", False
        self.allocation: EventRecord | None = None
        self.totals, self.terms = JobTotals(), PLAIN
        self.counts: dict[str, int] = {}
        self.note = ""


class ClusterHistory:
    """The cluster and the jobs in it, up to the present event of the log.

    | attribute | meaning |
    |---|---|
    | jobs | the jobs in the system, by id |
    | in_use | GPUs in use by node |
    | shared | the millionths that jobs hold of each GPU that they share, by node and number |
    | joins | how often a job got GPUs that another one held |
    | taken | GPUs in use on all nodes, a shared one as a whole |
    | idle_millionths | millionths of shared GPUs that no job holds |
    | gpus_of_busy_nodes | all GPUs of the nodes that have GPUs in use |
    | running, held, inside | number of jobs with GPUs; of those not to be run; of all jobs in the system |
    | down | GPUs of nodes out of service |
    | event_count, first_s, last_s | number of events so far, and the times of the first and the last |
    | submitted | a hash of the id of each submitted job |
    | disorder | at the end: the first job whose record comes later than its submission in the log, or empty |
    """

    def __init__(self, evidence: Evidence):
        self.evidence, self.cluster = evidence, evidence.cluster
        self.jobs: dict[str, JobHistory] = {}
        self.in_use: dict[int, int] = {}
        self.shared: dict[tuple[Placement, int], int] = {}
        self.idle_millionths, self.joins = 0, Joins()
        self.taken = self.gpus_of_busy_nodes = self.down = 0
        self.running = self.held = self.inside = 0
        self.event_count = 0
        self.first_s = self.last_s = 0.0
        self.submitted = array("q")
        self.disorder = ""
        self._looked_up, self._looked_up_to = set[int](), 0  # filled for broken logs only
        self._prices = evidence.cluster.prices(evidence.price_usd_per_gpu_h)
        self._cycle = lru_cache(10_000)(evidence.overheads.cycle)

    def job_of(
        self, i: int, event: EventRecord, record_of: Callable[[str, float], JobRecord | None]
    ) -> JobHistory:
        """The job of an event, with its sums as of the event, and `terms` set for the allocation that it
        makes. `record_of` returns the record of a job, from its id and the time of its first event.
        """
        job_id = event.job_id
        job = self.jobs.get(job_id)
        if job is None:
            job = self.jobs[job_id] = JobHistory(job_id, event, i)
            job.record, job.planned = record_of(job_id, event.time_s), bool(event.plan)
            job.facts = self.evidence.facts_of(job.record, event, job.planned)
        elif event.plan and not job.planned:
            job.planned, job.facts = True, self.evidence.facts_of(job.record, job.first, True)
        if event.event != SUBMIT:
            job.totals.advance(event.time_s, self.evidence.resolution_s)
        job.terms = self._terms(event, job) if event.event in ALLOCATES and event.event != REPLAN else PLAIN
        return job

    def in_use_and_stranded(self) -> tuple[float, float]:
        """The GPUs that jobs hold, and the free ones on nodes that also run something, parts as parts."""
        return in_use(self.taken, 0, self.gpus_of_busy_nodes - self.taken, self.idle_millionths)

    def holders(self, node: int) -> list[str]:
        """The jobs with GPUs on a node, in the order in which they got them."""
        allocations = [job.allocation for job in self.jobs.values() if job.allocation is not None]
        node_events = [event for event in allocations if any(place == node for place, _ in event.placement)]
        return [event.job_id for event in sorted(node_events, key=attrgetter("time_s"))]

    def submitted_before(self, job_id: str) -> bool:
        """Whether this id was submitted before, by its hash: good enough for a message, but no proof."""
        self._looked_up.update(self.submitted[self._looked_up_to :])
        self._looked_up_to = len(self.submitted)
        return hash(job_id) in self._looked_up

    def apply(self, event: EventRecord, job: JobHistory) -> None:
        """Apply an event of a job."""
        kind = event.event
        if kind == NOTE:
            job.note = event.detail
            return
        if self._prices is not None and kind in ALLOCATES and event.placement:
            job.totals.pay(self._prices[self.cluster.type_of(event.placement[0][0])])
        job.totals.add(event, job.terms)
        self.held -= job.state == HELD
        job.state, job.last = _STATE_AFTER.get(kind, RUNNING), kind
        if kind == HOLD:
            self.held += 1
        elif kind == ELIGIBLE:
            job.state = NEW if job.totals.start_s is None else STOPPED
        if kind == SUBMIT:
            self.inside += 1
            self.submitted.append(hash(event.job_id))
            return
        if kind in ALLOCATES or kind in RELEASES:
            self._reallocate(job, event)
        if job.state == GONE:
            self.inside -= 1
            del self.jobs[job.job_id]
        elif kind != START:
            job.counts[kind] = job.counts.get(kind, 0) + 1

    def apply_to_node(self, event: EventRecord) -> None:
        """Apply an event of a node, which goes out of service or comes back."""
        size = sum([count for _, count in event.placement])
        self.down += size if event.event == NODE_DOWN else -size

    def _reallocate(self, job: JobHistory, event: EventRecord) -> None:
        """Take back the GPUs that the job holds, and give it those of the event."""
        if job.allocation is not None:
            self.running -= 1
            self._count(job.allocation.placement, -1)
            self.joins.end(job.allocation.placement)
            job.allocation = None
        if event.event in ALLOCATES:
            self.running += 1
            self._count(event.placement, 1)
            has_part = job.record is not None and job.record.gpu_fraction is not None
            self.joins.begin(event.placement, packed=event.event != REPLAN and not has_part)
            job.allocation = event

    def _count(self, placement: Placement, sign: int) -> None:
        if isinstance(placement, SharedPlacement) and not self._is_first_or_last(placement, sign):
            return
        in_use = self.in_use
        for node, count in placement:
            count_before = in_use.get(node, 0)
            count_after = in_use[node] = count_before + sign * count
            self.taken += sign * count
            if (count_before > 0) != (count_after > 0) and 0 <= node < self.cluster.nodes:
                size = self.cluster.size_of(node)
                self.gpus_of_busy_nodes += size if count_after > 0 else -size

    def _is_first_or_last(self, placement: SharedPlacement, sign: int) -> bool:
        """Count part of a shared GPU. Returns whether it is the first part taken or the last one returned."""
        held_before = self.shared.get(placement.key, 0)
        held_after = held_before + sign * placement.millionths
        gpus = sum([count for _, count in placement])
        idle_before, idle_after = (MILLION - held if held else 0 for held in (held_before, held_after))
        self.idle_millionths += gpus * (idle_after - idle_before)
        if held_after:
            self.shared[placement.key] = held_after
        else:
            self.shared.pop(placement.key, None)
        return not held_before or not held_after

    def _terms(self, event: EventRecord, job: JobHistory) -> ChargeTerms:
        evidence, parameters = self.evidence, job.facts.parameters
        if job.record is not None and job.record.service:  # it has nothing to save or to load
            return ChargeTerms(due_s=evidence.overheads.start_s(event.gpus))
        if parameters is None:
            return ChargeTerms(due_s=evidence.overheads.start_s(event.gpus) if event.event == START else None)
        mtbf_s = inf
        if evidence.failures is not None:
            nodes = (node for node, _ in event.placement if 0 <= node < self.cluster.nodes)
            gpus = sum(self.cluster.size_of(node) for node in nodes)
            mtbf_s = evidence.failures.node_mtbf_s(gpus) if gpus else inf
        cycle = self._cycle(parameters, max(1, len(event.placement)), mtbf_s)
        return terms_of(
            event, job.totals, evidence.overheads,
            parameters=parameters, cycle=cycle, error=evidence.resolution_s,
        )  # fmt: skip


class Rule:
    """A rule, with the violations found so far. The pass over the log calls the hooks that a rule overrides:

    | hook | called |
    |---|---|
    | on_event | before each event is applied, with its job (None for an event of a node) |
    | on_interrupt | after a failure or a requeue has taken a job's GPUs |
    | on_instant | after all events of one time are applied, with the number of the first of them |
    | on_departure | when a job has left the system, or the run has ended |
    | on_end | at the end, with the jobs of the log that have no record |

    `kinds`: the kinds of events for which `on_event` is called; None for all.
    """

    name: ClassVar[str] = ""
    text: ClassVar[str] = ""

    def __init__(self, history: ClusterHistory):
        self.history, self.evidence = history, history.evidence
        self.kinds: Collection[str] | None = None
        self.violations: list[Violation] = []
        self.more = 0

    def on_event(self, i: int, event: EventRecord, job: JobHistory | None) -> None: ...

    def on_interrupt(self, i: int, event: EventRecord, job: JobHistory) -> None: ...

    def on_instant(self, first_index: int, batch: Sequence[EventRecord]) -> None: ...

    def on_departure(self, job: JobHistory) -> None: ...

    def on_end(self, unrecorded: Sequence[JobHistory]) -> None: ...

    def unproved(self) -> str:
        """What the evidence neither proves nor refutes; empty if it settles everything."""
        return ""

    def report(self, text: str, i: int | None = None, time_s: float | None = None, job_id: str = "") -> None:
        """Add a violation."""
        if len(self.violations) < MOST_KEPT:
            self.violations.append(Violation(text, i, time_s, job_id or None))
        else:
            self.more += 1

    def report_at(self, i: int, event: EventRecord, text: str) -> None:
        """Add a violation at event number `i`."""
        self.report(f"t={event.time_s:g}: {text}", i, event.time_s, event.job_id)

    def finding(self) -> Finding:
        """The verdict, once the pass has ended."""
        return Finding(self.name, self.text, tuple(self.violations), self.unproved(), self.more)
