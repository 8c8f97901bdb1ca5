"""The jobs and allocations of a report as compact columns, for its job table, Gantt chart and job stories.

Times are whole multiples of `step_s` since `from_s`. Growing columns hold differences, which compress better.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import floor, log10
from typing import Any

from clustersim.analysis import allocations, end_of_run_s, gpu_blocks
from clustersim.records import NODE_DOWN, NODE_UP, STATES, JobRecord, Run, plan_words

from .runs import Group

__all__ = ["packed", "page_data"]

_FINEST_S, _STEPS = 1e-6, 1e7


def packed(document: Any) -> str:
    """The document as JSON, gzip in base64: deterministic, and without markup."""
    text = json.dumps(document, allow_nan=False, separators=(",", ":"))
    return base64.b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode()


@dataclass
class _Names:
    """Distinct texts, numbered in order of appearance."""

    numbers: dict[str, int] = field(default_factory=dict)

    def number(self, text: str) -> int:
        return self.numbers.setdefault(text, len(self.numbers))

    def all(self) -> list[str]:
        return list(self.numbers)


def page_data(groups: Sequence[Group]) -> dict[str, Any]:
    """All jobs of the first run of each policy, and the outcome of each job in each of these runs.

    Id and submission time identify a job, so jobs of different traces are not mixed up.
    """
    runs = [group.runs[0] for group in groups]
    clock = _Clock.of(runs)
    rows: dict[tuple[str, float], int] = {}
    known: list[JobRecord] = []
    for run in runs:
        for job in run.jobs:
            if rows.setdefault((job.job_id, job.submit_s), len(rows)) == len(known):
                known.append(job)
    tenants, models = _Names(), _Names()
    jobs = {
        "id": [job.job_id for job in known],
        "tenant": [tenants.number(job.tenant) for job in known],
        "model": [models.number(job.model) for job in known],
        "submit": [clock.steps(job.submit_s) for job in known],
        "deadline": [clock.steps(job.deadline_s) for job in known],
        "batch": [job.global_batch for job in known],
        "tenants": tenants.all(),
        "models": models.all(),
    }
    drawn = [_run(group, clock, rows) for group in groups]
    return {"from_s": clock.from_s, "step_s": clock.step_s, "end": clock.end, "jobs": jobs, "runs": drawn}


@dataclass(frozen=True)
class _Clock:
    from_s: float
    step_s: float
    end: int

    @classmethod
    def of(cls, runs: Sequence[Run]) -> _Clock:
        from_s = min((job.submit_s for run in runs for job in run.jobs), default=0.0)
        ends = [run.events[-1].time_s for run in runs if run.events]
        finishes = [job.finish_s for run in runs for job in run.jobs if job.finish_s is not None]
        span_s = max([0.0, *(end_s - from_s for end_s in (*ends, *finishes))])
        step_s = max(_FINEST_S, 10.0 ** floor(log10(span_s / _STEPS))) if span_s > 0 else 1.0
        return cls(from_s, step_s, round(span_s / step_s))

    def steps(self, time_s: float | None) -> int | None:
        return None if time_s is None else round((time_s - self.from_s) / self.step_s)


def _run(group: Group, clock: _Clock, rows: dict[tuple[str, float], int]) -> dict[str, Any]:
    run = group.runs[0]
    row_of = {job.job_id: rows[job.job_id, job.submit_s] for job in run.jobs}
    reasons = _Names()
    return {
        "label": group.label,
        "nodes": run.cluster.nodes,
        "gpus_per_node": run.cluster.gpus_per_node,
        "row": _grown(row_of.values()),
        "state": [STATES.index(job.state) if job.state in STATES else -1 for job in run.jobs],
        "reason": [reasons.number(job.reason) for job in run.jobs],
        "reasons": reasons.all(),
        "start": [clock.steps(job.start_s) for job in run.jobs],
        "finish": [clock.steps(job.finish_s) for job in run.jobs],
        "gpus": [job.gpus for job in run.jobs],
        "gpu_s": [round(job.gpu_seconds) for job in run.jobs],
        "lost": [round(job.lost_s / clock.step_s) for job in run.jobs],
        "isolated": [_steps(job.isolated_s, clock) for job in run.jobs],
        "preemptions": [job.preemptions for job in run.jobs],
        "resizes": [job.resizes for job in run.jobs],
        "met": [job.deadline_met if job.deadline_met is None else int(job.deadline_met) for job in run.jobs],
        "held": _held(run, clock, row_of),
        "down": _down(run, clock),
    }


def _steps(seconds: float | None, clock: _Clock) -> int | None:
    return None if seconds is None else round(seconds / clock.step_s)


def _held(run: Run, clock: _Clock, row_of: dict[str, int]) -> dict[str, Any]:
    found = allocations(run)
    blocks = gpu_blocks(found, run.cluster.size_of)
    plans, kinds = _Names(), _Names()
    begins = [clock.steps(held.from_s) or 0 for held in found]
    flat = [block for several in blocks for block in several]
    return {
        "job": [row_of.get(held.given.job_id, -1) for held in found],
        "from": _grown(begins),
        "to": [(clock.steps(held.to_s) or 0) - begin for held, begin in zip(found, begins, strict=True)],
        "paid": [_steps(held.paid_s, clock) for held in found],
        "gpus": [held.given.gpus for held in found],
        "plan": [plans.number(plan_words(held.given.plan)) for held in found],
        "kind": [kinds.number(held.given.event) for held in found],
        "ended": [kinds.number(held.ended) for held in found],
        "plans": plans.all(),
        "kinds": kinds.all(),
        "blocks": [len(several) for several in blocks],
        "first": [first for first, _, _, _ in flat],
        "more": [last - first for first, last, _, _ in flat],
        "gpu": [gpu for _, _, gpu, _ in flat],
        "row": [count for _, _, _, count in flat],
    }


def _down(run: Run, clock: _Clock) -> list[tuple[int, int, int]]:
    """(node, from, to) for each outage of a node."""
    since: dict[int, int] = {}
    spells = []
    for event in run.events:
        if event.event == NODE_DOWN:
            since |= {
                node: clock.steps(event.time_s) or 0 for node, _ in event.placement if node not in since
            }
        elif event.event == NODE_UP:
            for node, _ in event.placement:
                if node in since:
                    spells.append((node, since.pop(node), clock.steps(event.time_s) or 0))
    end = clock.steps(end_of_run_s(run)) or 0
    return [*spells, *((node, begin, end) for node, begin in since.items())]


def _grown(values: Iterable[int]) -> list[int]:
    """The differences between successive values; the first value is kept."""
    differences, before = [], 0
    for value in values:
        differences.append(value - before)
        before = value
    return differences
