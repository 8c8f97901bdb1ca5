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

from .curve import CannotRun
from .records import EventRecord

if TYPE_CHECKING:
    from itertime.plan import Plan
    from itertime.prediction import Prediction

    from .cluster import Cluster
    from .speed import Speed

__all__ = ["PARTS", "PlanKey", "PlanRecord", "plan_key", "plan_of_label", "plan_record", "plans_used"]

PARTS = {
    "compute_s": ("gemm", "attention", "elementwise", "embedding", "head"),
    "recompute_s": ("recompute",),
    "bubble_s": ("bubble",),
    "tp_comm_s": ("tp_comm", "ep_comm", "cp_comm"),
    "pp_comm_s": ("p2p",),
    "dp_comm_s": ("dp_comm", "embedding_sync", "fsdp_comm", "fsdp_last"),
    "optimizer_s": ("optimizer",),
    "overhead_s": ("launch", "overhead", "iteration_overhead"),
}
"""The parts of `Prediction.breakdown` that each field of a `PlanRecord` sums; together they are all of it."""

_WORDS = {
    "tp": "tp", "pp": "pp", "dp": "dp", "mb": "micro_batch", "cp": "cp", "ep": "ep", "v": "interleave",
    "zero": "zero_stage",
}  # fmt: skip
_WORD = re.compile(r"([a-z]+)(\d+)")
_SAME = 1e-9


class PlanKey(NamedTuple):
    """What tells the plans of a run apart."""

    model: str
    global_batch: int | None
    seq_len: int | None
    gpu_type: str
    gpus: int
    plan: str


class PlanRecord(NamedTuple):
    """One plan on the GPUs of one kind of job. Seconds are per iteration; the `PARTS` sum to `iteration_s`.

    `gpu_type`: empty on a cluster without groups. `gpus`: GPUs held, of which the plan uses `plan_gpus`.
    `low_s`, `high_s`: nine in ten measured iterations lie between them (`itertime.uncertainty`), None where
    too little is known. `seq_len`: None is the model's.
    """

    model: str
    global_batch: int
    seq_len: int | None
    gpu_type: str
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

    @property
    def key(self) -> PlanKey:
        return PlanKey(self.model, self.global_batch, self.seq_len, self.gpu_type, self.gpus, self.plan)


def plans_used(given: Iterable[tuple[Job, EventRecord]], speed: Speed, cluster: Cluster) -> list[PlanRecord]:
    """One record per distinct `PlanKey` of jobs and the events that gave them GPUs, sorted.

    A plan whose prediction is not what the engine ran at is left out: its split would not be that of the run.
    """
    used: dict[PlanKey, tuple[Job, EventRecord]] = {}
    for job, event in given:
        key = plan_key(job.model or "", job.global_batch, job.seq_len, event, cluster)
        used.setdefault(key, (job, event))
    found = (plan_record(used[key][0], key, speed) for key in sorted(used, key=_order))
    return [record for record in found if record is not None]


def plan_key(
    model: str, global_batch: int | None, seq_len: int | None, given: EventRecord, cluster: Cluster
) -> PlanKey:
    """The key of what an event gives a job."""
    gpu_type = cluster.type_of(given.placement[0][0]) if cluster.groups and given.placement else ""
    return PlanKey(model, global_batch, seq_len, gpu_type, given.gpus, given.plan)


def _order(key: PlanKey) -> tuple[str, int, int, str, int, str]:
    return key.model, key.global_batch or 0, key.seq_len or 0, key.gpu_type, key.gpus, key.plan


def plan_record(job: Job, key: PlanKey, speed: Speed) -> PlanRecord | None:
    """The record of `key`, a plan that `job` ran; None if it is not what `speed` knows for these GPUs."""
    from itertime import load_model
    from itertime.planbatch import PlanBatch
    from itertime.prediction import evaluate
    from itertime.uncertainty import interval_s

    planner = speed.planner_of(key.gpu_type)
    plan = plan_of_label(key.plan, job.global_batch or 0)
    if job.model is None or job.global_batch is None or plan is None or planner is None:
        return None
    model, system = load_model(job.model).with_seq_len(job.seq_len), planner.system
    if plan.broken_rules(model):
        return None
    found = evaluate(model, PlanBatch.of([plan]), system, planner.profile).prediction(0)
    ran_s = _ideal_s(job, key.gpus, key.gpu_type, speed)
    if abs(found.iteration_s - ran_s) > _SAME * ran_s:
        return None
    low_s, high_s = interval_s(model, plan, system, found.iteration_s) or (None, None)
    return PlanRecord(
        job.model, job.global_batch, job.seq_len, key.gpu_type, key.gpus, key.plan, plan.gpus,
        found.iteration_s, low_s, high_s, found.memory_bytes / 1e9, found.mfu, **_parts(found),
    )  # fmt: skip


def _ideal_s(job: Job, gpus: int, gpu_type: str, speed: Speed) -> float:
    """Seconds per iteration that the engine knows for these GPUs, close together; 0 if it knows none."""
    try:
        offers = speed.offers(job)
    except CannotRun:
        return 0.0
    curves = [offer.curve for offer in offers if not gpu_type or offer.gpu_type == gpu_type]
    return curves[0].unit_s.get(gpus, 0.0) if curves else 0.0


def _parts(found: Prediction) -> dict[str, float]:
    known = {part for parts in PARTS.values() for part in parts}
    assert set(found.breakdown) <= known, (
        f"parts of an iteration without a name: {set(found.breakdown) - known}"
    )
    return {field: sum(found.breakdown.get(part, 0.0) for part in parts) for field, parts in PARTS.items()}


def plan_words(label: str) -> str:
    """A plan's label for people: what its last word, which parts are recomputed, is about.

    >>> plan_words("tp8 pp2 dp4 mb1 full"), plan_words("tp8 pp2 dp4 mb1 none")
    ('tp8 pp2 dp4 mb1 full recompute', 'tp8 pp2 dp4 mb1')
    """
    if label.endswith((" full", " selective", " early-stop")):
        return label + " recompute"
    return label.removesuffix(" none")


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
