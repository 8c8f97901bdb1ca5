"""Where the GPU-seconds of a run went. Each second of each GPU, from the first submission to the last finish,
falls into exactly one category.

Running time is split by the recorded plans: the shares of one iteration hold for all iterations of a plan.
The shares are those of the slowest pipeline stage; the other stages compute less and wait more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import fsum
from typing import Any

import numpy as np

from clustersim.records import ALLOCATES, RATE, PlanKey, PlanRecord, Run, as_row, batch_of, layers_of
from itertime.spec import at_depth

from .allocations import Holdings, holdings
from .arrays import Usage
from .tables import finished, jobs_of, numbered, per_run, rows_by_number, snapshots_of

__all__ = ["CATEGORIES", "GpuTime", "gpu_time", "plan_keys"]

CATEGORIES = {
    "compute": "Compute",
    "recompute": "Recomputation",
    "bubble": "Pipeline bubble",
    "tp_comm": "Tensor-parallel communication",
    "pp_comm": "Pipeline communication",
    "dp_comm": "Data-parallel communication",
    "imbalance": "Waiting for the rank with the longest samples",
    "network": "Slowed by the network, or by unequal steps",
    "running": "Running, not split",
    "unused": "Held, not used by the plan",
    "overhead": "Launches, restarts, checkpoints",
    "lost": "Work lost in failures",
    "down": "Out of service",
    "stranded": "Idle: rest of a node in use",
    "waiting": "Idle while jobs wait",
    "idle": "Idle, nothing waits",
}
"""Display names. "Running, not split" is the time of jobs that have no plan: they have a duration, or a speed
from a throughput table.
"""

_PARTS = {
    "compute": ("compute_s", "optimizer_s", "overhead_s"),
    "recompute": ("recompute_s",),
    "bubble": ("bubble_s",),
    "tp_comm": ("tp_comm_s",),
    "pp_comm": ("pp_comm_s",),
    "dp_comm": ("dp_comm_s",),
    "imbalance": ("imbalance_s",),
}


@dataclass(frozen=True)
class GpuTime:
    """GPU-seconds by category. Their sum is `total`, all GPUs x the time from first submission to last
    finish.

    `by_plan`: GPU-seconds of progress under each recorded plan.
    """

    total: float
    seconds: Mapping[str, float]
    by_plan: Mapping[PlanKey, float]


@per_run
def gpu_time(run: Run) -> GpuTime | None:
    """The split of one run; None if no job finished. Raises KeyError if a job of the log has no record."""
    interval = _interval(run)
    if interval is None:
        return None
    held = holdings(run)
    if np.any(held.job >= len(run.jobs)):
        raise KeyError("the event log has a job without a record")
    paid, ran = _clipped(held, *interval)
    progress, lost = _progress(run)
    parts: dict[str, list[float]] = {name: [] for name in CATEGORIES}
    parts["overhead"] = ((paid + ran * (1 - progress - lost)) * held.gpus).tolist()
    parts["lost"] = (ran * lost * held.gpus).tolist()
    running = ran * progress * held.gpus
    keys, numbers = plan_keys(run)
    plans = {plan.key: plan for plan in run.plans}
    slowed = _slowed(run, [plans.get(key) for key in keys], numbers)
    for i in np.flatnonzero(slowed):
        for name, part in _shares(plans.get(keys[numbers[i]]), slowed[i]).items():
            parts[name].append(running[i] * part)
    by_plan: dict[PlanKey, float] = {}
    for key, of_plan in zip(keys, rows_by_number(numbers, len(keys)), strict=True):
        at_full_speed = running[of_plan[slowed[of_plan] == 0]]
        if len(at_full_speed):
            full_speed_gpu_s = fsum(at_full_speed.tolist())
            for name, part in _shares(plans.get(key), 0.0).items():
                parts[name].append(full_speed_gpu_s * part)
        if key in plans:
            by_plan[key] = fsum(running[of_plan].tolist())
    total = run.cluster.gpus * (interval[1] - interval[0])
    seconds = {name: fsum(values) for name, values in parts.items()} | _idle(run, *interval)
    seconds["idle"] = max(0.0, total - fsum(value for name, value in seconds.items() if name != "idle"))
    return GpuTime(total, seconds, by_plan)


def _interval(run: Run) -> tuple[float, float] | None:
    """The first submission and the last finish; None if they are no interval of positive length."""
    jobs, done = jobs_of(run), finished(run)
    finishes = jobs["finish_s"][done & ~np.isnan(jobs["finish_s"])]
    if not len(finishes):
        return None
    from_s = float(jobs["submit_s"].min())
    span_s = float(finishes.max()) - from_s
    return (from_s, from_s + span_s) if span_s else None


def plan_keys(run: Run) -> tuple[list[PlanKey], np.ndarray]:
    """The distinct keys of the plans of all allocations, and the number of each allocation's key. Every job
    of the log must have a record.
    """
    jobs, held = jobs_of(run), holdings(run)
    facts = ("model", "global_batch", "seq_len", "framework", "precision", "plan_options")
    work, works = numbered(list(zip(*map(jobs.values, facts), strict=True)))
    types = [""] * len(held.given)
    if run.cluster.groups:
        first_nodes = [placement[0][0] if placement else None for placement in held.placements]
        types = ["" if node is None else run.cluster.type_of(node) for node in first_nodes]
    gpu_type, type_names = numbered(types)
    of_each = np.array(work, dtype=int)[held.job]
    if any(jobs.values("phases")):
        of_each, works = _works_in_phases(run, [works[work[row]] for row in held.job.tolist()])
    rows = np.stack([of_each, np.array(gpu_type, dtype=int), np.ceil(held.gpus).astype(int), held.plan])
    sizes = tuple(rows.max(axis=1, initial=0) + 1)
    codes, numbers = np.unique(np.ravel_multi_index(tuple(rows), sizes), return_inverse=True)
    keys = []
    for of, kind, gpus, plan in np.transpose(np.unravel_index(codes, sizes)).tolist():
        keys.append(as_row(PlanKey, (*works[of], type_names[kind], gpus, held.plans[plan])))
    return keys, numbers


def _works_in_phases(run: Run, work_rows: list[tuple[Any, ...]]) -> tuple[np.ndarray, list[tuple[Any, ...]]]:
    """What each allocation trains, numbered, where jobs have phases. `work_rows`: what its job was submitted
    with; the global batch, its second part, is that of the phase.
    """
    allocation_events = (run.events[row] for row in holdings(run).given.tolist())
    phase_rows = [
        (at_depth(work[0], layers_of(event)), batch_of(event) or work[1], *work[2:])
        for event, work in zip(allocation_events, work_rows, strict=True)
    ]
    numbers, works = numbered(phase_rows)
    return np.array(numbers, dtype=int), works


def _progress(run: Run) -> tuple[np.ndarray, np.ndarray]:
    """For each allocation, two shares of its job's running time: progress, and work that failures undid.
    Periodic checkpoints and loads from shared storage took the rest.
    """
    jobs, held = jobs_of(run), holdings(run)
    paid_gpu_s, ran_gpu_s = (
        np.bincount(held.job, seconds * held.gpus, minlength=len(jobs))
        for seconds in (held.paid_s, held.to_s - held.from_s - held.paid_s)
    )
    undone = jobs["lost_work_gpu_s"]
    saving = jobs["overhead_gpu_s"] - paid_gpu_s
    partly = (ran_gpu_s > 0) & ((undone != 0) | (saving > 1e-6 * ran_gpu_s))
    with np.errstate(divide="ignore", invalid="ignore"):
        lost = np.where(partly, np.minimum(1.0, undone / ran_gpu_s), 0.0)
        kept_share = np.maximum(0.0, 1 - lost - np.maximum(0.0, saving) / ran_gpu_s)
    return np.where(partly, kept_share, 1.0)[held.job], lost[held.job]


def _clipped(held: Holdings, from_s: float, to_s: float) -> tuple[np.ndarray, np.ndarray]:
    """(seconds of overhead, seconds of progress) of allocations within an interval."""
    ready_s = held.from_s + held.paid_s
    paid = np.maximum(0.0, np.minimum(ready_s, to_s) - np.maximum(held.from_s, from_s))
    return paid, np.maximum(0.0, np.minimum(held.to_s, to_s) - np.maximum(ready_s, from_s))


def _slowed(run: Run, plans: Sequence[PlanRecord | None], numbers: np.ndarray) -> np.ndarray:
    """For each allocation, how much slower than its plan the job ran; `numbers`: its plan among `plans`."""
    held, slowed = holdings(run), np.zeros(len(numbers))
    slower = run.manifest.get("step_time") or run.manifest.get("variability")
    if not run.cluster.network_model.by_placement and not slower:
        return slowed
    speeds, ids = _Speeds(run), jobs_of(run).values("job_id")
    batches = jobs_of(run).values("global_batch")
    times = zip(held.from_s.tolist(), held.paid_s.tolist(), held.to_s.tolist(), strict=True)
    for i, (from_s, paid_s, to_s) in enumerate(times):
        plan = plans[numbers[i]]
        if plan is not None and batches[held.job[i]] not in (None, plan.global_batch):
            # A unit of work is an iteration of the batch that the job was submitted with.
            plan = plan._replace(
                iteration_s=plan.iteration_s * batches[held.job[i]] / (plan.global_batch or 1)
            )
        slowed[i] = speeds.slowed(ids[held.job[i]], from_s + paid_s, to_s, plan)
    return slowed


class _Speeds:
    """How much slower than their plans jobs ran, because of their placement, of jobs on the same links and of
    `step_time` and `variability`.

    The log states the speed of a job with every allocation, and again whenever the speed changes.
    """

    def __init__(self, run: Run):
        self.changes: dict[str, list[tuple[float, float]]] = {}
        for event in run.events:
            if event.event == RATE or event.event in ALLOCATES:
                self.changes.setdefault(event.job_id, []).append((event.time_s, event.unit_s))

    def slowed(self, job_id: str, ready_s: float, to_s: float, plan: PlanRecord | None) -> float:
        """The share of an allocation's running time beyond the prediction of its plan, at least 0. The job
        ran from `ready_s` to `to_s`.
        """
        changes = self.changes.get(job_id, [])
        if plan is None or not changes:
            return 0.0
        ran_s, needed_s = 0.0, 0.0
        for (since_s, unit_s), (until_s, _) in pairwise([*changes, (to_s, 0.0)]):
            seconds = min(until_s, to_s) - max(since_s, ready_s)
            if seconds > 0 and unit_s > 0:
                ran_s += seconds
                needed_s += seconds * plan.iteration_s / unit_s
        return max(0.0, 1 - needed_s / ran_s) if ran_s else 0.0


def _shares(plan: PlanRecord | None, slowed: float) -> dict[str, float]:
    """Shares of the GPU-seconds of progress, by category; they sum to 1."""
    if plan is None or plan.iteration_s <= 0:
        return {"running": 1.0}
    used_share = plan.plan_gpus / plan.gpus
    needed_share = used_share * (1 - slowed)
    sums = {name: sum(getattr(plan, field) for field in fields) for name, fields in _PARTS.items()}
    total = sum(sums.values()) or 1.0
    other_shares = {"unused": 1.0 - used_share, "network": used_share - needed_share}
    return {name: needed_share * value / total for name, value in sums.items()} | other_shares


def _idle(run: Run, from_s: float, to_s: float) -> dict[str, float]:
    """GPU-seconds out of service, idle on partly used nodes, and idle on empty nodes while jobs wait."""
    rows = snapshots_of(run)
    usage = Usage.of(rows, to_s)
    empty = run.cluster.gpus - rows["down"] - usage.allocated - usage.stranded
    return {
        "down": usage.integral(rows["down"], from_s, to_s),
        "stranded": usage.integral(usage.stranded, from_s, to_s),
        "waiting": usage.integral(empty * (rows["pending"] > 0), from_s, to_s),
    }
