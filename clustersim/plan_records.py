"""The training plans that a run used: how long an iteration takes under each, and where that time goes.

Written at the end of a run, while the planner that chose the plans is at hand, so that a folder can be read
again anywhere. The split of an iteration is that of `itertime`, on the slowest pipeline stage; the
bubble is what that stage waits for the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from traces.job import Job

from .records import EventRecord
from .speed import CannotRun

if TYPE_CHECKING:
    from itertime.plan import Plan
    from itertime.prediction import Prediction

    from .speed import Speed

__all__ = ["PARTS", "PlanRecord", "plan_of_label", "plans_used"]

PARTS = {
    "compute_s": ("gemm", "attention", "elementwise", "embedding", "head"),
    "recompute_s": ("recompute",),
    "bubble_s": ("bubble",),
    "tp_comm_s": ("tp_comm", "ep_comm", "cp_comm"),
    "pp_comm_s": ("p2p",),
    "dp_comm_s": ("dp_comm", "embedding_sync", "fsdp_comm", "fsdp_last"),
    "optimizer_s": ("optimizer",),
    "overhead_s": ("overhead", "iteration_overhead"),
}
"""The parts of `Prediction.breakdown` that each field of a `PlanRecord` sums; together they are all of it."""

_WORDS = {
    "tp": "tp", "pp": "pp", "dp": "dp", "mb": "micro_batch", "cp": "cp", "ep": "ep", "v": "interleave",
    "zero": "zero_stage",
}  # fmt: skip
_WORD = re.compile(r"([a-z]+)(\d+)")
_SAME = 1e-9


class PlanRecord(NamedTuple):
    """One plan on the GPUs of one kind of job. Seconds are per iteration; the `PARTS` sum to `iteration_s`.

    `gpus`: GPUs held, of which the plan uses `plan_gpus`. `low_s`, `high_s`: nine in ten measured iterations
    lie between them (`itertime.uncertainty`), None where too little is known. `seq_len`: None is the model's.
    """

    model: str
    global_batch: int
    seq_len: int | None
    gpus: int
    plan: str
    plan_gpus: int
    iteration_s: float
    low_s: float | None
    high_s: float | None
    memory_gb: float
    mfu: float
    compute_s: float
    recompute_s: float
    bubble_s: float
    tp_comm_s: float
    pp_comm_s: float
    dp_comm_s: float
    optimizer_s: float
    overhead_s: float


def plans_used(jobs: Iterable[Job], events: Iterable[EventRecord], speed: Speed) -> list[PlanRecord]:
    """One record per distinct (model, global batch, sequence length, GPUs, plan) of the log, sorted.

    A plan whose prediction is not what the engine ran at is left out: its split would not be that of the run.
    """
    by_id = {job.job_id: job for job in jobs}
    used: dict[tuple[str, int, int, int, str], Job] = {}
    for event in events:
        if event.plan:
            job = by_id[event.job_id]
            if job.model is not None and job.global_batch is not None:
                key = (job.model, job.global_batch, job.seq_len or 0, event.gpus, event.plan)
                used.setdefault(key, job)
    found = (
        _record(job, gpus, label, speed) for (_, _, _, gpus, label), job in sorted(used.items(), key=_first)
    )
    return [record for record in found if record is not None]


def _first(item: tuple[tuple[str, int, int, int, str], Job]) -> tuple[str, int, int, int, str]:
    return item[0]


def _record(job: Job, gpus: int, label: str, speed: Speed) -> PlanRecord | None:
    from itertime import load_model
    from itertime.planbatch import PlanBatch
    from itertime.prediction import evaluate
    from itertime.uncertainty import interval_s

    assert job.model is not None
    assert job.global_batch is not None
    plan = plan_of_label(label, job.global_batch)
    if plan is None:
        return None
    model = load_model(job.model).with_seq_len(job.seq_len)
    if plan.broken_rules(model):
        return None
    assert speed.planner is not None, "a job has a plan"
    system, profile = speed.planner.system, speed.planner.profile
    found = evaluate(model, PlanBatch.of([plan]), system, profile).prediction(0)
    try:
        ran_s = speed.curve(job).unit_s.get(gpus, 0.0)
    except CannotRun:
        return None
    if abs(found.iteration_s - ran_s) > _SAME * ran_s:
        return None
    low_s, high_s = interval_s(model, plan, system, found.iteration_s) or (None, None)
    return PlanRecord(
        job.model, job.global_batch, job.seq_len, gpus, label, plan.gpus, found.iteration_s, low_s, high_s,
        found.memory_bytes / 1e9, found.mfu, **_parts(found),
    )  # fmt: skip


def _parts(found: Prediction) -> dict[str, float]:
    known = {part for parts in PARTS.values() for part in parts}
    assert set(found.breakdown) <= known, (
        f"parts of an iteration without a name: {set(found.breakdown) - known}"
    )
    return {field: sum(found.breakdown.get(part, 0.0) for part in parts) for field, parts in PARTS.items()}


def plan_of_label(label: str, global_batch: int) -> Plan | None:
    """The plan that `Plan.label` describes, what the label leaves out at its default; None for other text.

    >>> plan_of_label("tp8 pp2 dp4 mb1 v2 full", 64).interleave
    2
    """
    from itertime.plan import Plan

    *words, recompute = label.split() or [""]
    values: dict[str, int] = {}
    for word in words:
        match = _WORD.fullmatch(word)
        if match and match[1] in _WORDS and len(match[2]) < 9:
            values[_WORDS[match[1]]] = int(match[2])
        elif word != "sp":
            return None
    if not {"tp", "pp", "dp", "micro_batch"} <= set(values):
        return None
    plan = Plan(**values, global_batch=global_batch, recompute=recompute, sequence_parallel="sp" in words)  # type: ignore[arg-type]
    return plan if plan.label == label else None
