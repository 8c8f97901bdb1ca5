"""A run as a trace for ui.perfetto.dev or chrome://tracing: a node is a process, a GPU a thread.

Trace Event Format (Google, 2016): complete events ("X") for allocations and overheads, counters ("C") for the
cluster, instants ("i") for nodes that fail and come back. Times are microseconds since the first submission.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from clustersim.analysis import Allocation, allocations, gpu_blocks
from clustersim.records import NODE_EVENTS, JobRecord, Run
from itertime.errors import UserError
from itertime.io import replacing

__all__ = ["timeline_events", "write_timeline"]

MOST_EVENTS = 5_000_000
_CLUSTER = 0


def timeline_events(run: Run) -> Iterator[dict[str, Any]]:
    """The events of a run's trace. Process 0 is the cluster, process n + 1 is node n, thread k its GPU k.

    `gpu_blocks` chooses the GPUs of a node that a job occupies; the engine does not number them.
    """
    from_s = min((job.submit_s for job in run.jobs), default=0.0)
    all_allocations = allocations(run)
    yield from _names(run, all_allocations)
    yield from _counters(run, from_s)
    yield from _outages(run, from_s)
    jobs = {job.job_id: job for job in run.jobs}
    for held, blocks in zip(all_allocations, gpu_blocks(all_allocations, run.cluster.size_of), strict=True):
        job = jobs[held.given.job_id]
        details = _details(held, job)
        for first_node, last_node, gpu, count in blocks:
            for node in range(first_node, last_node + 1):
                for k in range(gpu, gpu + count):
                    yield _complete(
                        job.job_id, held.given.event, held.from_s - from_s, held.held_s, node, k, details
                    )
                if held.paid_s > 0:
                    yield _complete("overhead", "overhead", held.from_s - from_s, held.paid_s, node, gpu, {})


def write_timeline(run: Run, path: str | Path) -> int:
    """Write the trace as JSON, gzip-compressed if the name ends in .gz. Returns the number of events.

    UserError if the name ends differently, if viewers cannot load so many events, or if `path` cannot be
    written.
    """
    path = Path(path)
    if not path.name.endswith((".json", ".json.gz")):
        raise UserError(f"{path}: unknown kind of trace; let the name end in .json or .json.gz")
    slices = sum(held.given.gpus + len(held.given.placement) for held in allocations(run))
    if slices > MOST_EVENTS:
        problem = f"the timeline would have {slices:,} events, viewers take {MOST_EVENTS:,}"
        raise UserError(
            f"{path}: {problem}; end the run earlier (--until), or use the timeline of the report"
        )
    with replacing(path) as temporary:
        return _write(timeline_events(run), temporary, compressed=path.name.endswith(".gz"))


def _write(events: Iterable[dict[str, Any]], path: Path, *, compressed: bool) -> int:
    count = 0
    with path.open("wb") as raw:
        # No name and no time in the gzip header: equal runs give equal bytes.
        file = gzip.GzipFile("", "wb", 6, raw, mtime=0) if compressed else raw
        file.write(b'{"displayTimeUnit":"ms","traceEvents":[\n')
        for event in events:
            text = json.dumps(event, allow_nan=False, separators=(",", ":"))
            separator = ",\n" if count else ""
            file.write((separator + text).encode())
            count += 1
        file.write(b"\n]}\n")
        if compressed:
            file.close()
    return count


def _names(run: Run, all_allocations: Iterable[Allocation]) -> Iterator[dict[str, Any]]:
    """Names of the processes and threads in use."""
    yield _meta("process_name", _CLUSTER, 0, name=f"cluster, {run.policy}")
    yield _meta("process_sort_index", _CLUSTER, 0, sort_index=-1)
    nodes = {node for held in all_allocations for node, _ in held.given.placement}
    for node in sorted(nodes):
        yield _meta("process_name", node + 1, 0, name=f"node {node}")
        yield _meta("process_sort_index", node + 1, 0, sort_index=node)
        for gpu in range(run.cluster.size_of(node)):
            yield _meta("thread_name", node + 1, gpu, name=f"GPU {gpu}")


def _meta(event_name: str, process: int, thread: int, **args: Any) -> dict[str, Any]:
    return {"ph": "M", "name": event_name, "pid": process, "tid": thread, "args": args}


def _counters(run: Run, from_s: float) -> Iterator[dict[str, Any]]:
    for snapshot in run.snapshots:
        counter = {"ph": "C", "pid": _CLUSTER, "ts": _us(snapshot.time_s - from_s)}
        gpus = {"allocated": snapshot.allocated, "stranded": snapshot.stranded, "down": snapshot.down}
        gpus["idle"] = run.cluster.gpus - sum(gpus.values())
        yield {**counter, "name": "GPUs", "args": gpus}
        yield {**counter, "name": "waiting jobs", "args": {"jobs": snapshot.pending}}
        yield {**counter, "name": "running jobs", "args": {"jobs": snapshot.running}}


def _outages(run: Run, from_s: float) -> Iterator[dict[str, Any]]:
    for event in run.events:
        if event.event in NODE_EVENTS:
            name = event.event.replace("_", " ")
            mark = {"ph": "i", "s": "p", "name": name, "ts": _us(event.time_s - from_s), "tid": 0}
            for node, _ in event.placement:
                yield {**mark, "pid": node + 1}


def _details(held: Allocation, job: JobRecord) -> dict[str, Any]:
    """The details of an allocation that a viewer shows."""
    details = {
        "tenant": job.tenant,
        "model": job.model,
        "gpus": held.given.gpus,
        "plan": held.given.plan,
        "overhead_s": round(held.paid_s, 6),
        "ended": held.ended or "the run ended",
    }
    return {name: value for name, value in details.items() if value != ""}


def _complete(
    name: str, category: str, from_s: float, seconds: float, node: int, gpu: int, details: dict[str, Any]
) -> dict[str, Any]:
    event = {"ph": "X", "name": name, "cat": category, "ts": _us(from_s), "dur": _us(seconds)}
    return {**event, "pid": node + 1, "tid": gpu, "args": details}


def _us(seconds: float) -> int:
    return round(seconds * 1e6)
