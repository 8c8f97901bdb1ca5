"""The jobs and allocations of a report as compact columns, for its job table, Gantt chart and job stories.

Times are whole multiples of `step_s` since `from_s`. Growing columns hold differences, which compress better.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from math import floor, log10
from typing import Any

import numpy as np

from clustersim.analysis import Holdings, blocks_of, end_of_run_s, holdings, plan_keys
from clustersim.analysis.tables import RecordTable, events_of, jobs_of, numbered
from clustersim.records import NODE_DOWN, NODE_UP, SERVED, STATES, Run, plan_words, spread_words

from .runs import PolicyRuns

__all__ = ["page_data"]

_FINEST_S, _STEPS = 1e-6, 1e7
_EXACT = 2.0**53  # whole numbers up to this one are exact


def page_data(groups: Sequence[PolicyRuns]) -> dict[str, Any]:
    """All jobs of the first run of each policy, and the outcome of each job in each of these runs.

    Id and submission time identify a job, so jobs of different traces are not mixed up.
    """
    runs = [group.runs[0] for group in groups]
    clock = _PageClock.of(runs)
    known_values = _Known.of([jobs_of(run) for run in runs])
    tenants, tenant_names = numbered(known_values.values("tenant"))
    models, model_names = numbered(known_values.values("model"))
    software, software_names = numbered(_software(known_values))
    jobs = {
        "id": known_values.values("job_id"),
        "tenant": tenants,
        "model": models,
        "submit": clock.steps(known_values.numbers("submit_s")),
        "deadline": clock.steps(known_values.numbers("deadline_s")),
        "batch": known_values.values("global_batch"),
        "tenants": tenant_names,
        "models": model_names,
        "software": software,
        "softwares": software_names,
    }
    drawn = [_run(group, clock, rows) for group, rows in zip(groups, known_values.rows, strict=True)]
    return {"from_s": clock.from_s, "step_s": clock.step_s, "end": clock.end, "jobs": jobs, "runs": drawn}


def _software(known_values: _Known) -> list[str]:
    """The framework, the precision and the plan's options of each job, as far as it states them."""
    facts = map(known_values.values, ("framework", "precision", "plan_options"))
    return [" ".join(filter(None, versions)) for versions in zip(*facts, strict=True)]


@dataclass(frozen=True)
class _Known:
    """The distinct jobs of several runs. `rows`: for each run, the numbers of its jobs among them. `added`:
    for each run, those of its own rows that no run before it has.
    """

    tables: Sequence[RecordTable]
    rows: list[list[int]]
    added: list[list[int]]

    @classmethod
    def of(cls, tables: Sequence[RecordTable]) -> _Known:
        numbers: dict[tuple[str, float], int] = {}
        rows: list[list[int]] = []
        added: list[list[int]] = []
        keys_before = None
        for table in tables:
            keys = list(zip(table.values("job_id"), table.values("submit_s"), strict=True))
            if keys == keys_before:
                added.append([])
                rows.append(rows[-1])
                continue
            keys_before = keys
            new = {key: row for row, key in reversed([*enumerate(keys)]) if key not in numbers}
            added.append(sorted(new.values()))
            numbers |= {keys[row]: number for number, row in enumerate(added[-1], len(numbers))}
            rows.append([numbers[key] for key in keys])
        return cls(tables, rows, added)

    def values(self, name: str) -> list[Any]:
        """The values of a field of every job."""
        parts = zip([table.values(name) for table in self.tables], self.added, strict=True)
        return [values[row] for values, rows in parts for row in rows]

    def numbers(self, name: str) -> np.ndarray:
        """A field of numbers of every job; None is NaN."""
        return np.concatenate(
            [table[name][rows] for table, rows in zip(self.tables, self.added, strict=True)]
        )


@dataclass(frozen=True)
class _PageClock:
    from_s: float
    step_s: float
    end: int

    @classmethod
    def of(cls, runs: Sequence[Run]) -> _PageClock:
        tables = [jobs_of(run) for run in runs if run.jobs]
        from_s = min((float(jobs["submit_s"].min()) for jobs in tables), default=0.0)
        ends = [run.events[-1].time_s for run in runs if run.events]
        finishes = [float(np.fmax.reduce(jobs["finish_s"], initial=from_s)) for jobs in tables]
        span_s = max([0.0, *(end_s - from_s for end_s in (*ends, *finishes))])
        step_s = max(_FINEST_S, 10.0 ** floor(log10(span_s / _STEPS))) if span_s > 0 else 1.0
        return cls(from_s, step_s, round(span_s / step_s))

    def step(self, time_s: float) -> int:
        return round((time_s - self.from_s) / self.step_s)

    def steps(self, times_s: np.ndarray) -> list[int | None]:
        """Times on the trace's clock in steps since the beginning; None for NaN."""
        return self.lengths(times_s - self.from_s)

    def lengths(self, seconds: np.ndarray) -> list[int | None]:
        """Durations in steps; None for NaN."""
        return _whole(seconds / self.step_s)


def _whole(values: np.ndarray) -> list[int | None]:
    """The nearest whole numbers, halves to the even one; None for NaN."""
    rounded = np.rint(values)
    if np.all(np.abs(rounded) < _EXACT):  # not for NaN
        return rounded.astype(np.int64).tolist()
    return [None if value != value else int(value) for value in rounded.tolist()]


def _run(group: PolicyRuns, clock: _PageClock, rows: Sequence[int]) -> dict[str, Any]:
    run, jobs = group.runs[0], jobs_of(group.runs[0])
    reasons, reason_names = numbered(jobs.values("reason"))
    states = {state: number for number, state in enumerate((*STATES, SERVED))}
    return {
        "label": group.label,
        "look": group.look,
        "nodes": run.cluster.nodes,
        "gpus_per_node": run.cluster.gpus_per_node,
        "row": _grown(rows),
        "state": [states.get(state, -1) for state in jobs.values("state")],
        "reason": reasons,
        "reasons": reason_names,
        "start": clock.steps(jobs["start_s"]),
        "finish": clock.steps(jobs["finish_s"]),
        "gpus": jobs.values("gpus"),
        "gpu_s": _whole(jobs["gpu_seconds"]),
        "lost": clock.lengths(jobs["lost_s"]),
        "isolated": clock.lengths(jobs["isolated_s"]),
        "preemptions": jobs.values("preemptions"),
        "resizes": jobs.values("resizes"),
        "met": _whole(jobs["deadline_met"]),
        **_gpu_types(run, len(rows)),
        "held": _held(run, clock, rows),
        "down": _down(run, clock),
    }


def _gpu_types(run: Run, count: int) -> dict[str, Any]:
    """For each of the `count` jobs the GPU types that it held, in order, as a number of a text; nothing on a
    cluster of one type.
    """
    if not run.cluster.mixed:
        return {}
    held = holdings(run)
    types: list[dict[str, None]] = [{} for _ in range(count)]
    for job, placement in zip(held.job.tolist(), held.placements, strict=True):
        if placement and 0 <= job < count:
            types[job][run.cluster.type_of(placement[0][0])] = None
    texts, names = numbered([", ".join(gpu_types) for gpu_types in types])
    return {"type": texts, "types": names}


def _held(run: Run, clock: _PageClock, rows: Sequence[int]) -> dict[str, Any]:
    held = holdings(run)
    blocks = blocks_of(run)
    begins, ends = (np.array(clock.steps(times), dtype=int) for times in (held.from_s, held.to_s))
    is_known = held.job < len(rows)
    words, plans = _plan_texts(run, held, is_known)
    events = events_of(run).values("event")
    begun = [events[row] for row in held.given.tolist()]
    kinds, kind_names = numbered([*begun, *held.ended])
    flat = list(chain.from_iterable(blocks))
    return {
        "job": np.append(rows, -1)[np.where(is_known, held.job, -1)].tolist(),
        "from": _grown(begins),
        "to": (ends - begins).tolist(),
        "paid": clock.lengths(held.paid_s),
        "gpus": np.ceil(held.gpus).astype(int).tolist(),
        "plan": words.tolist(),
        "kind": kinds[: len(begun)],
        "ended": kinds[len(begun) :],
        "plans": plans,
        "kinds": kind_names,
        "blocks": list(map(len, blocks)),
        "first": [first_node for first_node, _, _, _ in flat],
        "more": [last_node - first_node for first_node, last_node, _, _ in flat],
        "gpu": [gpu for _, _, gpu, _ in flat],
        "row": [count for _, _, _, count in flat],
    }


def _plan_texts(run: Run, held: Holdings, is_known: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """The plan of each allocation as a number of a text. The text says how much the iterations of one job
    differ in time, if they do. `is_known`: whether the job of an allocation has a record.
    """
    varying = {plan.key: spread for plan in run.plans if (spread := spread_words(plan))}
    if not varying or not is_known.all():
        words, plans = numbered([plan_words(label) for label in held.plans])
        return np.array(words, dtype=int)[held.plan], plans
    keys, of_key = plan_keys(run)
    texts = [
        f"{plan_words(key.plan)} ({varying[key]} an iteration)" if key in varying else plan_words(key.plan)
        for key in keys
    ]
    words, plans = numbered(texts)
    return np.array(words, dtype=int)[of_key], plans


def _down(run: Run, clock: _PageClock) -> list[tuple[int, int, int]]:
    """(node, from, to) for each outage of a node."""
    if NODE_DOWN not in events_of(run).values("event"):
        return []
    since: dict[int, int] = {}
    spells = []
    for event in run.events:
        if event.event == NODE_DOWN:
            since |= {node: clock.step(event.time_s) for node, _ in event.placement if node not in since}
        elif event.event == NODE_UP:
            for node, _ in event.placement:
                if node in since:
                    spells.append((node, since.pop(node), clock.step(event.time_s)))
    end = clock.step(end_of_run_s(run))
    return [*spells, *((node, begin, end) for node, begin in since.items())]


def _grown(values: Sequence[int] | np.ndarray) -> list[int]:
    """The differences between successive values; the first value is kept."""
    return np.diff(values, prepend=0).tolist()
