"""What an event log proves of nodes and of the storage, and all rules together."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from math import isclose

from .checking import JOB_RULES, Evidence, Known, Occupancy, Rule, Violation, instants
from .checking_sums import GIVES, NODES, Sums
from .records import EventRecord
from .storage import Storage

__all__ = ["RULES"]


def _check_service(evidence: Evidence) -> Iterator[Violation]:
    """Nodes go and come in turns; after every instant no job holds GPUs of a node that is out; who is
    interrupted was on a node that went out at this instant.
    """
    yield from _check_ends(evidence)
    down: dict[int, EventRecord] = {}
    now = Occupancy(evidence.cluster)
    for batch in instants(evidence.events):
        before = dict(now.held) if any(event.event == "interrupt" for _, event in batch) else {}
        for i, event in batch:
            if event.event in NODES:
                yield from _turn(evidence, down, i, event)
            elif event.event == "interrupt":
                given = before.get(event.job_id)
                places = [node for node, _ in given.placement] if given is not None else []
                if not any(node in down and down[node].time_s == event.time_s for node in places):
                    yield _at(i, event, f"job {event.job_id} is interrupted, and no node of it has failed")
            now.apply(event)
        if down:
            for i, event in batch:
                yield from _on_service(evidence, down, now, i, event)


def _check_ends(evidence: Evidence) -> Iterator[Violation]:
    """A job fails by a fate that the settings allow, or at once after one failure too many."""
    failures = evidence.failures
    fates = failures is not None and (
        failures.end_as_logged or failures.job_failed_share > 0 or failures.job_cancelled_share > 0
    )
    counts: dict[str, int] = {}
    for i, event in enumerate(evidence.events):
        job_id, before = event.job_id, counts.get(event.job_id, 0)
        if failures is None and event.event in ("interrupt", "fail"):
            yield _at(i, event, f"{event.event} of job {job_id} in a run in which nothing fails")
        elif failures is not None and event.event == "fail" and not fates and before <= failures.retries:
            yield _at(i, event, f"job {job_id} is given up after {before} failures of {failures.retries}")
        elif failures is not None and event.event in GIVES and before > failures.retries:
            yield _at(i, event, f"{event.event} of job {job_id}, which {before} failures have stopped")
        if event.event == "interrupt":
            counts[job_id] = before + 1


def _turn(
    evidence: Evidence, down: dict[int, EventRecord], i: int, event: EventRecord
) -> Iterator[Violation]:
    for node, count in event.placement:
        if not 0 <= node < evidence.cluster.nodes or count != evidence.cluster.size_of(node):
            yield _at(i, event, f"{event.event} of {count} GPUs on node {node}, which has not so many")
        elif (event.event == "node_up") != (node in down):
            yield _at(i, event, f"{event.event} of node {node}, which is {'down' if node in down else 'up'}")
        if event.event == "node_down":
            down[node] = event
        else:
            down.pop(node, None)


def _on_service(
    evidence: Evidence, down: dict[int, EventRecord], now: Occupancy, i: int, event: EventRecord
) -> Iterator[Violation]:
    """What `event` changed: nobody was given GPUs that are out, or kept those that went out."""
    if event.event == "node_down":
        nodes = {node for node, _ in event.placement if node in down and now.used.get(node, 0)}
        for node in sorted(nodes):
            jobs = [job for job, e in now.held.items() if any(n == node for n, _ in e.placement)]
            yield _at(i, event, f"jobs {', '.join(jobs)} keep GPUs of node {node}, which is out of service")
    elif event.event in GIVES and now.held.get(event.job_id) is event:
        nodes = {node for node, _ in event.placement if node in down}
        if nodes:
            text = f"{event.event} of job {event.job_id} on node {min(nodes)}, which is out of service"
            yield _at(i, event, text)


def _check_loads(evidence: Evidence) -> Iterator[Violation]:
    """Replays the shared storage: every load begins when its job has paid the rest, and ends when the log
    says so, unless its job loses its GPUs before.
    """
    if not evidence.overheads.storage_shared or _loads_unknown(evidence):
        return
    overheads, storage = evidence.overheads, Storage[str](evidence.overheads.storage_bytes_per_s)
    sums: dict[str, Sums] = {}
    given: dict[str, int] = {}  # the allocation that loads, by job
    to_begin: list[tuple[float, int, str]] = []
    began: dict[str, float] = {}
    for i, event in enumerate(evidence.events):
        if event.event in NODES:
            continue
        while to_begin and to_begin[0][0] <= event.time_s:
            begin_s, number, job_id = heappop(to_begin)
            yield from _overdue(evidence, storage, began, begin_s, i, event)
            if given.get(job_id) == number:
                nodes = len(evidence.events[number].placement)
                parameters = evidence.known[job_id].parameters or 0.0
                size = overheads.scale * overheads.checkpoint_bytes(parameters)
                storage.begin(job_id, size, overheads.load_limit(nodes), begin_s)
                began[job_id] = begin_s
        yield from _overdue(evidence, storage, began, event.time_s, i, event)
        job_id, before = event.job_id, sums.setdefault(event.job_id, Sums())
        terms = evidence.terms(event, before)
        if event.event == "loaded":
            yield from _loaded(evidence, storage, began, i, event)
        if event.event not in ("rate", "submit"):
            if job_id in storage:
                storage.end(job_id, event.time_s)
            given.pop(job_id, None)
            began.pop(job_id, None)
        if terms.loads:
            given[job_id] = i
            heappush(to_begin, (event.time_s + event.overhead_s, i, job_id))
        before.add(event, evidence.resolution_s, terms)


def _slack_s(evidence: Evidence, now: float) -> float:
    return 1e-6 + 1e-9 * now + 100 * evidence.resolution_s


def _overdue(
    evidence: Evidence, storage: Storage[str], began: dict[str, float], now: float, i: int, event: EventRecord
) -> Iterator[Violation]:
    """Loads that were done before `now`, and of which the log says nothing."""
    while (first := storage.next_end()) is not None and first[0] < now - _slack_s(evidence, now):
        end_s, job_id = first
        yield _at(i, event, f"job {job_id} had loaded at t={end_s:g}, of which the log says nothing")
        storage.end(job_id, end_s)
        del began[job_id]


def _loaded(
    evidence: Evidence, storage: Storage[str], began: dict[str, float], i: int, event: EventRecord
) -> Iterator[Violation]:
    job_id, slack_s = event.job_id, _slack_s(evidence, event.time_s)
    if job_id not in storage:
        yield _at(i, event, f"job {job_id} has loaded what it never began to load")
        return
    left_s = storage.left_s(job_id, event.time_s)
    if left_s > slack_s:
        yield _at(i, event, f"job {job_id} has loaded {left_s:g} s too early for its share of the storage")
    took_s = event.time_s - began[job_id]
    if not isclose(event.overhead_s, took_s, rel_tol=1e-9, abs_tol=slack_s):
        yield _at(i, event, f"job {job_id} paid {event.overhead_s:g} s for a load of {took_s:g} s")


def _loads_unknown(evidence: Evidence) -> str:
    if not evidence.overheads.storage_shared:
        return ""
    loaded = {event.job_id for event in evidence.events if event.event == "loaded"}
    unknown = sum(evidence.known.get(job_id, Known()).parameters is None for job_id in loaded)
    return (
        f"of {unknown:,} of the {len(loaded):,} jobs that load the sizes are not known here"
        if unknown
        else ""
    )


def _at(i: int, event: EventRecord, text: str) -> Violation:
    return Violation(f"t={event.time_s:g}: {text}", i, event.time_s, event.job_id or None)


RULES = (
    *JOB_RULES,
    Rule("service", "nodes go out of service and come back in turns; no job holds GPUs of one that is out",
         _check_service),
    Rule("loads", "jobs that load at the same time share the storage, and load once", _check_loads,
         _loads_unknown),
)  # fmt: skip
"""Every rule that an event log can prove, in order."""
