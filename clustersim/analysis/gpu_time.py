"""Where the GPU-seconds of a run went. Each second of each GPU, from the first submission to the last finish,
falls into exactly one category.

Running time is split by the recorded plans: the shares of one iteration hold for all iterations of a plan.
The shares are those of the slowest pipeline stage; the other stages compute less and wait more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import fsum

import numpy as np

from clustersim.records import ALLOCATES, RATE, JobRecord, PlanKey, PlanRecord, Run, plan_key

from .allocations import Allocation, allocations
from .arrays import Usage
from .metrics import makespan_s

__all__ = ["CATEGORIES", "GpuTime", "gpu_time"]

CATEGORIES = {
    "compute": "Compute",
    "recompute": "Recomputation",
    "bubble": "Pipeline bubble",
    "tp_comm": "Tensor-parallel communication",
    "pp_comm": "Pipeline communication",
    "dp_comm": "Data-parallel communication",
    "network": "Slowed by the network",
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


def gpu_time(run: Run) -> GpuTime | None:
    """The split of one run; None if no job finished."""
    span_s = makespan_s(run.jobs)
    if not span_s:
        return None
    from_s = min(job.submit_s for job in run.jobs)
    interval = (from_s, from_s + span_s)
    jobs = {job.job_id: job for job in run.jobs}
    plans = {plan.key: plan for plan in run.plans}
    parts: dict[str, list[float]] = {name: [] for name in CATEGORIES}
    by_plan: dict[PlanKey, list[float]] = {}
    found = allocations(run)
    at_full_speed: dict[PlanKey, list[float]] = {}
    progress, speeds = _progress(found, jobs), _Speeds(run)
    for held in found:
        paid, ran = _clipped(held, *interval)
        share, lost = progress.get(held.given.job_id, (1.0, 0.0))
        parts["overhead"].append((paid + ran * (1 - share - lost)) * held.given.gpus)
        parts["lost"].append(ran * lost * held.given.gpus)
        ran *= share
        job = jobs[held.given.job_id]
        key = plan_key(job.model, job.global_batch, job.seq_len, held.given, run.cluster)
        plan = plans.get(key)
        if plan is not None:
            by_plan.setdefault(key, []).append(ran * held.given.gpus)
        slowed = speeds.slowed(held, plan)
        if slowed == 0:
            at_full_speed.setdefault(key, []).append(ran * held.given.gpus)
            continue
        for name, part in _shares(plan, slowed).items():
            parts[name].append(ran * held.given.gpus * part)
    for key, values in at_full_speed.items():
        for name, part in _shares(plans.get(key), 0.0).items():
            parts[name].append(fsum(values) * part)
    total = run.cluster.gpus * span_s
    seconds = {name: fsum(values) for name, values in parts.items()} | _idle(run, *interval)
    seconds["idle"] = max(0.0, total - fsum(value for name, value in seconds.items() if name != "idle"))
    return GpuTime(total, seconds, {key: fsum(values) for key, values in by_plan.items()})


def _progress(found: Sequence[Allocation], jobs: Mapping[str, JobRecord]) -> dict[str, tuple[float, float]]:
    """By job, two shares of its running time: progress, and work that failures undid. Periodic checkpoints
    and loads from shared storage took the rest. Jobs whose running time was all progress are left out.
    """
    ran, paid = Counter[str](), Counter[str]()
    for held in found:
        paid[held.given.job_id] += held.paid_s * held.given.gpus  # type: ignore[assignment]
        ran[held.given.job_id] += (held.held_s - held.paid_s) * held.given.gpus  # type: ignore[assignment]
    shares = {}
    for job_id, gpu_s in ran.items():
        job = jobs[job_id]
        saving = job.overhead_gpu_s - paid[job_id]
        if gpu_s > 0 and (job.lost_work_gpu_s or saving > 1e-6 * gpu_s):
            lost = min(1.0, job.lost_work_gpu_s / gpu_s)
            shares[job_id] = (max(0.0, 1 - lost - max(0.0, saving) / gpu_s), lost)
    return shares


def _clipped(held: Allocation, from_s: float, to_s: float) -> tuple[float, float]:
    """(seconds of overhead, seconds of progress) of an allocation within an interval."""
    ready_s = held.from_s + held.paid_s
    paid = max(0.0, min(ready_s, to_s) - max(held.from_s, from_s))
    return paid, max(0.0, min(held.to_s, to_s) - max(ready_s, from_s))


class _Speeds:
    """How much slower than their plans jobs ran, because of their placement and of jobs on the same links.

    The log states the speed of a job with every allocation, and again whenever the speed changes. On an
    "ideal" network, a job always runs at the speed of its plan.
    """

    def __init__(self, run: Run):
        self.changes: dict[str, list[tuple[float, float]]] = {}
        for event in run.events if run.cluster.network != "ideal" else ():
            if event.event == RATE or event.event in ALLOCATES:
                self.changes.setdefault(event.job_id, []).append((event.time_s, event.unit_s))

    def slowed(self, held: Allocation, plan: PlanRecord | None) -> float:
        """The share of an allocation's running time beyond the prediction of its plan, at least 0."""
        changes = self.changes.get(held.given.job_id, [])
        if plan is None or not changes:
            return 0.0
        ready_s = held.from_s + held.paid_s
        ran_s, needed_s = 0.0, 0.0
        for (since_s, unit_s), (until_s, _) in pairwise([*changes, (held.to_s, 0.0)]):
            seconds = min(until_s, held.to_s) - max(since_s, ready_s)
            if seconds > 0 and unit_s > 0:
                ran_s += seconds
                needed_s += seconds * plan.iteration_s / unit_s
        return max(0.0, 1 - needed_s / ran_s) if ran_s else 0.0


def _shares(plan: PlanRecord | None, slowed: float) -> dict[str, float]:
    """Shares of the GPU-seconds of progress, by category; they sum to 1."""
    if plan is None or plan.iteration_s <= 0:
        return {"running": 1.0}
    used = plan.plan_gpus / plan.gpus
    needed = used * (1 - slowed)
    sums = {name: sum(getattr(plan, field) for field in fields) for name, fields in _PARTS.items()}
    whole = sum(sums.values()) or 1.0
    rest = {"unused": 1.0 - used, "network": used - needed}
    return {name: needed * value / whole for name, value in sums.items()} | rest


def _idle(run: Run, from_s: float, to_s: float) -> dict[str, float]:
    """GPU-seconds out of service, idle on partly used nodes, and idle on empty nodes while jobs wait."""
    usage = Usage.of(run.snapshots, to_s)
    pending = np.array([snapshot.pending for snapshot in run.snapshots], dtype=float)
    down = np.array([snapshot.down for snapshot in run.snapshots], dtype=float)
    empty = run.cluster.gpus - down - usage.allocated - usage.stranded
    return {
        "down": usage.integral(down, from_s, to_s),
        "stranded": usage.integral(usage.stranded, from_s, to_s),
        "waiting": usage.integral(empty * (pending > 0), from_s, to_s),
    }
