"""What the folder of a run proves of itself: the rules of `clustersim.checking` on its event log, and that
its other files say what the event log says.

The tables state times to 1e-6 s; sums are compared within what that rounding can make of them. Work is
counted in the units of the log: a job's work is its run time on the GPUs it asked for over the seconds per
unit there, which its `submit` states. The sizes of checkpoints are those of the models that `itertime` ships.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from math import isclose
from pathlib import Path
from typing import Any

from itertime.errors import UserError

from .checking import Evidence, Known, Occupancy, Violation, instants
from .checking_nodes import RULES
from .checking_sums import NODES
from .failures import Failures
from .metrics import summarise
from .overheads import Overheads
from .records import JobRecord
from .rundir import Run, changes, read_unverified

__all__ = ["Finding", "check_run", "check_run_folder"]

_RESOLUTION_S = 1e-6
_MOST = 1e15  # beyond all sense, and still far from overflowing
_COUNTED = {"preempt": "preemptions", "resize": "resizes", "restart": "restarts", "migrate": "migrations",
            "interrupt": "interruptions"}  # fmt: skip
_RATIOS = ("slowdown_mean", "finish_time_fairness_max", "jain_index")


@dataclass(frozen=True)
class Finding:
    """One rule, what breaks it (nothing: it is proved), and for what the folder is no proof either way."""

    rule: str
    text: str
    violations: tuple[Violation, ...]
    unproved: str = ""


def check_run_folder(directory: str | Path) -> list[Finding]:
    """Check the folder of a run, files first. UserError, TableError for what cannot be read."""
    run = read_unverified(directory)
    text = "the files are those that manifest.json was written for"
    changed = tuple(Violation(f"{change}") for change in changes(directory, run))
    return [Finding("files", text, changed), *check_run(run)]


def check_run(run: Run) -> list[Finding]:
    """Check the records of a run as its folder states them, a `Finding` per rule."""
    evidence = _evidence(run)
    findings = [
        Finding(rule.name, rule.text, tuple(rule.check(evidence)), rule.unproved(evidence)) for rule in RULES
    ]
    findings += [
        Finding("records", "one record a job, whose state and counts are those of the event log",
                tuple(_check_records(run))),
        Finding("usage", "usage.csv is what the event log says of the cluster", tuple(_check_usage(run))),
    ]  # fmt: skip
    wrong, unproved = _check_summary(run, evidence)
    text = "summary.json is what the records give when computed again"
    return [*findings, Finding("summary", text, tuple(wrong), unproved)]


def _evidence(run: Run) -> Evidence:
    planned = {event.job_id for event in run.events if event.plan}
    sizes = _parameters({job.model for job in run.jobs if job.job_id in planned})
    units = {event.job_id: event.unit_s for event in run.events if event.event == "submit"}
    known = {}
    for job in run.jobs:
        # A request without a plan runs at a speed from a table, with checkpoints of no stated size.
        parameters = sizes.get(job.model) if job.job_id in planned else 0.0
        unit_s = units.get(job.job_id, 0.0)
        work = None if job.isolated_s is None or unit_s <= 0 else job.isolated_s / unit_s
        error = _RESOLUTION_S / unit_s if work is not None else 0.0
        rigid = not job.model  # known by its duration alone: a second of work takes a second
        speeds = {job.gpus: 1.0} if rigid and job.gpus is not None else {}
        known[job.job_id] = Known(work, error, speeds, rigid, parameters)
    return Evidence(run.cluster, _overheads(run), run.events, run.jobs, known, _end_s(run), _RESOLUTION_S,
                    _failures(run))  # fmt: skip


def _parameters(models: set[str]) -> dict[str, float]:
    from itertime import list_models, load_model

    return {name: float(load_model(name).parameters) for name in list_models() if name in models}


def _overheads(run: Run) -> Overheads:
    stated = run.manifest.get("overheads")
    if stated is None:
        return Overheads.none()
    if not isinstance(stated, dict) or set(stated) != {f.name for f in fields(Overheads)}:
        raise UserError(f"manifest.json: overheads={stated!r:.80}: must state all of them; run again")
    return Overheads(**stated)


def _failures(run: Run) -> Failures | None:
    stated = run.manifest.get("failures")
    if stated is None:
        return None
    if not isinstance(stated, dict) or set(stated) != {f.name for f in fields(Failures)}:
        raise UserError(f"manifest.json: failures={stated!r:.80}: must state all of them; run again")
    return Failures(**stated)


def _end_s(run: Run) -> float | None:
    """When the run ended; None if the folder does not say."""
    if run.manifest.get("end_s") is None:
        return None
    return max((_number(run, "end_s"), *(event.time_s for event in run.events)))


def _number(run: Run, name: str) -> float:
    value = run.manifest.get(name)
    if not isinstance(value, int | float) or not 0 <= value <= _MOST:
        raise UserError(f"manifest.json: {name}={value!r:.80}: must be from 0 to {_MOST:g}; run again")
    return float(value)


def _check_records(run: Run) -> Iterator[Violation]:
    trace = run.manifest.get("trace")
    submitted = trace.get("jobs") if isinstance(trace, dict) else None
    if isinstance(submitted, int) and submitted != len(run.jobs):
        yield Violation(f"{len(run.jobs)} records of the {submitted} jobs that manifest.json states")
    logs: dict[str, list[int]] = {}
    for i, event in enumerate(run.events):
        if event.event not in NODES:
            logs.setdefault(event.job_id, []).append(i)
    seen = set[str]()
    for job in run.jobs:
        if job.job_id in seen:
            yield Violation(f"job {job.job_id} has two records", job_id=job.job_id)
        seen.add(job.job_id)
        for text in _contradictions(run, job, logs.get(job.job_id, [])):
            yield Violation(f"job {job.job_id}: {text}", job_id=job.job_id)
    for job_id, log in logs.items():
        if job_id not in seen:
            first = run.events[log[0]]
            yield Violation(f"t={first.time_s:g}: job {job_id} has no record", log[0], first.time_s, job_id)


def _contradictions(run: Run, job: JobRecord, log: list[int]) -> Iterator[str]:
    events = [run.events[i] for i in log]
    ends = {"finish": "finished", "reject": "rejected", "fail": "failed"}
    state = ends.get(events[-1].event, "unfinished") if events else "unfinished"
    expected: dict[str, Any] = {"state": state}
    for kind, name in _COUNTED.items():
        expected[name] = sum(event.event == kind for event in events)
    if events:
        expected["submit_s"] = events[0].time_s
    expected["jct_s"] = None if job.finish_s is None else job.finish_s - job.submit_s
    expected["queue_s"] = None if job.start_s is None else job.start_s - job.submit_s
    if events and (job.isolated_s is None) != (events[0].unit_s == 0):
        yield f"isolated_s is {job.isolated_s}, with {events[0].unit_s:g} s per unit when it was submitted"
    for name, value in expected.items():
        recorded = getattr(job, name)
        if recorded != value and not _near(recorded, value):
            yield f"{name} is {recorded} in its record, {value} by the event log"
    if (job.deadline_s is None) != (job.deadline_met is None):
        yield f"deadline_met is {job.deadline_met} with the deadline {job.deadline_s}"
    elif job.deadline_s is not None:
        slack = float("-inf") if job.finish_s is None else job.deadline_s - job.finish_s
        if abs(slack) > 2 * _RESOLUTION_S and job.deadline_met != (slack > 0):
            yield f"deadline_met is {job.deadline_met}: it finished {job.finish_s}, due {job.deadline_s}"


def _near(a: Any, b: Any) -> bool:
    numbers = isinstance(a, float) and isinstance(b, float)
    return numbers and isclose(a, b, rel_tol=1e-9, abs_tol=2 * _RESOLUTION_S)


def _check_usage(run: Run) -> Iterator[Violation]:
    """After every instant of the log, the last row of usage.csv up to then states what the log adds up to."""
    batches = list(instants(run.events))
    if run.manifest.get("complete") is not True:
        batches = batches[:-1]  # what the policy made of the last one was never enacted
    times = {event.time_s for event in run.events}
    before_s = float("-inf")
    for snapshot in run.snapshots:
        if snapshot.time_s not in times or snapshot.time_s < before_s:
            text = f"t={snapshot.time_s:g}: usage.csv states a change here, the event log has none"
            yield Violation(text, time_s=snapshot.time_s)
        before_s = snapshot.time_s
    now, inside, down, row = Occupancy(run.cluster), 0, 0, -1
    for batch in batches:
        for _, event in batch:
            now.apply(event)
            inside += (event.event == "submit") - (event.event in ("reject", "finish", "fail"))
            if event.event in NODES:
                size = sum(count for _, count in event.placement)
                down += size if event.event == "node_down" else -size
        i, last = batch[-1]
        while row + 1 < len(run.snapshots) and run.snapshots[row + 1].time_s <= last.time_s:
            row += 1
        stranded = now.gpus_of_busy_nodes - now.allocated
        logged = (now.allocated, stranded, len(now.held), inside - len(now.held), down)
        stated = tuple(run.snapshots[row][1:]) if row >= 0 else (0, 0, 0, 0, 0)
        if stated != logged:
            text = (
                f"t={last.time_s:g}: allocated, stranded, running, pending, down are {stated} in usage.csv, "
            )
            yield Violation(f"{text}{logged} by the event log", i, last.time_s, last.job_id)


def _check_summary(run: Run, evidence: Evidence) -> tuple[list[Violation], str]:
    price = _number(run, "price_usd_per_gpu_h") if "price_usd_per_gpu_h" in run.manifest else 5.0
    last_s = max((event.time_s for event in run.events), default=0.0)
    try:
        again = summarise(
            run.jobs, run.snapshots, run.cluster, end_s=last_s if evidence.end_s is None else evidence.end_s,
            events=len(run.events), price_usd_per_gpu_h=price,
        )  # fmt: skip
    except (ArithmeticError, ValueError) as error:
        return [Violation(f"the records give no metrics: {error}")], ""
    times = [t for job in run.jobs if job.state == "finished" for t in (job.isolated_s, job.jct_s)]
    shortest = min((t for t in times if t is not None), default=1.0)
    coarse = shortest < 1e3 * _RESOLUTION_S  # ratios to such times are lost in the rounding of the tables
    skipped = (*_RATIOS, "covers") if coarse else ()
    precision = dict.fromkeys(_RATIOS, 1e-6 if coarse else 1e-6 + 2e-6 / shortest)
    money = 1e-6 * (1 + len(run.jobs) * price / 3600)
    wrong = [
        Violation(f"{name} is {run.summary.get(name, 'missing')} in summary.json, {value} by the records")
        for name, value in again.items()
        if name not in skipped
        and not _same(run.summary.get(name, "missing"), value, precision.get(name, 1e-6), money)
    ]
    extra = [name for name in run.summary if name not in again]
    wrong += [Violation(f"{name} is in summary.json, but is no metric") for name in extra]
    return wrong, f"{', '.join(skipped)}: some jobs took under 1 ms" if coarse else ""


def _same(a: Any, b: Any, relative: float, absolute: float) -> bool:
    if type(a) in (int, float) and isinstance(b, float):
        return abs(a) <= 1e300 and isclose(a, b, rel_tol=relative, abs_tol=absolute)
    return type(a) is type(b) and a == b
