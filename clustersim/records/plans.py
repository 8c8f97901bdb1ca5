"""The training plans that a run used: the time of an iteration under each, and where that time goes."""

from __future__ import annotations

import re
from typing import NamedTuple, Protocol

from clustersim.cluster import Cluster
from itertime.errors import UserError
from itertime.spec import (
    CUDA_GRAPHS,
    DISPATCHERS,
    PRECISIONS,
    RECOMPUTE,
    RULES,
    Plan,
    at_depth,
    parse_options,
)

from .records import EventRecord

__all__ = [
    "PARTS",
    "PlanKey",
    "PlanRecord",
    "batch_of",
    "layers_of",
    "phase_of",
    "phase_words",
    "plan_key",
    "plan_of_label",
    "plan_words",
    "spread_words",
]

PARTS = {
    "compute_s": ("gemm", "attention", "elementwise", "embedding", "head", "towers"),
    "recompute_s": ("recompute",),
    "bubble_s": ("bubble",),
    "tp_comm_s": ("tp_comm", "ep_comm", "cp_comm"),
    "pp_comm_s": ("p2p", "stalled_sends"),
    "dp_comm_s": (
        "dp_comm", "embedding_sync", "fsdp_comm", "fsdp_last", "outer_sync", "balance", "contention",
        "contention_once",
    ),
    "optimizer_s": ("optimizer", "optimizer_copies", "clipping", "compression", "compression_once"),
    "overhead_s": ("launch", "overhead", "iteration_overhead", "offload_comm"),
    "imbalance_s": ("imbalance",),
}  # fmt: skip
"""The parts of `Prediction.breakdown` that each field of a `PlanRecord` sums; every part is in one field.

Contention is the time by which hidden exchanges slow computation; searches hide those of data-parallel ranks.
Balance is the exchange of samples between ranks, imbalance the wait for the rank with the longest samples.
"""

_WORDS = {
    "tp": "tp", "pp": "pp", "dp": "dp", "mb": "micro_batch", "cp": "cp", "ep": "ep", "v": "interleave",
    "etp": "etp", "zero": "zero_stage", "offload": "offload_layers",
}  # fmt: skip
_PHASE = re.compile(r"phase (\d{1,6}) of \d{1,6}\b")
_LAYERS = re.compile(r": (\d{1,6}) layers, global batch ")
_BATCH = re.compile(r"\bglobal batch (\d{1,9})$")
_WORD = re.compile(r"([a-z]+)(\d+)")
_SHARE = re.compile(r"part(\d\.\d{1,17})")
_SWITCHES: dict[str, tuple[str, str | bool]] = {
    "sp": ("sequence_parallel", True),
    "ends": ("split", "ends"),
    "ep-overlap": ("ep_overlap", True),
    "tp-overlap": ("tp_overlap", True),
    "no-tp-overlap": ("tp_overlap", False),
    "offload-optimizer": ("offload_optimizer", True),
    **{name: ("precision", name) for name in PRECISIONS[1:]},
    **{name: ("dispatcher", name) for name in DISPATCHERS[1:]},
    **{f"graphs-{name}": ("cuda_graphs", name) for name in CUDA_GRAPHS[1:]},
    **{f"{name}-rules": ("rules", name) for name in RULES[1:]},
}


class PlanKey(NamedTuple):
    """What identifies a plan within a run."""

    model: str
    global_batch: int | None
    seq_len: int | None
    framework: str
    precision: str
    plan_options: str
    gpu_type: str
    gpus: int
    plan: str


class PlanRecord(NamedTuple):
    """One plan on the GPUs of one kind of job. Seconds are per iteration; the `PARTS` sum to `iteration_s`.

    `framework`, `precision`, `plan_options`: as jobs state them; empty for those that inherit that of the
    nodes, for bf16, and for a plan's defaults.
    `gpu_type`: empty on a cluster without groups. `gpus`: GPUs held, of which the plan uses `plan_gpus`.
    `low_s`, `high_s`: nine in ten measured iterations lie between them; None if too few were measured.
    `spread_low_s`, `spread_high_s`: between them lie nine in ten iterations of one job, as the samples that
    its ranks draw differ in length; None where all iterations take equally long.
    `seq_len`: None means the model's own. The split is that of `itertime` for the slowest pipeline stage;
    `bubble_s` is the time that this stage waits for the others.
    """

    model: str
    global_batch: int
    seq_len: int | None
    framework: str
    precision: str
    plan_options: str
    gpu_type: str
    gpus: int
    plan: str
    plan_gpus: int
    iteration_s: float
    low_s: float | None
    high_s: float | None
    spread_low_s: float | None
    spread_high_s: float | None
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
    imbalance_s: float

    @property
    def key(self) -> PlanKey:
        return PlanKey(*self[:9])


class Trained(Protocol):
    """What a job trains: a submitted job, or the record of one."""

    @property
    def model(self) -> str | None: ...
    @property
    def global_batch(self) -> int | None: ...
    @property
    def seq_len(self) -> int | None: ...
    @property
    def framework(self) -> str | None: ...
    @property
    def precision(self) -> str | None: ...
    @property
    def plan_options(self) -> str | None: ...


def plan_key(job: Trained, allocation: EventRecord, cluster: Cluster) -> PlanKey:
    """The key of the plan that `job` runs after the event `allocation`."""
    gpu_type = cluster.type_of(allocation.placement[0][0]) if cluster.groups and allocation.placement else ""
    software = job.framework or "", job.precision or "", job.plan_options or ""
    return PlanKey(
        at_depth(job.model or "", layers_of(allocation)),
        batch_of(allocation) or job.global_batch,
        job.seq_len,
        *software,
        gpu_type,
        allocation.gpus,
        allocation.plan,
    )


def phase_words(phase: int, phases: int, batch: int | None, layers: int | None = None) -> str:
    """The `detail` of an allocation of a job in phases; `phase` counts from 0.

    >>> phase_words(1, 3, 1024), phase_words(0, 2, 512, 6)
    ('phase 2 of 3: global batch 1024', 'phase 1 of 2: 6 layers, global batch 512')
    """
    of = f"phase {phase + 1} of {phases}"
    if batch is None:
        return of
    return f"{of}: global batch {batch}" if layers is None else f"{of}: {layers} layers, global batch {batch}"


def phase_of(allocation: EventRecord) -> int | None:
    """The phase that an allocation states, from 0; None if it states none."""
    match = _PHASE.match(allocation.detail) if allocation.detail else None
    return int(match[1]) - 1 if match else None


def batch_of(allocation: EventRecord) -> int | None:
    """The global batch that an allocation states; None for that of the job."""
    match = _BATCH.search(allocation.detail) if allocation.detail else None
    return int(match[1]) if match else None


def layers_of(allocation: EventRecord) -> int | None:
    """The layers that an allocation states, where a phase trains fewer than the job's model has."""
    match = _LAYERS.search(allocation.detail) if allocation.detail else None
    return int(match[1]) if match else None


def plan_words(label: str) -> str:
    """A plan's label for readers: the word for what is recomputed is explained or left out. It is the last
    one but for the plan's options.

    >>> plan_words("tp8 pp2 dp4 mb1 full"), plan_words("tp8 pp2 dp4 mb1 none clipping=bucket")
    ('tp8 pp2 dp4 mb1 full recompute', 'tp8 pp2 dp4 mb1 clipping=bucket')
    """
    label, options = _options_apart(label)
    if label.endswith(tuple(f" {name}" for name in RECOMPUTE[1:])):
        label += " recompute"
    return " ".join(filter(None, (label.removesuffix(" none"), options)))


def _options_apart(label: str) -> tuple[str, str]:
    """A plan's label without its options, and these as text; "" for a label without."""
    degrees, _, last_word = label.rpartition(" ")
    return (degrees, last_word) if "=" in last_word else (label, "")


def spread_words(record: PlanRecord) -> str:
    """The times between which nine in ten iterations of one job lie; "" where all take equally long."""
    if record.spread_low_s is None or record.spread_high_s is None:
        return ""
    low, high = (f"{1000 * seconds:,.4g}" for seconds in (record.spread_low_s, record.spread_high_s))
    return f"{low} to {high} ms" if low != high else ""


def plan_of_label(label: str, global_batch: int) -> Plan | None:
    """The plan whose `Plan.label` is `label`, with defaults for what a label leaves out; None for other text.

    >>> plan_of_label("tp8 pp2 dp4 mb1 v2 full", 64).interleave
    2
    >>> plan_of_label("tp1 pp1 dp8 mb1 none clipping=bucket", 64).options.clipping
    'bucket'
    """
    degrees, text = _options_apart(label)
    try:
        options = parse_options(text)
    except UserError:
        return None
    *words, recompute = degrees.split() or [""]
    values: dict[str, int | float | str | bool] = {}
    for word in words:
        match, share = _WORD.fullmatch(word), _SHARE.fullmatch(word)
        if match and match[1] in _WORDS and len(match[2]) < 9:
            values[_WORDS[match[1]]] = int(match[2])
        elif word in _SWITCHES:
            name, value = _SWITCHES[word]
            values[name] = value
        elif share:
            values["recompute_fraction"] = float(share[1])
        else:
            return None
    if recompute not in RECOMPUTE or not {"tp", "pp", "dp", "micro_batch"} <= set(values):
        return None
    plan = Plan(**values, global_batch=global_batch, recompute=recompute, options=options)  # type: ignore[arg-type]
    return plan if plan.label == label else None
