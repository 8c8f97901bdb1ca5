"""What must hold in every run, proved from its event log: who got which GPUs when.

The event log is all that is trusted; the records are compared with what it adds up to. `clustersim.testing`
applies these rules to a policy under test, `clustersim.checking_folder` to the folder of a run.

A log counts GPUs by node, and the GPUs of a node are alike: that no node gives more than it has is the same
as that no GPU serves two jobs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import inf, isclose, prod
from typing import NamedTuple

from .checking_sums import GIVES, NODES, Sums, Terms
from .checkpoints import Cycle
from .cluster import Cluster
from .failures import Failures
from .overheads import Overheads
from .records import EventRecord, JobRecord

__all__ = ["JOB_RULES", "Evidence", "Known", "Occupancy", "Rule", "Violation", "instants"]

_DEGREES = re.compile(r"\b(?:tp|pp|dp|cp)(\d{1,9})\b")  # of a plan's label: their product is its GPUs
_BEFORE = {
    "submit": "unknown", "reject": "new", "start": "new", "restart": "stopped",
    "resize": "running", "migrate": "running", "rate": "running", "preempt": "running", "finish": "running",
    "loaded": "running", "interrupt": "running", "fail": "running",
}  # fmt: skip
_AFTER = {
    "submit": "new", "reject": "gone", "preempt": "stopped", "finish": "gone", "interrupt": "stopped",
    "fail": "gone",
}  # fmt: skip
_TAKES = ("preempt", "interrupt", "finish", "fail")


@dataclass(frozen=True)
class Known:
    """What is known of a job: its work in units, to within `work_error`; the seconds per unit by GPUs; its
    parameters (for the size of its checkpoints). None is unknown. `alone`: it can run on no other number of
    GPUs.
    """

    work: float | None = None
    work_error: float = 0.0
    unit_s: Mapping[int, float] = field(default_factory=dict)
    alone: bool = False
    parameters: float | None = None


@dataclass(frozen=True)
class Evidence:
    """What a run left behind. `events` in order of time; `known` by job.

    `end_s`: when it ended, None if unknown; then nothing is said of what a job held or waited at the end.
    `resolution_s`: the largest error of a difference of two recorded times, 0 if they were never rounded.
    """

    cluster: Cluster
    overheads: Overheads
    events: Sequence[EventRecord]
    records: Sequence[JobRecord]
    known: Mapping[str, Known]
    end_s: float | None = None
    resolution_s: float = 0.0
    failures: Failures | None = None

    def terms(self, event: EventRecord, before: Sums) -> Terms:
        """On which terms `event` gives GPUs to a job whose log added up to `before`."""
        if event.event not in GIVES:
            return Terms(Cycle(), False)
        nodes, parameters = event.placement, self.known.get(event.job_id, Known()).parameters
        if parameters is None:
            return Terms(Cycle(), False)
        gpus = sum(self.cluster.size_of(node) for node, _ in nodes if 0 <= node < self.cluster.nodes)
        mtbf_s = inf if self.failures is None or not gpus else self.failures.node_mtbf_s(gpus)
        loads = not before.crashed or before.kept
        loads = loads and event.event != "start" and self.overheads.shares_load(parameters)
        return Terms(self.overheads.cycle(parameters, max(1, len(nodes)), mtbf_s), loads)

    @cached_property
    def summed(self) -> list[tuple[JobRecord, Known, Sums]]:
        """Each record, what is known of its job, and what the job's log adds up to."""
        logs: dict[str, list[EventRecord]] = {}
        for event in self.events:
            logs.setdefault(event.job_id, []).append(event)
        rows = []
        for record in self.records:
            known, log = self.known.get(record.job_id, Known()), logs.get(record.job_id, [])
            rows.append((record, known, Sums.of(log, self.end_s, self.resolution_s, self.terms)))
        return rows


class Violation(NamedTuple):
    """A broken rule, in words; where it has a place in the log, its event (from 0), time and job."""

    text: str
    event: int | None = None
    time_s: float | None = None
    job_id: str | None = None


class Rule(NamedTuple):
    """`check` yields what breaks the rule; `unproved` says for what, if anything, the evidence is lacking."""

    name: str
    text: str
    check: Callable[[Evidence], Iterator[Violation]]
    unproved: Callable[[Evidence], str] = lambda evidence: ""


def instants(events: Sequence[EventRecord]) -> Iterator[list[tuple[int, EventRecord]]]:
    """The numbered events of one time after another.

    By instants: a decision may exchange the GPUs of two jobs, and the log writes one after the other.
    """
    batch: list[tuple[int, EventRecord]] = []
    for i, event in enumerate(events):
        if batch and event.time_s != batch[-1][1].time_s:
            yield batch
            batch = []
        batch.append((i, event))
    if batch:
        yield batch


class Occupancy:
    """Who holds what, as the log is replayed: the last gift to each job that holds GPUs, GPUs by node, how
    many in all, and how many there are on the nodes that run something.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.held: dict[str, EventRecord] = {}
        self.used: dict[int, int] = {}
        self.allocated = self.gpus_of_busy_nodes = 0

    def apply(self, event: EventRecord) -> None:
        if event.event not in GIVES and event.event not in _TAKES:
            return
        before = self.held.pop(event.job_id, None)
        for node, count in before.placement if before else ():
            self._add(node, -count)
        if event.event in GIVES:
            self.held[event.job_id] = event
            for node, count in event.placement:
                self._add(node, count)

    def _add(self, node: int, count: int) -> None:
        before = self.used.get(node, 0)
        self.used[node] = before + count
        self.allocated += count
        changed = (before + count > 0) - (before > 0)
        if changed and 0 <= node < self.cluster.nodes:
            self.gpus_of_busy_nodes += changed * self.cluster.size_of(node)


def _at(i: int, event: EventRecord, text: str) -> Violation:
    return Violation(f"t={event.time_s:g}: {text}", i, event.time_s, event.job_id)


def _check_order(evidence: Evidence) -> Iterator[Violation]:
    now, phase = float("-inf"), dict[str, str]()
    for i, event in enumerate(evidence.events):
        if event.time_s < now:
            text = f"the log goes back in time, from {now:g} s to {event}"
            yield Violation(text, i, event.time_s, event.job_id)
        now, before = event.time_s, phase.get(event.job_id, "unknown")
        if event.event in NODES:
            continue
        given_up = event.event == "fail" and before == "stopped"
        if before != _BEFORE.get(event.event) and not given_up:
            yield _at(i, event, f"{event.event} of job {event.job_id}, which is {before}")
        phase[event.job_id] = _AFTER.get(event.event, "running")


def _check_capacity(evidence: Evidence) -> Iterator[Violation]:
    cluster, now = evidence.cluster, Occupancy(evidence.cluster)
    for batch in instants(evidence.events):
        touched: dict[int, tuple[int, EventRecord]] = {}
        for i, event in batch:
            now.apply(event)
            touched.update((node, (i, event)) for node, _ in event.placement)
        for node, (i, event) in touched.items():
            count = now.used.get(node, 0)
            if not 0 <= node < cluster.nodes or count > cluster.size_of(node):
                jobs = [j for j, e in now.held.items() if any(n == node for n, _ in e.placement)]
                what = f"jobs {', '.join(jobs)} hold {count} GPUs of node {node}"
                yield _at(i, event, f"{what}, on a cluster {cluster.shape}")


def _check_gang(evidence: Evidence) -> Iterator[Violation]:
    for i, event in enumerate(evidence.events):
        wrong = _not_a_gang(event, evidence.known.get(event.job_id, Known()), evidence.cluster)
        if wrong:
            what = f"{event.event} of job {event.job_id}, {event.gpus} GPUs at {event.placement}"
            yield _at(i, event, f"{what}: {wrong}")


def _not_a_gang(event: EventRecord, known: Known, cluster: Cluster) -> str:
    if event.event in NODES:
        return "" if len(event.placement) == 1 and not event.gpus else "names not one node"
    if event.event not in GIVES:
        return "gives no GPUs" if event.gpus or event.placement else ""
    counts = [count for _, count in event.placement]
    if sum(counts) != event.gpus:
        return "the places do not add up"
    if min(counts, default=0) < 1:
        return "a place without GPUs"
    if len({node for node, _ in event.placement}) != len(counts):
        return "names a node twice"
    if cluster.mixed:
        types = dict.fromkeys(cluster.type_of(n) for n, _ in event.placement if 0 <= n < cluster.nodes)
        if len(types) > 1:
            return f"the places are GPUs of different types, {' and '.join(types)}"
    if known.alone and event.gpus not in known.unit_s:
        return f"it can run on {sorted(known.unit_s)} GPUs"
    of_plan = prod(int(n) for n in _DEGREES.findall(event.plan))
    if event.plan and of_plan > event.gpus:  # fewer it may use: not every count has a plan of its own
        return f"its plan {event.plan} is one for {of_plan} GPUs"
    return ""


def _check_progress(evidence: Evidence) -> Iterator[Violation]:
    for i, event in enumerate(evidence.events):
        wrong = _not_a_speed(event, evidence.known.get(event.job_id, Known()))
        if wrong:
            yield _at(
                i, event, f"{event.event} of job {event.job_id} at {event.unit_s!r} s per unit: {wrong}"
            )
    for record, known, sums in evidence.summed:
        if record.state != "finished" or known.work is None or sums.work is None:
            continue
        if not _close(sums.work, known.work, sums.work_error + known.work_error):
            text = f"job {record.job_id} finished after {sums.work:g} of {known.work:g} units of work"
            yield Violation(text, time_s=record.finish_s, job_id=record.job_id)


def _not_a_speed(event: EventRecord, known: Known) -> str:
    if event.event in GIVES or event.event == "rate":
        due = known.unit_s.get(event.gpus)
        if due is not None and event.unit_s != due:
            return f"it takes {due!r} s there"
        return "" if event.unit_s > 0 else "must be positive"
    if event.event == "submit":
        fits = event.unit_s > 0 and (not known.unit_s or event.unit_s in known.unit_s.values())
        return "" if fits or event.unit_s == 0 else "that is not its speed on any number of GPUs"
    return "nothing runs" if event.unit_s else ""


def _work_unknown(evidence: Evidence) -> str:
    ended = [known.work is None for record, known, _ in evidence.summed if record.state == "finished"]
    return f"the work of {sum(ended):,} of {len(ended):,} finished jobs is not known" if any(ended) else ""


def _check_sums(evidence: Evidence) -> Iterator[Violation]:
    for record, _, sums in evidence.summed:
        if not sums.closed:
            continue
        errors = dict.fromkeys(("gpu_seconds", "overhead_gpu_s", "lost_work_gpu_s"), sums.gpu_error)
        for name in (*errors, "start_s", "finish_s", "lost_s", "lost_work_s", "wait_s"):
            logged, recorded = getattr(sums, name), getattr(record, name)
            if not _close(logged, recorded, errors.get(name, sums.seconds_error)):
                text = f"job {record.job_id}: {name} is {recorded} in its record, {logged} by the event log"
                yield Violation(text, job_id=record.job_id)


def _end_unknown(evidence: Evidence) -> str:
    open_ = sum(not sums.closed for _, _, sums in evidence.summed)
    return f"{open_:,} jobs were in the system at the end, at a time unknown" if open_ else ""


def _check_overheads(evidence: Evidence) -> Iterator[Violation]:
    for i, event, due in _dues(evidence):
        error = 3 * evidence.resolution_s
        if due is not None and not _close(event.overhead_s, due, error):
            what = f"{event.event} of job {event.job_id}"
            yield _at(i, event, f"{what} paid {event.overhead_s:g} s, due {due:g} s")


def _dues(evidence: Evidence) -> Iterator[tuple[int, EventRecord, float | None]]:
    """Every event with what it costs its job; None if that is not known, or is proved elsewhere."""
    jobs: dict[str, Sums] = {}
    for i, event in enumerate(evidence.events):
        if event.event in NODES:
            yield i, event, 0.0
            continue
        sums = jobs.setdefault(event.job_id, Sums())
        due = _due_s(event, evidence, sums)
        sums.add(event, evidence.resolution_s, evidence.terms(event, sums))
        if event.event == "interrupt":
            due = sums.crash_s if evidence.known.get(event.job_id, Known()).parameters is not None else None
        if sums.closed:
            del jobs[event.job_id]
        yield i, event, due


def _due_s(event: EventRecord, evidence: Evidence, before: Sums) -> float | None:
    """What an event costs its job, by `Overheads`; None if the size of its checkpoints is unknown."""
    overheads, nodes = evidence.overheads, max(1, len(event.placement))
    if event.event == "loaded":
        return None
    if event.event not in GIVES:
        return 0.0
    parameters = evidence.known.get(event.job_id, Known()).parameters
    if event.event == "start":
        return overheads.start_s(event.gpus)
    if parameters is None:
        return None
    if before.crashed:
        due = overheads.recover_s(parameters, nodes, event.gpus, before.kept)
    else:
        due = overheads.restart_s(parameters, nodes, event.gpus, event.event)
    loads = evidence.terms(event, before).loads  # for a time that depends on the others
    return due - overheads.load_s(parameters, nodes) if loads else due


def _size_unknown(evidence: Evidence) -> str:
    unknown = sum(
        evidence.known.get(event.job_id, Known()).parameters is None
        for event in evidence.events
        if event.event in GIVES and event.event != "start"
    )
    return f"{unknown:,} events belong to models whose size is not known here" if unknown else ""


def _close(a: float | None, b: float | None, error: float) -> bool:
    if a is None or b is None:
        return a is b
    return isclose(a, b, rel_tol=1e-9, abs_tol=1e-6 + error)


JOB_RULES = (
    Rule("causality", "time never runs back; a job is submitted, starts, moves and ends, in this order",
         _check_order),
    Rule("capacity", "no node gives more GPUs than it has, so no GPU serves two jobs", _check_capacity),
    Rule("gang", "a job gets all GPUs of its size at once, of one type, enough for its plan, each node once",
         _check_gang),
    Rule("progress", "who finished has done all its work: the integral of its speed", _check_progress,
         _work_unknown),
    Rule("conservation", "GPU-seconds, overheads, waits and times of the records are those of the event log",
         _check_sums, _end_unknown),
    Rule("overheads", "every start, restart, resize and migration pays what the overheads say, once; every "
         "failure costs the work since the last checkpoint", _check_overheads, _size_unknown),
)  # fmt: skip
"""What an event log can prove of jobs, in order: a broken rule makes those below it hard to read."""
