"""Morphling's measured iterations: plans and placements as `itertime` states them, and predictions."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from itertime import Plan, System, load_model, predict
from itertime.errors import UserError
from itertime.spec import ModelSpec, PlanOptions

__all__ = [
    "DEGREES",
    "KINDS",
    "SYSTEM",
    "TUNED",
    "WORKLOADS",
    "Row",
    "Workload",
    "fitted",
    "plan_of",
    "predicted",
    "read_rows",
    "system_of",
]

HERE = Path(__file__).parent / "morphling"
SYSTEM = str(HERE / "a800-offload.yaml")
TUNED = ("bert", "gpt2")
"""Models to whose rows the two times of an offloaded step are fitted; every other figure is held out."""
KINDS = ("ga", "gc", "zero-dp", "zero-offload")
DEGREES = "PTD"
DDP_BUCKET = 25 * 2**20
"""Bytes of a bucket of PyTorch's DistributedDataParallel."""


@dataclass(frozen=True)
class Workload:
    """A model of the measurements: samples of an iteration, as its repository's code has them.

    `degrees_seq_len`: tokens of a sample in degree plans, None as in the model's file. `overlaps`: the
    exchange of `ga` and `gc` runs beside the backward pass. `fused`: its degree plans use a fused optimizer,
    as Megatron-LM does.
    """

    name: str
    batch: int
    degrees_seq_len: int | None = None
    overlaps: bool = False
    fused: bool = False

    def spec(self, plan: str) -> ModelSpec:
        """The model that a plan trains."""
        model = load_model(str(HERE / f"{self.name}.yaml"))
        tokens = self.degrees_seq_len if plan.isdigit() else None
        return model.with_seq_len(tokens) if tokens else model


WORKLOADS = {
    each.name: each
    for each in (
        Workload("bert", 32),
        Workload("gpt2", 16),
        Workload("llama7", 8, fused=True),
        Workload("llama30", 4, fused=True),
        Workload("roberta", 64, overlaps=True),
        Workload("t5", 16, degrees_seq_len=1024),
        Workload("vit", 64, overlaps=True),
    )
}


@dataclass(frozen=True)
class Row:
    """One measured iteration and its prediction. `forward`: the column of that name, in the unit of its file.
    `even`: every node has an even number of the job's GPUs. `half`: measured with half of the samples, as the
    ratio to two GPUs shows.
    """

    model: str
    plan: str
    placement: str
    measured_s: float
    predicted_s: float
    memory_bytes: float
    forward: float = 0.0
    half: bool = False

    @property
    def gpus(self) -> int:
        return sum(map(int, self.placement))

    @property
    def even(self) -> bool:
        return all(int(digit) % 2 == 0 for digit in self.placement)

    @property
    def kind(self) -> str:
        return DEGREES if self.plan.isdigit() else self.plan


def plan_of(plan: str, gpus: int, workload: Workload) -> Plan:
    """The plan as `itertime` states it: one micro-batch, 32 bit with TF32, the exchange after the backward
    pass unless the workload overlaps them. Digits are pipeline, tensor and data degree.
    """
    model = workload.spec(plan)
    if plan.isdigit():
        pp, tp, dp = (int(digit) for digit in plan)
        each = -(-workload.batch // dp)
        split = "even" if model.layers % pp == 0 else "balanced"
        options = PlanOptions(optimizer="fused-adam" if workload.fused else "torch-adamw")
        return Plan(
            tp, pp, dp, each, dp * each, recompute="none", precision="tf32", split=split, options=options
        )
    if plan not in KINDS:
        raise UserError(f"plan {plan}: must be three digits or one of {', '.join(KINDS)}")
    each = -(-workload.batch // gpus)
    overlaps = workload.overlaps and plan in ("ga", "gc")
    return Plan(
        *(1, 1, gpus, each, gpus * each),
        recompute="full" if plan == "gc" else "none",
        zero_stage=1 if plan.startswith("zero") else 0,
        offload_optimizer=plan == "zero-offload",
        grad_overlap=overlaps,
        bucket_bytes=DDP_BUCKET if overlaps else None,
        precision="tf32",
        options=PlanOptions(optimizer="torch-adamw"),
    )


def system_of(system: System, placement: str) -> System:
    """The nodes that a placement makes: those with the fewest GPUs decide on what crosses the network, as in
    `clustersim.speed`, with the NICs beside these GPUs; the fullest node decides on the CPU's memory.

    A plan with one micro-batch hides no send behind another one's work.
    """
    counts = [int(digit) for digit in placement]
    fewest, most = min(counts), max(counts)
    whole = system.nics_per_node or system.gpus_per_node
    nics = -(-fewest * whole // system.gpus_per_node)
    return replace(
        system,
        gpus_per_node=fewest,
        nics_per_node=nics,
        nic_bytes_per_s=system.nic_bytes_per_s * nics / whole,
        cpu_memory_bytes_per_s=system.cpu_memory_bytes_per_s * fewest / most,
        site=replace(system.site, p2p_exposure=1.0),
    )


def read_rows(folder: Path, name: str, system: System, overlap: bool = True) -> tuple[list[Row], list[str]]:
    """The rows of a model with their predictions, and why others are left out. Without `overlap` no exchange
    runs beside a backward pass.
    """
    workload = WORKLOADS[name] if overlap else replace(WORKLOADS[name], overlaps=False)
    path = folder / f"placements_{name}.csv"
    try:
        lines = list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8-sig"))))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; give the folder of Morphling's placements") from None
    rows, left_out = [], []
    for number, line in enumerate(lines, start=2):
        plan, placement, seconds = line["exec_plan"], line["placement"], float(line["iter_time"])
        if seconds <= 0:
            left_out.append(f"{name}: line {number}: did not run")
            continue
        try:
            rows.append(predicted(workload, plan, placement, system, seconds, float(line["forward"])))
        except UserError as error:
            left_out.append(f"{name}: line {number}: {error}")
    return _halves(rows), left_out


def predicted(
    workload: Workload,
    plan: str,
    placement: str,
    system: System,
    seconds: float = float("nan"),
    forward: float = 0.0,
) -> Row:
    """The row of a plan and placement, measured at `seconds`. Raises UserError for an impossible plan."""
    gpus = sum(map(int, placement))
    found = predict(workload.spec(plan), plan_of(plan, gpus, workload), system_of(system, placement))
    return Row(workload.name, plan, placement, seconds, found.iteration_s, found.memory_bytes, forward)


def _halves(rows: Sequence[Row]) -> list[Row]:
    """The rows with `half` set: one GPU that takes at most 1.2 times as long as two on one node with the same
    plan, where the prediction says that its samples do not fit.
    """
    seconds = {(row.plan, row.placement): row for row in rows}
    capacity = 80e9
    found = []
    for row in rows:
        two = seconds.get((row.plan, "2")) if row.placement == "1" else None
        half = bool(two and row.measured_s <= 1.2 * two.measured_s and row.memory_bytes > capacity)
        found.append(replace(row, half=half))
    return found


def fitted(rows: Sequence[Row], system: System) -> tuple[float, float]:
    """`Site.cpu_adam_s` and `Site.cpu_gradient_s`, least squares of the relative error of ZeRO-Offload less
    ZeRO-DP at the same placement; `rows` are predicted with a `system` that has neither.
    """
    by_key = {(row.model, row.plan, row.placement): row for row in rows}
    terms, wanted = [], []
    for (name, plan, placement), row in by_key.items():
        base = by_key.get((name, "zero-dp", placement))
        if plan != "zero-offload" or base is None:
            continue
        more = (row.measured_s - base.measured_s) - (row.predicted_s - base.predicted_s)
        held = WORKLOADS[name].spec(plan).parameters
        terms.append([held / row.gpus / row.measured_s, held / row.measured_s])
        wanted.append(more / row.measured_s)
    found = np.linalg.lstsq(np.array(terms), np.array(wanted), rcond=None)[0]
    return float(found[0]), float(found[1])
